"""Pairs of a recorded state and a goal, with the number of steps until the goal was reached.

The steps are those to the first later state of the episode within a tolerance of the goal. They are
censored where the episode ends, or after `limit` steps: then it is only known that the goal was not
reached until there.

Goals are of three kinds:

    later     achieved u = 1 to `limit` steps later in the same episode, uniformly;
    recorded  achieved by a random state of the dataset;
    anywhere  uniform in a box around the achieved goals, so that many are outside the data.

The state of a later goal is drawn among those with at least u steps left. Those of the other goals
are any states, so that late steps are observed less often than early ones. This is made up for by
weights: if a fraction G(k) of the states has k steps left, step k counts 1 / G(k) times. Without
them, goals would look closer than they are, because states near the ends of episodes have near
later goals only.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from merlin.data.dataset import Dataset

RECORDED, ANYWHERE = 0.4, 0.15
"""Fractions of recorded goals and of goals anywhere; the others are later ones."""
MARGIN = 0.25
"""The box extends beyond the achieved goals by this fraction of their range, on every side."""
ROWS_AT_ONCE = 1 << 15


class PassageTimes(NamedTuple):
    """States, goals, and when the goals were reached."""

    row: Int[np.ndarray, " pairs"]  # of the state in the dataset
    goal: Float[np.ndarray, "pairs goal"]
    later: Bool[np.ndarray, " pairs"]  # whether the goal is of the same episode
    steps: Int[np.ndarray, " pairs"]  # to the goal, or the number of steps without reaching it
    reached: Bool[np.ndarray, " pairs"]
    seen: Int[np.ndarray, " pairs"]  # steps to the end of the episode, at most the limit


def draw_passage_times(
    data: Dataset, count: int, *, limit: int, tolerance: float, seed: int = 0
) -> PassageTimes:
    """Draw pairs of states and goals."""
    rng = np.random.default_rng(seed)
    achieved, left = np.asarray(data.achieved_goals), steps_left(data)
    kind = rng.random(count)
    anywhere, later = kind < ANYWHERE, kind >= ANYWHERE + RECORDED
    offset = rng.integers(1, limit + 1, count)
    order = np.argsort(-left, kind="stable")
    enough = np.searchsorted(-left[order], -np.where(later, offset, 1), side="right")
    row = order[(rng.random(count) * enough).astype(np.int64)]
    source = np.where(later, row + offset, rng.integers(len(achieved), size=count))
    goal = achieved[source].copy()
    low, high = achieved.min(axis=0), achieved.max(axis=0)
    room = MARGIN * (high - low)
    goal[anywhere] = rng.uniform(low - room, high + room, (anywhere.sum(), goal.shape[1]))
    seen = np.minimum(left[row], limit)
    steps, reached = _first_passages(achieved, row, goal, seen, limit, tolerance)
    return PassageTimes(row, goal, later, steps, reached, seen)


def steps_left(data: Dataset) -> Int[np.ndarray, " states"]:
    """The number of steps from each state to the end of its episode."""
    starts = np.asarray(data.starts)
    return np.repeat(starts[1:] - 1, np.diff(starts)) - np.arange(starts[-1])


def step_weights(data: Dataset, limit: int) -> Float[np.ndarray, " limit"]:
    """1 / G(k) for k = 1, 2, ..., relative to the states with a step left."""
    left = np.sort(steps_left(data))
    enough = len(left) - np.searchsorted(left, np.arange(1, limit + 1))
    return (enough[0] / enough).astype(np.float32)


def _first_passages(
    achieved: Float[np.ndarray, "states goal"],
    row: Int[np.ndarray, " pairs"],
    goal: Float[np.ndarray, "pairs goal"],
    seen: Int[np.ndarray, " pairs"],
    limit: int,
    tolerance: float,
) -> tuple[Int[np.ndarray, " pairs"], Bool[np.ndarray, " pairs"]]:
    """The steps to the first state within the tolerance, and whether there is one."""
    steps, reached = seen.copy(), np.zeros(len(row), bool)
    ahead = np.arange(1, limit + 1)
    for begin in range(0, len(row), ROWS_AT_ONCE):
        own = slice(begin, begin + ROWS_AT_ONCE)
        at = np.minimum(row[own, None] + ahead, len(achieved) - 1)
        off = achieved[at] - goal[own, None]
        there = (np.square(off).sum(axis=-1) <= tolerance**2) & (ahead <= seen[own, None])
        reached[own] = there.any(axis=1)
        steps[own] = np.where(reached[own], 1 + there.argmax(axis=1), seen[own])
    return steps, reached


class Calibration(NamedTuple):
    """Stated probabilities and observed frequencies, in bins of the stated probability."""

    stated: Float[np.ndarray, " bins"]
    true: Float[np.ndarray, " bins"]
    pairs: Int[np.ndarray, " bins"]

    def error(self, least: int) -> tuple[float, float]:
        """The mean error over all pairs, and the largest over bins with at least `least` pairs."""
        off, some = np.abs(self.stated - self.true), self.pairs > 0
        mean = np.average(off[some], weights=self.pairs[some])
        return float(mean), float(off[self.pairs >= least].max(initial=0.0))


def calibration(
    pairs: PassageTimes,
    stated: Float[np.ndarray, " pairs"],
    steps: int,
    weight: float,
    bins: int = 10,
) -> Calibration:
    """Compare stated probabilities with how often goals were reached within `steps` steps.

    Pairs with fewer steps left in their episode are excluded, unless their goal is a later one,
    which is always reached. The other pairs have weight `weight` to compensate (see
    `step_weights`).
    """
    known = pairs.later | (pairs.seen >= steps)
    said, was = stated[known], (pairs.reached & (pairs.steps <= steps))[known]
    counts = np.where(pairs.later[known], 1.0, weight)
    bin = np.minimum((bins * said).astype(np.int64), bins - 1)
    total = np.maximum(np.bincount(bin, counts, bins), 1e-12)
    return Calibration(
        np.bincount(bin, counts * said, bins) / total,
        np.bincount(bin, counts * was, bins) / total,
        np.bincount(bin, minlength=bins),
    )
