"""Hold out episodes, so that policies are assessed on data they were not trained on."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Int

from merlin.data.dataset import Dataset
from merlin.data.images import Selection
from merlin.errors import MerlinError

SPLIT_SEED = 0x5EED
"""Fixed, so that all seeds and methods of a dataset are assessed on the same episodes."""


def hold_out(data: Dataset, share: float) -> tuple[Dataset, Dataset | None]:
    """Split off a fraction of the episodes, at least one, that is not trained on."""
    if not 0 <= share < 1:
        raise MerlinError(f"held_out: {share:g} is not a fraction of at least 0 and below 1.")
    if share == 0:
        return data, None
    count = max(1, round(share * len(data)))
    if count >= len(data):
        raise MerlinError(
            f"held_out: {share:g} of {len(data)} episode(s) leaves none to train on; set it to 0."
        )
    order = np.random.default_rng(SPLIT_SEED).permutation(len(data))
    return take(data, np.sort(order[count:])), take(data, np.sort(order[:count]))


def take(data: Dataset, episodes: Sequence[int] | Int[np.ndarray, " episodes"]) -> Dataset:
    """Select episodes in the given order. Images are read on demand."""
    chosen = np.asarray(episodes, np.int64)
    begins, lengths = data.starts[chosen], data.lengths[chosen]
    rows = _ranges(begins, lengths)
    seen, same = data.observations, data.achieved_goals is data.observations
    observations: Any = Selection(seen, rows) if data.has_images else np.asarray(seen[rows])
    desired = data.desired_goals
    return replace(
        data,
        observations=observations,
        actions=np.asarray(data.actions[_ranges(begins - chosen, lengths - 1)]),
        achieved_goals=observations if same else np.asarray(data.achieved_goals[rows]),
        desired_goals=None if desired is None else np.asarray(desired[chosen]),
        starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
    )


def _ranges(
    begins: Int[np.ndarray, " n"], lengths: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " rows"]:
    """Concatenated ranges, given their starts and lengths."""
    offsets = np.repeat(begins - np.cumsum(lengths) + lengths, lengths)
    return offsets + np.arange(lengths.sum())
