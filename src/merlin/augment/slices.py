"""Draws rows so that rare ones come as often as common ones.

Random walks hardly leave where they start: what lies far out, and is asked for all the same, is in
one row of a thousand. Here the range of each dimension is cut into equal slices. A draw takes one
of the slices that hold rows, all alike, and in it one of the rows, all alike.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

SLICES = 20
"""Per dimension."""


@dataclass(frozen=True)
class Slices:
    """Rows, slice by slice and dimension by dimension, and where each slice begins and ends."""

    rows: Int[np.ndarray, " sliced"]
    bounds: Int[np.ndarray, " slices_and_end"]

    def draw(self, chance: Float[np.ndarray, "n 2"]) -> Int[np.ndarray, " n"]:
        """Rows by numbers from 0 up to 1: the first of each pair is for the slice."""
        slices = len(self.bounds) - 1
        which = (chance[:, 0] * slices).astype(np.int64)
        first, size = self.bounds[which], np.diff(self.bounds)[which]
        return self.rows[first + (chance[:, 1] * size).astype(np.int64)]


def cut(values: Float[np.ndarray, "rows dim"]) -> Slices:
    """The slices that hold rows of values."""
    low, high = values.min(0), values.max(0)
    width = np.where(high > low, high - low, 1.0) / SLICES
    numbers = np.minimum((values - low) / width, SLICES - 1).astype(np.int32)
    numbers += SLICES * np.arange(values.shape[1], dtype=np.int32)
    flat = numbers.T.reshape(-1)
    order = np.argsort(flat, kind="stable")
    counts = np.bincount(flat)
    bounds = np.concatenate([[0], np.cumsum(counts[counts > 0])])
    return Slices(rows=(order % len(values)).astype(np.int32), bounds=bounds)
