"""What an augmentation is: a frozen dataclass of hyperparameters, from a dataset to new data."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from merlin.data.dataset import ROWS_AT_ONCE, Dataset
from merlin.errors import MerlinError

Phi = Callable[[np.ndarray], np.ndarray]
"""The goals that states achieve, over any leading axes."""

MOST_TRAJECTORIES = 10_000
"""So many are made unless asked otherwise: what the paper stitches for its largest datasets."""


class Augmented(NamedTuple):
    """New trajectories, and plain numbers that say how they came about."""

    dataset: Dataset
    report: dict[str, Any]


@runtime_checkable
class Augmentation(Protocol):
    """Makes synthetic trajectories from recorded ones; the same seed makes the same ones.

    The desired goal of a new trajectory is what its last state achieves. `phi` is needed only by
    augmentations whose states are not in the data; without it `find_phi` looks for one.
    """

    def __hash__(self) -> int: ...

    @property
    def sees_images(self) -> bool:
        """Whether it takes images; if not, it is given latents in their place."""
        ...

    def __call__(
        self, data: Dataset, *, seed: int, phi: Phi | None = None, quiet: bool = True
    ) -> Augmented: ...


def how_many(asked: int | None, data: Dataset) -> int:
    """As many new trajectories as there are old ones, within reason."""
    return min(len(data), MOST_TRAJECTORIES) if asked is None else asked


def say_if_fewer(made: int, wanted: int, tried: int, *, advice: str, quiet: bool) -> None:
    """Tell whoever watches that attempts ran out before there were enough."""
    if made < wanted and not quiet:
        message = f"only {made} of {wanted} new trajectories came of {tried} attempts; {advice}"
        print(message, file=sys.stderr)


def require_vectors(data: Dataset, who: str) -> None:
    """Images must have been made latents before."""
    if data.has_images:
        raise MerlinError(f"observations: are images; {who} take their latents.")


def moments(rows: np.ndarray) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
    """Mean and deviation per dimension, in pieces so that memory maps stay small.

    The deviation of a dimension that never changes is exactly 0, whatever rounding says.
    """
    total, square = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    first = np.asarray(rows[0], np.float64)  # differences from it keep their digits
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        piece = np.asarray(rows[begin : begin + ROWS_AT_ONCE], np.float64) - first
        total += piece.sum(0)
        square += (piece**2).sum(0)
    mean = total / len(rows)
    std = np.sqrt(np.maximum(square / len(rows) - mean**2, 0.0))
    std = np.where(std > 1e-6 * np.maximum(1.0, abs(first)), std, 0.0)
    return (first + mean).astype(np.float32), std.astype(np.float32)


def divisor(std: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " dim"]:
    """What to divide by to standardise: dimensions that never change become zeros."""
    return np.where(std > 0, std, np.float32(1.0))


def find_phi(data: Dataset) -> Phi:
    """phi as the data shows it: the columns of the states that are their achieved goals."""
    columns = []
    for goal in data.achieved_goals.T:
        # A few rows rule out almost every column; only what is left is compared in full.
        some = slice(None, None, max(1, len(goal) // 64))
        close = np.flatnonzero((data.observations[some] == goal[some, None]).all(0))
        same = next((c for c in close if np.array_equal(data.observations[:, c], goal)), None)
        if same is None:
            raise MerlinError(
                "phi: the achieved goals are no part of the states, so it is not known what goals "
                "model-made states achieve; name the --task, or augment by stitching."
            )
        columns.append(int(same))
    return lambda states: states[..., columns]
