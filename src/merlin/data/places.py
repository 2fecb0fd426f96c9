"""A map of the data: places, passages between them that were seen, and shortest ways.

Places are achieved goals that cover the data, each as far as possible from those before it. Every
state belongs to the nearest one. A passage leads from one place to another if episodes went from
the one to the other within some steps, and did so several times. Nothing is inferred: two places on
either side of a wall are close, but nobody went from the one to the other.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from merlin.data.dataset import Dataset
from merlin.types import Map

CHOSEN_FROM = 100_000
"""Places are chosen among so many states, evenly spaced over the data."""
STATES_PER_PLACE = 50
"""Small data gets fewer places, so that passages between them are seen several times."""
MOST_PLACES = 10_000
"""The tables have the square of it."""
LEAST_JOINED = 0.02
"""A place with ways to or from fewer of the others counts as its nearest neighbour with more."""
LONG_LEG = 0.15
"""What lag^1.5 adds to the cost of a passage: short ones are followed more reliably."""
NO_WAY, THE_GOAL = -1, -1


def build_map(
    data: Dataset,
    phi: tuple[int, ...],
    *,
    places: int,
    lags: tuple[int, ...],
    passages: int,
    hops: int,
) -> Map:
    """The map of a dataset, with tables of what to head for from each place to each other.

    `phi` says which numbers of a state are its goal. The tables always have `places` rows: small
    data has fewer places, of which the last is repeated.
    """
    goals = np.asarray(data.achieved_goals)
    most = max(1, min(places, len(goals) // STATES_PER_PLACE))
    centres = spread(goals[:: max(1, len(goals) // CHOSEN_FROM)], most)
    count = len(centres)
    nearest = cKDTree(centres).query(goals)[1]
    lag = passage_lags(nearest, data.starts, count, lags, passages)
    ahead, told, steps = ways(lag, hops)
    ahead_of, behind = ((steps >= 0).sum(axis) - 1 for axis in (1, 0))
    begin, end = (nearest_joined(centres, others / count) for others in (ahead_of, behind))
    rows = np.minimum(np.arange(places), count - 1)
    tables = (table[np.ix_(begin[rows], end[rows])] for table in (ahead, told, steps))
    return Map(centres[rows], np.array(phi, np.int32), *tables)


def nearest_joined(
    centres: Float[np.ndarray, "count goal"], share: Float[np.ndarray, " count"]
) -> Int[np.ndarray, " count"]:
    """For each place itself, or the nearest that has ways to a larger share of all others.

    The farthest points are often freak states, to or from which nobody else went.
    """
    joined = np.flatnonzero(share >= min(LEAST_JOINED, share.max()))
    return joined[cKDTree(centres[joined]).query(centres)[1]]


def blank_map(places: int, goal_dim: int) -> Map:
    """A map without any way, of the shapes that `build_map` gives."""
    none = np.full((places, places), NO_WAY, np.int16)
    return Map(
        centres=np.zeros((places, goal_dim), np.float32),
        phi=np.zeros(goal_dim, np.int32),
        ahead=none,
        told=np.zeros_like(none),
        steps=none,
    )


def spread(goals: Float[np.ndarray, "n goal"], most: int) -> Float[np.ndarray, "count goal"]:
    """Farthest points: each is the goal that is farthest from all that were chosen before.

    There are fewer than `most` if there are fewer different goals.
    """
    chosen = [goals[0]]
    left = np.square(goals - chosen[0]).sum(axis=1)
    while len(chosen) < most and left.max() > 0.0:
        chosen.append(goals[left.argmax()])
        left = np.minimum(left, np.square(goals - chosen[-1]).sum(axis=1))
    return np.stack(chosen)


def passage_lags(
    nearest: Int[np.ndarray, " states"],
    starts: Int[np.ndarray, " episodes+1"],
    count: int,
    lags: tuple[int, ...],
    passages: int,
) -> Int[np.ndarray, "count count"]:
    """The fewest steps in which so many passages were seen between two places; 0: in none."""
    episode = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    found = np.zeros((count, count), np.int64)
    for lag in sorted(lags, reverse=True):
        same = episode[lag:] == episode[:-lag]
        pairs = nearest[:-lag][same] * count + nearest[lag:][same]
        seen = np.bincount(pairs, minlength=count * count).reshape(count, count)
        found[seen >= passages] = lag
    np.fill_diagonal(found, 0)
    return found


def ways(
    lag: Int[np.ndarray, "count count"], hops: int
) -> tuple[
    Int[np.ndarray, "count count"], Int[np.ndarray, "count count"], Int[np.ndarray, "count count"]
]:
    """For each pair of places: where to head, in how many steps, and the steps of the whole way.

    One heads for the place that is `hops` passages ahead, or for the goal itself (-1) if the way
    has no more passages, or if there is no way. The whole way has -1 steps if there is none.
    """
    count = len(lag)
    cost = np.where(lag > 0, lag + LONG_LEG * lag**1.5, 0.0)
    # Backwards from every goal: what comes before a place on that way is what follows it on ours.
    after = dijkstra(csr_matrix(cost.T), return_predecessors=True)[1].T
    here, goal = np.indices((count, count))
    head, told, steps = here, np.zeros_like(lag), np.zeros_like(lag)
    reached = here == goal
    possible = reached | (after >= 0)
    hop = 0
    while not (reached | ~possible).all() or hop < hops:
        following = np.where(reached | ~possible, here, after[here, goal])
        steps += lag[here, following]
        here, hop = following, hop + 1
        reached = here == goal
        if hop == hops:
            head, told = here.copy(), steps.copy()
    ahead = np.where((head == goal) | ~possible, THE_GOAL, head)
    most = np.iinfo(np.int16).max
    return (
        ahead.astype(np.int16),
        np.where(possible, told, 0).astype(np.int16),
        np.where(possible, np.minimum(steps, most), NO_WAY).astype(np.int16),
    )
