"""Mean and standard deviation of rows that come in pieces."""

import numpy as np
from jaxtyping import ArrayLike, Float

from merlin.types import Moments

ROWS_AT_ONCE = 1 << 18
"""Memory-mapped arrays are read in pieces of so many rows, so that memory stays small."""


class MomentAccumulator:
    """Sums of rows and of their squares in float64, piece by piece.

    `sums` holds the weights, the weighted rows and their weighted squares, so that they can be
    saved and set again. Rows count from `origin`: where that is near the mean, no digits are lost.
    """

    def __init__(self, shape: tuple[int, ...], origin: ArrayLike = 0.0):
        self.origin = np.asarray(origin, np.float64)
        self.sums = np.zeros((3, *shape))

    def add(
        self,
        rows: Float[np.ndarray, "rows *shape"],
        weights: Float[np.ndarray, " rows"] | None = None,
    ) -> None:
        """Take in more rows, each with the weight 1 unless told otherwise."""
        rows = np.asarray(rows, np.float64) - self.origin
        if weights is None:
            count, total, square = len(rows), rows.sum(0), (rows**2).sum(0)
        else:
            count, total, square = (
                weights.sum(),
                np.tensordot(weights, rows, 1),
                np.tensordot(weights, rows**2, 1),
            )
        self.sums += np.stack([np.full(total.shape, count), total, square])

    def moments(self) -> Moments:
        """Mean and deviation of all rows so far, in float64."""
        count, total, square = self.sums
        count = np.where(count > 0, count, 1.0)
        mean = total / count
        std = np.sqrt(np.maximum(square / count - mean**2, 0.0))
        return Moments(self.origin + mean, std)


def moments_of(rows: Float[np.ndarray, "rows dim"]) -> Moments:
    """Mean and deviation per dimension, in pieces so that memory maps stay small.

    The deviation of a dimension that never changes is exactly 0, whatever rounding says.
    """
    first = np.asarray(rows[0], np.float64)
    seen = MomentAccumulator(first.shape, origin=first)
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        seen.add(rows[begin : begin + ROWS_AT_ONCE])
    mean, std, _ = seen.moments()
    std = np.where(std > 1e-6 * np.maximum(1.0, abs(first)), std, 0.0)
    return Moments(mean.astype(np.float32), std.astype(np.float32))
