"""State the number of steps to a goal, and check the statements on held-out episodes.

A hazard model of the training episodes (`nets.hazard`) gives the probability that recorded
behaviour gets near a goal within 1, 2, ... steps. The stated number of steps is where it passes one
half. The model looks ahead a limited number of steps; goals beyond are stated as farther, and count
as one step more than the limit.
"""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int
from scipy.stats import spearmanr

from merlin.data import Dataset
from merlin.data.nearness import Nearness
from merlin.data.passage_times import (
    PassageTimes,
    calibration,
    draw_passage_times,
    step_weights,
)
from merlin.evaluation.statistics import mean_over_episodes
from merlin.learners.distance import fit_hazard, local_limit
from merlin.nets.hazard import Hazard

MOST_AHEAD = 50
"""The model looks at most this many steps ahead."""
PAIRS, ROWS = 20_000, 4096
"""Number of held-out pairs of a state and a goal, and pairs per call of the model."""
PARTS = (5, 2, 1)
"""Probabilities are checked for a fifth, half and all of the steps that the model looks ahead."""
BINS = 5


@dataclass(frozen=True)
class StatedSteps:
    """A hazard model on states that include what they achieve, with goals in units of the scale."""

    hazard: Hazard
    close: Nearness
    limit: int  # steps that the model looks ahead

    def within(
        self,
        observations: Float[np.ndarray, "rows state"],
        achieved_goals: Float[np.ndarray, "rows goal"],
        goals: Float[np.ndarray, "rows goal"],
    ) -> Float[np.ndarray, "rows limit"]:
        """The probabilities of getting near each goal within 1, 2, ... steps."""
        achieved, wanted = (
            (x / self.close.scale).astype(np.float32) for x in (achieved_goals, goals)
        )
        return _within(self.hazard, np.concatenate([observations, achieved], axis=1), wanted)


def fit_steps(
    data: Dataset, held_out: Dataset, close: Nearness, *, quiet: bool = True
) -> StatedSteps:
    """Fit the model to the training episodes; held-out ones only limit how far it looks ahead."""
    longest = min(part.lengths.max() for part in (data, held_out))
    limit = local_limit(int(longest) - 1, MOST_AHEAD)
    scaled = _scaled(data, close)
    assert scaled.phi is not None
    fitted = fit_hazard(scaled, scaled.phi, limit=limit, tolerance=close.radius, quiet=quiet)
    return StatedSteps(fitted, close, limit)


def check_steps(stated: StatedSteps, held_out: Dataset, seed: int = 0) -> dict[str, Any]:
    """Compare the model's statements with held-out episodes.

    Goals are of the same episode, of any episode, and anywhere. Numbers of steps are compared for
    states with as many steps left as the model looks ahead, so that the true one is known.
    """
    limit, scaled = stated.limit, _scaled(held_out, stated.close)
    pairs = draw_passage_times(scaled, PAIRS, limit=limit, tolerance=stated.close.radius, seed=seed)
    within = _within(stated.hazard, scaled.observations[pairs.row], pairs.goal)
    weights = step_weights(held_out, limit)
    known = pairs.seen == limit
    true = np.where(pairs.reached, pairs.steps, limit + 1)[known].astype(np.float64)
    median = stated_steps(within[known])
    episode = np.searchsorted(held_out.starts, pairs.row[known], side="right") - 1
    order = np.argsort(median, kind="stable")
    varies = np.ptp(median) > 0 and np.ptp(true) > 0
    farther = median > limit
    return {
        "limit": limit,
        "error": mean_over_episodes(np.abs(median - true), episode),
        "bias": mean_over_episodes(median - true, episode),
        "rank_correlation": float(spearmanr(median, true).statistic) if varies else None,
        "bins": [
            {"stated": float(median[some].mean()), "true": float(true[some].mean())}
            for some in np.array_split(order, min(BINS, len(order)))
        ],
        "farther": {
            "share": float(farther.mean()),
            "true": float((true[farther] > limit).mean()) if farther.any() else None,
        },
        "within": [
            _share(pairs, within[:, k - 1], k, float(weights[k - 1]))
            for k in sorted({max(1, limit // part) for part in PARTS})
        ],
    }


def stated_steps(within: Float[np.ndarray, "rows limit"]) -> Int[np.ndarray, " rows"]:
    """The first number of steps with a probability of at least one half; limit + 1 if none has."""
    return 1 + np.sum(within < 0.5, axis=1)


def _share(
    pairs: PassageTimes, stated: Float[np.ndarray, " pairs"], steps: int, weight: float
) -> dict[str, Any]:
    """Stated probabilities of getting near a goal within some steps, and how often it happened."""
    found = calibration(pairs, stated, steps, weight, BINS)
    return {
        "steps": steps,
        "error": found.error(least=1)[0],
        "bins": [
            {"stated": float(stated), "true": float(true), "pairs": int(count)}
            for stated, true, count in zip(*found, strict=True)
            if count
        ],
    }


def _scaled(data: Dataset, close: Nearness) -> Dataset:
    """The dataset with scaled goals, which are also the last columns of its states."""
    goals = (data.achieved_goals / close.scale).astype(np.float32)
    states = data.observations.shape[1]
    return replace(
        data,
        observations=np.concatenate([data.observations, goals], axis=1),
        achieved_goals=goals,
        desired_goals=None,
        phi=tuple(range(states, states + data.goal_dim)),
    )


def _within(
    hazard: Hazard, states: Float[np.ndarray, "rows state"], goals: Float[np.ndarray, "rows goal"]
) -> Float[np.ndarray, "rows limit"]:
    return np.asarray(_all_within(hazard, states, goals), np.float64)


@eqx.filter_jit
def _all_within(hazard: Hazard, states: ArrayLike, goals: ArrayLike) -> Array:
    rows = jnp.asarray(states), jnp.asarray(goals)
    return jax.lax.map(lambda row: hazard.within(*row), rows, batch_size=ROWS)
