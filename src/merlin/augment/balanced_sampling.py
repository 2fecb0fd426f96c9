"""Draws rows so that rare ones come as often as common ones.

Random walks hardly leave where they start: what lies far out, and is asked for all the same, is in
one row of a thousand. Here the range of each dimension is cut into equal bins. A draw takes one of
the bins that hold rows, all alike, and in it one of the rows, all alike.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

BINS = 20
"""Per dimension."""


@dataclass(frozen=True)
class BalancedSampler:
    """Rows, bin by bin and dimension by dimension, and where each bin begins and ends."""

    rows: Int[np.ndarray, " binned"]
    bounds: Int[np.ndarray, " bins_and_end"]

    def draw(self, chance: Float[np.ndarray, "n 2"]) -> Int[np.ndarray, " n"]:
        """Rows by numbers from 0 up to 1: the first of each pair is for the bin."""
        which = (chance[:, 0] * (len(self.bounds) - 1)).astype(np.int64)
        first, size = self.bounds[which], np.diff(self.bounds)[which]
        return self.rows[first + (chance[:, 1] * size).astype(np.int64)]


def balanced_sampler(values: Float[np.ndarray, "rows dim"]) -> BalancedSampler:
    """A sampler of rows by the bins that their values are in."""
    low, high = values.min(0), values.max(0)
    width = np.where(high > low, high - low, 1.0) / BINS
    numbers = np.minimum((values - low) / width, BINS - 1).astype(np.int32)
    numbers += BINS * np.arange(values.shape[1], dtype=np.int32)
    flat = numbers.T.reshape(-1)
    order = np.argsort(flat, kind="stable")
    counts = np.bincount(flat)
    bounds = np.concatenate([[0], np.cumsum(counts[counts > 0])])
    return BalancedSampler(rows=(order % len(values)).astype(np.int32), bounds=bounds)
