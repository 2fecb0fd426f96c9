"""How well a dataset covers a goal: which episodes pass near it, and after how many steps."""

import numpy as np
from jaxtyping import Float, Int

from merlin.data import Dataset
from merlin.data.nearness import Nearness

MOST_DISTANCES = 2e8
REGIONS = 200
"""The number of achieved goals, at most, for which passing episodes are counted."""
STILL = 1e-3
"""An action is constant if its deviation is below this share of half its range."""


def passing(
    data: Dataset, goal: Float[np.ndarray, " goal"], close: Nearness
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Episodes that pass near a goal, and the step at which each first does."""
    rows = np.flatnonzero(close.near(data.achieved_goals, goal))
    episodes, first = np.unique(
        np.searchsorted(data.starts, rows, side="right") - 1, return_index=True
    )
    return episodes, rows[first] - data.starts[episodes]


def spread(
    goals: Float[np.ndarray, "n goal"], count: int, scale: Float[np.ndarray, " goal"]
) -> Float[np.ndarray, "m goal"]:
    """Farthest-point sampling, starting from the goal closest to the mean."""
    scaled = goals / scale
    chosen = [int(np.argmin(np.linalg.norm(scaled - scaled.mean(0), axis=1)))]
    apart = np.linalg.norm(scaled - scaled[chosen[0]], axis=1)
    while len(chosen) < min(count, len(goals)) and apart.max() > 0:
        chosen.append(int(apart.argmax()))
        apart = np.minimum(apart, np.linalg.norm(scaled - scaled[chosen[-1]], axis=1))
    return goals[chosen]


def lacks(data: Dataset, close: Nearness, seed: int = 0) -> list[str]:
    """What the data lacks, one sentence each."""
    found = [*_lonely(data, close, seed), *_constant(data)]
    if data.desired_goals is not None:
        missed = sum(
            not close.near(data.achieved_goals[begin:end], goal).any()
            for begin, end, goal in zip(
                data.starts[:-1], data.starts[1:], data.desired_goals, strict=True
            )
        )
        if missed:
            share = missed / len(data)
            found.append(
                f"{missed} of {len(data)} episodes ({share:.0%}) never come near their desired goal"
            )
    return found


def _lonely(data: Dataset, close: Nearness, seed: int) -> list[str]:
    """Regions that only one episode visits."""
    if len(data) == 1:
        return ["there is only one training episode"]
    size = data.achieved_goals.size
    count = int(min(REGIONS, len(data.achieved_goals), max(10, MOST_DISTANCES / size)))
    rows = np.random.default_rng(seed).permutation(len(data.achieved_goals))[:count]
    some = data.achieved_goals[rows]
    alone = np.array([len(passing(data, goal, close)[0]) == 1 for goal in some])
    if not alone.any():
        return []
    places = "; ".join(in_words(goal) for goal in spread(some[alone], 3, close.scale))
    return [f"{alone.mean():.0%} of achieved goals are visited by only one episode, e.g. {places}"]


def _constant(data: Dataset) -> list[str]:
    half = (np.asarray(data.action_high) - np.asarray(data.action_low)) / 2
    found = []
    for dim in range(data.action_dim):
        values, counts = np.unique(data.actions[:, dim], return_counts=True)
        share = counts.max() / len(data.actions)
        if data.actions[:, dim].std() < STILL * half[dim]:
            found.append(f"action {dim} never changes")
        elif share > 0.5:
            value = values[counts.argmax()]
            found.append(f"action {dim} is {value:.4g} in {share:.0%} of the steps")
    return found


def in_words(goal: Float[np.ndarray, " goal"]) -> str:
    """A goal, shortened to fit on a line."""
    more = ", ..." if len(goal) > 6 else ""
    return f"({', '.join(f'{x:.3g}' for x in goal[:6])}{more})"
