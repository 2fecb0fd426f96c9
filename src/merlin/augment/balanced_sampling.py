"""Sample rows so that rare values are drawn as often as common ones.

Random walks rarely get far from their start, so distant states may make up one row in a thousand,
although they are needed as goals. The range of each dimension is divided into equal bins. A draw
picks a non-empty bin uniformly, and then a row of that bin uniformly.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

BINS = 20
"""Per dimension."""


@dataclass(frozen=True)
class BalancedSampler:
    """Rows sorted by bin for each dimension, with the start and end of each bin."""

    rows: Int[np.ndarray, " binned"]
    bounds: Int[np.ndarray, " bins_and_end"]

    def draw(self, chance: Float[np.ndarray, "n 2"]) -> Int[np.ndarray, " n"]:
        """Pick rows from pairs of numbers in [0, 1): one selects the bin, the other the row."""
        which = (chance[:, 0] * (len(self.bounds) - 1)).astype(np.int64)
        first, size = self.bounds[which], np.diff(self.bounds)[which]
        return self.rows[first + (chance[:, 1] * size).astype(np.int64)]


def balanced_sampler(values: Float[np.ndarray, "rows dim"]) -> BalancedSampler:
    """Build a sampler that bins rows by their values."""
    low, high = values.min(0), values.max(0)
    width = np.where(high > low, high - low, 1.0) / BINS
    numbers = np.minimum((values - low) / width, BINS - 1).astype(np.int32)
    numbers += BINS * np.arange(values.shape[1], dtype=np.int32)
    flat = numbers.T.reshape(-1)
    order = np.argsort(flat, kind="stable")
    counts = np.bincount(flat)
    bounds = np.concatenate([[0], np.cumsum(counts[counts > 0])])
    return BalancedSampler(rows=(order % len(values)).astype(np.int32), bounds=bounds)
