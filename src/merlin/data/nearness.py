"""How near to a goal counts as reached: the task's tolerance, or a scale that the data sets."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from merlin.data.dataset import Dataset

NEAR_QUANTILE = 0.95
"""Without a tolerance, near means within this quantile of the length of a recorded step."""


@dataclass(frozen=True)
class Nearness:
    """A goal is near within a radius, after each dimension is divided by its scale."""

    scale: Float[np.ndarray, " goal"]
    radius: float
    why: str  # where the radius comes from

    def distances(
        self, goals: Float[np.ndarray, "n goal"], goal: Float[np.ndarray, " goal"]
    ) -> Float[np.ndarray, " n"]:
        return np.linalg.norm((goals - goal) / self.scale, axis=1)

    def near(
        self, goals: Float[np.ndarray, "n goal"], goal: Float[np.ndarray, " goal"]
    ) -> Bool[np.ndarray, " n"]:
        return self.distances(goals, goal) <= self.radius


def nearness(data: Dataset, tolerance: float | None) -> Nearness:
    """Use the tolerance, or the distance that achieved goals move within a step."""
    goals = np.asarray(data.achieved_goals)
    if tolerance is not None:
        return Nearness(np.ones(data.goal_dim), tolerance, "the distance that counts as reached")
    std = goals.std(axis=0, dtype=np.float64)
    scale = np.where(std > 1e-6, std, 1.0)
    moved = np.linalg.norm(np.diff(goals, axis=0) / scale, axis=1)
    within = np.ones(len(moved), bool)
    within[data.starts[1:-1] - 1] = False  # not a step: it leads to the next episode
    steps = moved[within & (moved > 0)]
    radius = float(np.quantile(steps, NEAR_QUANTILE)) if len(steps) else 0.0
    why = f"{NEAR_QUANTILE:.0%} of recorded steps are shorter, in standard deviations of goals"
    return Nearness(scale, radius, why)
