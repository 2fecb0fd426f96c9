"""The base class of augmentations, which turn a dataset into new trajectories."""

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
"""Default upper bound; the paper stitches this many for its largest datasets."""


class Augmented(NamedTuple):
    """New trajectories, and statistics about how they were made."""

    dataset: Dataset
    report: dict[str, Any]


class Augmentation(ABC):
    """Makes synthetic trajectories from recorded ones, reproducibly for a given seed.

    Concrete augmentations are frozen dataclasses of hyperparameters.
    """

    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    """Field values of each preset, keyed by the preset's name."""
    trajectories: int | None
    """How many trajectories to make; None: as many as recorded, at most `MOST_TRAJECTORIES`."""

    def wanted(self, data: Dataset) -> int:
        """Number of trajectories to make for a dataset."""
        if self.trajectories is not None:
            return self.trajectories
        return min(len(data), MOST_TRAJECTORIES)

    @property
    @abstractmethod
    def sees_images(self) -> bool:
        """Whether it accepts images; if not, it receives latents instead."""

    @abstractmethod
    def __call__(self, data: Dataset, *, seed: int, quiet: bool = True) -> Augmented:
        """Make new trajectories. They were not collected for a goal, so they have no desired goals.

        New states that are not in the data achieve the goal given by the columns in the dataset's
        `phi`.
        """


def assemble(
    data: Dataset,
    observations: Any,
    actions: Float[np.ndarray, "actions action"],
    achieved_goals: Float[np.ndarray, "states goal"],
    lengths: Int[np.ndarray, " trajectories"],
    *,
    final_goals: bool,
    drawn_steps: int | None = None,
) -> Dataset:
    """Combine trajectories with the given numbers of states, stored back to back, into a dataset.

    With `final_goals`, the desired goal of each trajectory is the goal its last state achieves.
    `drawn_steps` is the number of new steps at the beginning of each trajectory, if not all are.
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
        drawn_steps=drawn_steps,
    )


def check_settings(
    augmentation: Augmentation, counts: Iterable[int], positive: Iterable[str]
) -> None:
    """Raise an error for counts below 1 and for named fields that are not positive."""
    if min(counts) < 1:
        what = type(augmentation).__name__
        raise MerlinError(f"{what}: sizes, epochs, attempts and trajectories start at 1.")
    for name in positive:
        value = vars(augmentation)[name]
        if not (math.isfinite(value) and value > 0):
            raise MerlinError(f"{name}: {value} is not a positive number.")


def say_if_fewer(made: int, wanted: int, tried: int, *, advice: str, quiet: bool) -> None:
    """Warn on stderr if the attempts ran out before enough trajectories were made."""
    if made < wanted and not quiet:
        message = f"only {made} of {wanted} new trajectories after {tried} attempts; {advice}"
        print(message, file=sys.stderr)


def require_vectors(data: Dataset, who: str) -> None:
    """Raise an error if the observations are images rather than latents."""
    if data.has_images:
        raise MerlinError(f"observations: are images; {who} need vectors, such as latents.")


def find_phi(data: Dataset) -> tuple[int, ...]:
    """The state columns that form the achieved goal: as declared, or as found in the data."""
    if data.phi is not None:
        return data.phi
    columns = []
    for goal in data.achieved_goals.T:
        # A few rows rule out almost every column; the remaining ones are compared in full.
        some = slice(None, None, max(1, len(goal) // 64))
        close = np.flatnonzero((data.observations[some] == goal[some, None]).all(0))
        same = next((c for c in close if np.array_equal(data.observations[:, c], goal)), None)
        if same is None:
            raise MerlinError(
                "phi: the achieved goals are not columns of the states, so the goal of a new state "
                "is unknown; name the task or the columns, or use a method without phi."
            )
        columns.append(int(same))
    return tuple(columns)
