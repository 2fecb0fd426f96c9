"""Statistics over episodes and seeds."""

from typing import Any

import numpy as np
from jaxtyping import Float

RESAMPLES = 2000


def bootstrap_interval(
    scores: Float[np.ndarray, "seeds episodes"], *, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval of the mean: seeds are resampled, then the episodes of each.

    With one seed only the episodes vary, so the interval then says nothing about training.
    """
    seeds, episodes = scores.shape
    rng = np.random.default_rng(seed)
    means = np.empty(RESAMPLES)
    for r in range(RESAMPLES):
        chosen = rng.integers(seeds, size=(seeds, 1))
        means[r] = scores[chosen, rng.integers(episodes, size=(seeds, episodes))].mean()
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(low), float(high)


def summary(scores: Float[np.ndarray, "seeds episodes"]) -> dict[str, Any]:
    """Mean and 95 % interval, as every report of ours prints them."""
    return {"mean": float(scores.mean()), "ci95": list(bootstrap_interval(scores))}
