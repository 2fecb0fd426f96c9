"""The model of the steps to a goal, fitted to data whose answer is known."""

import jax
import numpy as np
import pytest

from merlin.data import Dataset, Episode
from merlin.data.passage_times import calibration, draw_passage_times, step_weights
from merlin.learners import distance
from merlin.learners.distance import fit_hazard, local_limit


def walks(seed: int, episodes: int) -> Dataset:
    """Random walks that drift to the right, of different lengths."""
    rng = np.random.default_rng(seed)
    found = []
    for length in rng.integers(8, 25, episodes):
        steps = rng.normal(0.3, 0.5, length - 1)
        place = np.concatenate([[0.0], np.cumsum(steps)])[:, None].astype(np.float32)
        found.append(Episode(place, np.zeros((length - 1, 1)), place))
    return Dataset.from_episodes(found)


@pytest.mark.parametrize(
    "hidden", [(64, 64), pytest.param(distance.HIDDEN, marks=pytest.mark.more)], ids=str
)
def test_probabilities_hold_on_other_episodes(hidden, monkeypatch):
    monkeypatch.setattr(distance, "HIDDEN", hidden)
    model = fit_hazard(walks(0, 300), (0,), limit=6, tolerance=0.5)
    data = walks(1, 300)
    pairs = draw_passage_times(data, 20_000, limit=6, tolerance=0.5, seed=2)
    within = np.asarray(jax.vmap(model.within)(data.observations[pairs.row], pairs.goal))
    for k, weight in enumerate(step_weights(data, 6), 1):
        mean, largest = calibration(pairs, within[:, k - 1], k, weight).error(least=300)
        assert mean < 0.05
        assert largest < 0.1
    assert within[:, -1].std() > 0.3


def test_looks_ahead_half_an_episode_at_most():
    assert (local_limit(1000, 50), local_limit(50, 50), local_limit(1, 50)) == (50, 25, 1)
