"""The hazard model of the steps to a goal."""

import jax.numpy as jnp
import numpy as np
import pytest

from merlin.learners.distance import blank_hazard
from merlin.nets.hazard import log_likelihood

HAZARDS = np.array([0.5, 0.25, 0.2])
LOGITS = jnp.asarray(np.log(HAZARDS / (1 - HAZARDS)), jnp.float32)
EVEN = jnp.ones(3)


@pytest.mark.parametrize(
    ("steps", "reached", "probability"),
    [(1, True, 0.5), (2, True, 0.5 * 0.25), (2, False, 0.5 * 0.75), (3, False, 0.5 * 0.75 * 0.8)],
)
def test_likelihood_by_hand(steps, reached, probability):
    found = log_likelihood(LOGITS, jnp.int32(steps), jnp.bool_(reached), EVEN)
    assert np.exp(found) == pytest.approx(probability, rel=1e-5)


def test_steps_are_weighted():
    found = log_likelihood(LOGITS, jnp.int32(2), jnp.bool_(False), jnp.array([1.0, 3.0, 9.0]))
    assert np.exp(found) == pytest.approx(0.5 * 0.75**3, rel=1e-5)


def test_probabilities_rise_with_the_steps():
    model = blank_hazard(3, 2, 20)
    within = np.asarray(model.within(jnp.array([0.1, 2.0, -1.0]), jnp.array([0.3, 0.4])))
    logits = np.asarray(model.logits(jnp.array([0.1, 2.0, -1.0]), jnp.array([0.3, 0.4])))
    np.testing.assert_allclose(within, 1 - np.cumprod(1 / (1 + np.exp(logits))), rtol=1e-5)
    assert (np.diff(within) > 0).all()
    assert 0 < within[0] < within[-1] < 1
