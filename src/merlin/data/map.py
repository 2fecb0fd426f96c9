"""A map of the data: places, recorded passages between them, and shortest paths.

Places are achieved goals that cover the data, chosen by farthest-point sampling. Every state
belongs to the nearest place. Distances are those of goals, or of a projection of them in which
distances are temporal (`data.kinetic`). A passage connects two places if episodes went from one to
the other within a given number of steps, several times. Nothing is inferred: two places on either
side of a wall are close, but no episode went from one to the other. Nor does the map count on
jumps, like those of a teleporter.

Near goals need no waypoint. If the map is complete, a goal is near if recorded passages lead
straight to it. Otherwise every goal within the policy's reach is near. A map is incomplete if its
places do not determine the state: a hand may be anywhere while the object that it pushes is in one
place. It is also incomplete if many places are not connected, unless episodes are longer than the
reach.
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from merlin.data.dataset import Dataset
from merlin.types import Map

CHOSEN_FROM = 100_000
"""Places are chosen among this many states, evenly spaced over the data."""
STATES_PER_PLACE = 50
"""Small datasets get fewer places, so that each passage occurs several times."""
MOST_PLACES = 10_000
"""The tables have this number squared of entries."""
LEAST_JOINED = 0.02
"""A place connected to a smaller fraction of the others is replaced by a better connected one."""
LONG_LEG = 0.15
"""Extra cost of a passage per lag^1.5, because short passages are followed more reliably."""
DETERMINED = 0.9
"""Fraction of the variance of states that places must explain to determine the state."""
JUMP = 3.0
"""A step is a jump if it is this many times longer than 99 % of the steps that move."""
CONNECTED = 0.95
"""Fraction of the pairs of places that a complete map connects."""
NO_WAY, THE_GOAL = -1, -1
Table = Int[np.ndarray, "count count"]


def build_map(
    data: Dataset,
    phi: tuple[int, ...],
    *,
    places: int,
    lags: tuple[int, ...],
    passages: int,
    hops: int,
    reach: int,
    tolerance: float = 0.0,
    projection: Float[np.ndarray, "goal goal"] | None = None,
) -> Map:
    """Build the map of a dataset, with tables of waypoints between all pairs of places.

    `phi` gives the columns of a state that are its goal. `reach` is the number of steps within
    which a policy can reach goals without a waypoint. Goals within the `tolerance` of a recorded
    one belong to the data. All distances are those between goals after the `projection`; by default
    they are those between the goals themselves. The tables always have `places` rows; for small
    datasets the last place is repeated.
    """
    recorded = np.asarray(data.achieved_goals)
    if projection is None:
        projection = np.eye(recorded.shape[1], dtype=np.float32)
    goals = recorded @ projection[:, projection.any(axis=0)]
    most = max(1, min(places, len(goals) // STATES_PER_PLACE))
    every = max(1, len(goals) // CHOSEN_FROM)
    chosen = every * spread(goals[::every], most)
    centres, count = goals[chosen], len(chosen)
    away, nearest = cKDTree(centres).query(goals)
    radius = np.zeros(count)
    np.maximum.at(radius, nearest, away)
    lag, times = passage_lags(nearest, unbroken(goals, data.starts), count, lags, passages)
    ahead, told, steps, seen = ways(lag, times, hops)
    near = (steps >= 0) & (steps <= reach)
    connected = (steps >= 0).mean() >= CONNECTED or data.lengths.max() - 1 > reach
    if connected and determined(nearest, data.observations, count) >= DETERMINED:
        near = straight(centres, lag == min(lags), near, _stride(goals, data.starts, min(lags)))
    ahead = np.where(near, THE_GOAL, ahead).astype(np.int16)
    ahead_of, behind = ((steps >= 0).sum(axis) - 1 for axis in (1, 0))
    begin, end = (nearest_joined(centres, others / count) for others in (ahead_of, behind))
    rows = np.minimum(np.arange(places), count - 1)
    pairs = np.ix_(begin[rows], end[rows])
    return Map(
        centres=recorded[chosen][rows],
        projection=projection,
        phi=np.array(phi, np.int32),
        ahead=ahead[pairs],
        told=told[pairs],
        steps=steps[pairs],
        seen=seen[pairs],
        states=np.asarray(data.observations[chosen], np.float32)[rows],
        radius=(radius + tolerance * np.linalg.norm(projection, 2)).astype(np.float32)[rows],
    )


def usual_radius(data: Dataset, found: Map) -> float:
    """The distance that the farthest states have from their place, the median over places.

    Between goals, not between their projections.
    """
    goals, centres = np.asarray(data.achieved_goals), np.asarray(found.centres)
    nearest = cKDTree(centres @ found.projection).query(goals @ found.projection)[1]
    radius = np.zeros(len(centres))
    np.maximum.at(radius, nearest, np.linalg.norm(goals - centres[nearest], axis=1))
    return float(np.median(radius))


def determined(nearest: Int[np.ndarray, " states"], observations: np.ndarray, count: int) -> float:
    """The fraction of the variance of states that the place explains, averaged over columns."""
    some = slice(None, None, max(1, len(nearest) // CHOSEN_FROM))
    place, states = nearest[some], np.asarray(observations[some], np.float64)
    states = states - states.mean(axis=0)
    variance = np.square(states).mean(axis=0)
    moving = variance > 1e-12
    if not moving.any():
        return 1.0
    visits = np.maximum(np.bincount(place, minlength=count), 1)
    within = []
    for column in states[:, moving].T:
        mean = np.bincount(place, column, count) / visits
        within.append(np.square(column - mean[place]).mean())
    return float(1.0 - np.mean(np.array(within) / variance[moving]))


def _stride(
    goals: Float[np.ndarray, "states goal"], starts: Int[np.ndarray, " episodes+1"], lag: int
) -> float:
    """The median length of the recorded movements over a number of steps."""
    moved = np.linalg.norm(goals[lag:] - goals[:-lag], axis=1)[same_episode(starts, lag)]
    return float(np.median(moved)) if len(moved) else 0.0


def same_episode(
    starts: Int[np.ndarray, " episodes+1"], lag: int
) -> Bool[np.ndarray, " states-lag"]:
    """For each state, whether the state `lag` rows later belongs to the same episode."""
    episode = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return episode[lag:] == episode[:-lag]


def unbroken(
    goals: Float[np.ndarray, "states goal"], starts: Int[np.ndarray, " episodes+1"]
) -> Int[np.ndarray, " pieces+1"]:
    """The starts of the pieces of episodes between jumps. The map ignores jumps.

    The outcome of a jump is not reliable: a teleporter may lead to several places.
    """
    step = np.linalg.norm(np.diff(goals, axis=0), axis=1)
    step[starts[1:-1] - 1] = 0.0  # from one episode to the next
    moving = step[step > 0.0]
    if not len(moving):
        return starts
    jumps = 1 + np.flatnonzero(step > JUMP * np.quantile(moving, 0.99))
    return np.union1d(starts, jumps)


def straight(
    centres: Float[np.ndarray, "count goal"],
    passage: Bool[np.ndarray, "count count"],
    asked: Bool[np.ndarray, "count count"],
    stride: float,
) -> Bool[np.ndarray, "count count"]:
    """Which of the given pairs are connected by recorded passages along the straight line.

    The line is followed in strides. Each must stay in its place, or lead to a place to or from
    which there is a passage.
    """
    joined = passage | passage.T | np.eye(len(centres), dtype=bool)
    free = np.zeros_like(joined)
    begin, end = np.nonzero(asked)
    way = centres[end] - centres[begin]
    length = np.linalg.norm(way, axis=1)
    # Without movement there are no lines to follow.
    strides = np.ceil(length / stride) if stride > 0 else np.full(len(length), np.inf)
    tree, here, step = cKDTree(centres), begin.copy(), 0
    going = np.flatnonzero(np.isfinite(strides))
    while len(going):
        step += 1
        share = np.minimum(step / np.maximum(strides[going], 1.0), 1.0)[:, None]
        there = tree.query(centres[begin[going]] + share * way[going], workers=-1)[1]
        onward = joined[here[going], there]
        here[going] = there
        arrived = onward & (step >= strides[going])
        free[begin[going[arrived]], end[going[arrived]]] = True
        going = going[onward & ~arrived]
    return free


def nearest_joined(
    centres: Float[np.ndarray, "count goal"], share: Float[np.ndarray, " count"]
) -> Int[np.ndarray, " count"]:
    """Map each place to itself, or to the nearest place connected to a sufficient fraction of
    others.

    Farthest points are often outliers that no other episode visited.
    """
    joined = np.flatnonzero(share >= min(LEAST_JOINED, share.max()))
    return joined[cKDTree(centres[joined]).query(centres)[1]]


def blank_map(places: int, goal_dim: int, state_dim: int) -> Map:
    """A map without paths, with the shapes that `build_map` returns."""
    none = np.full((places, places), NO_WAY, np.int16)
    return Map(
        centres=np.zeros((places, goal_dim), np.float32),
        projection=np.eye(goal_dim, dtype=np.float32),
        phi=np.zeros(goal_dim, np.int32),
        ahead=none,
        told=np.zeros_like(none),
        steps=none,
        seen=np.zeros_like(none),
        states=np.zeros((places, state_dim), np.float32),
        radius=np.zeros(places, np.float32),
    )


def spread(goals: Float[np.ndarray, "n goal"], most: int) -> Int[np.ndarray, " count"]:
    """Farthest-point sampling: each point is the goal farthest from all points chosen before.

    Returns their rows; fewer than `most` if there are fewer distinct goals.
    """
    chosen = [0]
    left = np.square(goals - goals[0]).sum(axis=1)
    while len(chosen) < most and left.max() > 0.0:
        chosen.append(int(left.argmax()))
        left = np.minimum(left, np.square(goals - goals[chosen[-1]]).sum(axis=1))
    return np.array(chosen)


def passage_lags(
    nearest: Int[np.ndarray, " states"],
    starts: Int[np.ndarray, " episodes+1"],
    count: int,
    lags: tuple[int, ...],
    passages: int,
) -> tuple[Table, Table]:
    """The smallest lag with enough recorded passages between two places, and their number.

    Both are 0 if there is none.
    """
    found, times = np.zeros((2, count, count), np.int64)
    for lag in sorted(lags, reverse=True):
        same = same_episode(starts, lag)
        pairs = nearest[:-lag][same] * count + nearest[lag:][same]
        seen = np.bincount(pairs, minlength=count * count).reshape(count, count)
        enough = seen >= passages
        found[enough], times[enough] = lag, seen[enough]
    for table in (found, times):
        np.fill_diagonal(table, 0)
    return found, times


def ways(lag: Table, times: Table, hops: int) -> tuple[Table, Table, Table, Table]:
    """For each pair of places: the waypoint, the steps to it, the steps of the whole path, and how
    often the rarest passage of the path was recorded.

    The waypoint is `hops` passages ahead, or the goal itself (-1) if the path has no more passages
    or does not exist. The number of steps of a path that does not exist is -1.
    """
    count = len(lag)
    cost = np.where(lag > 0, lag + LONG_LEG * lag**1.5, 0.0)
    # Search backwards from every goal: the predecessor in that search is the successor on the path.
    after = dijkstra(csr_matrix(cost.T), return_predecessors=True)[1].T
    here, goal = np.indices((count, count))
    head, told, steps = here, np.zeros_like(lag), np.zeros_like(lag)
    most = np.iinfo(np.int16).max
    times = np.where(np.eye(count, dtype=bool), most, np.minimum(times, most))
    rarest = np.full_like(lag, most)
    reached = here == goal
    possible = reached | (after >= 0)
    hop = 0
    while not (reached | ~possible).all() or hop < hops:
        following = np.where(reached | ~possible, here, after[here, goal])
        steps += lag[here, following]
        rarest = np.minimum(rarest, times[here, following])
        here, hop = following, hop + 1
        reached = here == goal
        if hop == hops:
            head, told = here.copy(), steps.copy()
    ahead = np.where((head == goal) | ~possible, THE_GOAL, head)
    return (
        ahead.astype(np.int16),
        np.where(possible, told, 0).astype(np.int16),
        np.where(possible, np.minimum(steps, most), NO_WAY).astype(np.int16),
        np.where(possible, rarest, 0).astype(np.int16),
    )
