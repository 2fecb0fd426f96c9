"""Mean and standard deviation of rows that arrive in chunks."""

import numpy as np
from jaxtyping import ArrayLike, Float

from merlin.types import Moments

ROWS_AT_ONCE = 1 << 18
"""Rows per chunk of memory-mapped arrays, to limit memory use."""


class MomentAccumulator:
    """Accumulates sums of rows and of their squares in float64.

    `sums` holds the total weight, the weighted rows and their weighted squares, so that they can be
    saved and restored. Rows are relative to `origin`; an origin near the mean avoids cancellation.
    """

    def __init__(self, shape: tuple[int, ...], origin: ArrayLike = 0.0):
        self.origin = np.asarray(origin, np.float64)
        self.sums = np.zeros((3, *shape))

    def add(
        self,
        rows: Float[np.ndarray, "rows *shape"],
        weights: Float[np.ndarray, " rows"] | None = None,
    ) -> None:
        """Add rows, with weight 1 by default."""
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
        """Mean and standard deviation of all rows so far, in float64."""
        count, total, square = self.sums
        count = np.where(count > 0, count, 1.0)
        mean = total / count
        std = np.sqrt(np.maximum(square / count - mean**2, 0.0))
        return Moments(self.origin + mean, std)


def moments_of(rows: Float[np.ndarray, "rows dim"]) -> Moments:
    """Mean and standard deviation per dimension, in chunks so that memory maps stay small.

    The standard deviation of a constant dimension is exactly 0, regardless of rounding.
    """
    first = np.asarray(rows[0], np.float64)
    seen = MomentAccumulator(first.shape, origin=first)
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        seen.add(rows[begin : begin + ROWS_AT_ONCE])
    mean, std, _ = seen.moments()
    std = np.where(std > 1e-6 * np.maximum(1.0, abs(first)), std, 0.0)
    return Moments(mean.astype(np.float32), std.astype(np.float32))
