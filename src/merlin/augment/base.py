"""What an augmentation is: a frozen dataclass of hyperparameters, from a dataset to new data."""

import dataclasses
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from merlin.data.dataset import Dataset
from merlin.errors import MerlinError

MOST_TRAJECTORIES = 10_000
"""So many are made unless asked otherwise: what the paper stitches for its largest datasets."""


class Augmented(NamedTuple):
    """New trajectories, and plain numbers that say how they came about."""

    dataset: Dataset
    report: dict[str, Any]


class Augmentation(ABC):
    """Makes synthetic trajectories from recorded ones; the same seed makes the same ones.

    Those that can be used derive from it as frozen dataclasses of hyperparameters.
    """

    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    """Named sets of values for the fields."""
    trajectories: int | None
    """How many to make; None: as many as are recorded, at most `MOST_TRAJECTORIES`."""

    def wanted(self, data: Dataset) -> int:
        """How many trajectories to make of a dataset."""
        if self.trajectories is not None:
            return self.trajectories
        return min(len(data), MOST_TRAJECTORIES)

    @property
    @abstractmethod
    def sees_images(self) -> bool:
        """Whether it takes images; if not, it is given latents in their place."""

    @abstractmethod
    def __call__(self, data: Dataset, *, seed: int, quiet: bool = True) -> Augmented:
        """New trajectories. Nobody meant them to reach a goal, so they have no desired goals.

        Where new states are not in the data, they achieve the part of them that the dataset's
        `phi` names.
        """


def assemble(
    data: Dataset,
    observations: Any,
    actions: Float[np.ndarray, "actions action"],
    achieved_goals: Float[np.ndarray, "states goal"],
    lengths: Int[np.ndarray, " trajectories"],
    *,
    final_goals: bool,
) -> Dataset:
    """Trajectories of so many states each, back to back, as a dataset beside the recorded one.

    With `final_goals` the desired goal of each is what its last state achieves.
    """
    ends = np.cumsum(lengths) - 1
    return dataclasses.replace(
        data,
        observations=observations,
        actions=actions,
        achieved_goals=achieved_goals,
        desired_goals=achieved_goals[ends] if final_goals else None,
        starts=np.concatenate([[0], ends + 1]).astype(np.int64),
        provenance={},
        source=None,
    )


def check_settings(
    augmentation: Augmentation, counts: Iterable[int], positive: Iterable[str]
) -> None:
    """Refuse counts below 1 and fields, by name, that are no number above 0."""
    if min(counts) < 1:
        what = type(augmentation).__name__
        raise MerlinError(f"{what}: sizes, epochs, attempts and trajectories start at 1.")
    for name in positive:
        value = vars(augmentation)[name]
        if not (math.isfinite(value) and value > 0):
            raise MerlinError(f"{name}: {value} is not a positive number.")


def say_if_fewer(made: int, wanted: int, tried: int, *, advice: str, quiet: bool) -> None:
    """Say on stderr that attempts ran out before there were enough."""
    if made < wanted and not quiet:
        message = f"only {made} of {wanted} new trajectories came of {tried} attempts; {advice}"
        print(message, file=sys.stderr)


def require_vectors(data: Dataset, who: str) -> None:
    """Images must have been made latents before."""
    if data.has_images:
        raise MerlinError(f"observations: are images; {who} take their latents.")


def find_phi(data: Dataset) -> tuple[int, ...]:
    """The columns of the states that are their achieved goals: as known, or as the data shows."""
    if data.phi is not None:
        return data.phi
    columns = []
    for goal in data.achieved_goals.T:
        # A few rows rule out almost every column; only what is left is compared in full.
        some = slice(None, None, max(1, len(goal) // 64))
        close = np.flatnonzero((data.observations[some] == goal[some, None]).all(0))
        same = next((c for c in close if np.array_equal(data.observations[:, c], goal)), None)
        if same is None:
            raise MerlinError(
                "phi: the achieved goals are no part of the states, so it is not known what goal "
                "a state achieves; name the task or the part, or use a method without it."
            )
        columns.append(int(same))
    return tuple(columns)
