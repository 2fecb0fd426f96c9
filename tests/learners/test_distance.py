"""The model of the steps to a goal, fitted to data whose answer is known."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from merlin.data import Dataset, Episode
from merlin.data.goals import hindsight
from merlin.data.passage_times import calibration, draw_passage_times, step_weights
from merlin.data.spec import make_spec
from merlin.learners import distance
from merlin.learners.distance import fit_hazard, fit_standardised, local_limit
from merlin.policies.goal import goal_inputs, observation_inputs

STATES = jnp.linspace(-1.5, 1.5, 40)[:, None]
GOALS = STATES[::-1] * 0.7


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


def test_standardised_hazards_hold_in_any_unit():
    """The scores of states and goals do not depend on their units, nor on a tolerance in them."""
    data, found = walks(0, 100), []
    for unit, tolerance in ((1.0, 0.5), (1000.0, 500.0), (1000.0, None), (1.0, None)):
        scaled = replace(
            data,
            observations=data.observations * np.float32(unit),
            achieved_goals=data.achieved_goals * np.float32(unit),
        )
        spec = make_spec(scaled, hindsight(1.0, "pairs"), tolerance)
        fitted = fit_standardised(scaled, spec, hidden=(16,), limit=6)
        found.append(jax.vmap(fitted.logits)(STATES, GOALS))
    np.testing.assert_allclose(found[0], found[1], atol=0.05)
    np.testing.assert_allclose(found[2], found[3], atol=0.05)
    assert np.abs(found[0] - found[2]).max() > 0.2  # what counts as near is another distance


def test_standardised_probabilities_hold_on_other_episodes():
    data, other = walks(0, 300), walks(1, 300)
    spec = make_spec(data, hindsight(1.0, "pairs"), 0.5)
    model = fit_standardised(data, spec, hidden=(64, 64), limit=6)
    pairs = draw_passage_times(other, 20_000, limit=6, tolerance=0.5, seed=2)
    states = observation_inputs(spec)(jnp.asarray(other.observations[pairs.row]))
    logits = jax.vmap(model.logits)(states, goal_inputs(spec)(jnp.asarray(pairs.goal)))
    within = -np.expm1(-np.cumsum(np.logaddexp(0.0, logits), axis=1))
    for k, weight in enumerate(step_weights(other, 6), 1):
        mean, largest = calibration(pairs, within[:, k - 1], k, weight).error(least=300)
        assert mean < 0.05
        assert largest < 0.1


def test_looks_ahead_half_an_episode_at_most():
    assert (local_limit(1000, 50), local_limit(50, 50), local_limit(1, 50)) == (50, 25, 1)
