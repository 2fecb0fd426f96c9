"""Mixtures of Gaussians over actions: densities, the densest component, and drawing."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import kstest, multivariate_normal, norm

from helpers.learner_data import rows
from merlin.deploy.mixture import Gaussians
from merlin.nets.layers import mixture_log_prob
from merlin.policies.mixture import HASTE, NARROW, chances, densest, draw, log_density, scatter


def test_mixture_log_prob_is_scipys(rng):
    means, stds = rng.normal(size=(3, 2)), rng.uniform(0.2, 2, (3, 2))
    logits, x = rng.normal(size=3), rng.normal(size=2)
    share = np.exp(logits) / np.exp(logits).sum()
    each = [multivariate_normal(m, np.diag(s**2)).pdf(x) for m, s in zip(means, stds, strict=True)]
    found = mixture_log_prob(*(jnp.asarray(a, jnp.float32) for a in (x, logits, means, stds)))
    np.testing.assert_allclose(found, np.log(share @ each), rtol=1e-5)


def test_the_densest_component_is_not_the_heaviest():
    """Weights 0.7 and 0.3, but the second is a tenth as wide in both dimensions."""
    weights = jnp.log(jnp.asarray([0.7, 0.3]))
    means = jnp.asarray([[0.0, 0.0], [0.5, -0.5]])
    mean, std = densest((weights, means, jnp.asarray([[1.0, 1.0], [0.1, 0.1]])), jnp.ones(2))
    np.testing.assert_array_equal(mean, means[1])
    np.testing.assert_allclose(std, 0.1)
    mean, _ = densest((weights, means, jnp.ones((2, 2))), jnp.ones(2))
    np.testing.assert_array_equal(mean, means[0])


def test_actions_that_were_clipped_to_a_bound_are_not_the_densest():
    """A tenth of the data at a bound without any width, the rest around zero; in any units."""
    weights, bound = jnp.log(jnp.asarray([0.9, 0.1])), jnp.asarray([1.0, 20.0])
    means, stds = jnp.stack([0.0 * bound, bound]), jnp.stack([0.1 * bound, 1e-5 * bound])
    mean, _ = densest((weights, means, stds), bound)
    np.testing.assert_array_equal(mean, means[0])


def test_the_density_of_a_mixture():
    """As SciPy has it, but for components that are too narrow to count as such."""
    weights = jnp.asarray([0.3, -1.0])
    means, stds = jnp.asarray([[0.1, -0.2], [0.5, 0.4]]), jnp.asarray([[0.3, 0.2], [0.5, 1e-3]])
    shares, wide = np.exp(weights), np.maximum(stds, 2 * NARROW)
    actions = rows(20, seed=9)
    expected = sum(
        share * norm(mean, std).pdf(actions).prod(1)
        for share, mean, std in zip(shares, means, wide, strict=True)
    )
    found = [log_density((weights, means, stds), action, 2 * jnp.ones(2)) for action in actions]
    np.testing.assert_allclose(found, np.log(2 * np.pi * expected), rtol=1e-4)


def test_numpy_has_the_same_densities():
    scale, units = np.asarray([2.0, 0.5], np.float32), np.clip(rows(20, seed=9), -1, 1)
    weights, means, stds = rows(3, seed=1)[:, 0], np.tanh(rows(3, seed=2)), np.exp(rows(3, seed=3))
    gaussians = Gaussians(3, scale, 0.0, NARROW, HASTE)
    found = gaussians.log_density(gaussians.weighted(weights, means, stds), units)
    mixture = tuple(map(jnp.asarray, (weights, means * scale, stds)))
    wanted = [log_density(mixture, jnp.asarray(unit * scale), jnp.asarray(scale)) for unit in units]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_components_are_drawn_by_their_weight_per_volume():
    """Weights 1, 3 and 6, of which the last is three times as wide as the others."""
    weights, stds = jnp.log(jnp.asarray([1.0, 3.0, 6.0])) - 7.0, jnp.asarray([0.5, 0.5, 1.5])
    means = jnp.asarray([[0.0], [100.0], [200.0]])
    luck = jax.vmap(lambda key: chances(key, 12, 3, 1))(jax.random.split(jax.random.key(0), 500))
    luck, noise = (part.reshape(-1, part.shape[-1]) for part in luck)
    assert luck.shape == (5000, 3)
    mixture, scale = (weights, means, stds[:, None]), jnp.ones(1)
    actions, spread = jax.vmap(draw, (None, None, 0, 0))(mixture, scale, luck, noise)
    which = np.round(np.asarray(actions)[:, 0] / 100).astype(int)
    np.testing.assert_allclose(np.bincount(which) / 5000, [1 / 6, 3 / 6, 2 / 6], atol=0.02)
    np.testing.assert_array_equal(spread[:, 0], stds[which])
    apart = (actions[:, 0] - 100.0 * which) / stds[which]
    assert kstest(apart, "norm").pvalue > 1e-3


def test_scattered_numbers_are_uniform_and_independent():
    keys = jax.random.split(jax.random.key(3), 400)
    numbers = np.asarray(jax.vmap(lambda key: scatter(key, 10, 3))(keys), np.float64)
    assert 0 < numbers.min() < numbers.max() < 1
    assert kstest(numbers.ravel(), "uniform").pvalue > 1e-3
    flat = numbers.reshape(400, 30)
    between = np.corrcoef(flat.T) - np.eye(30)  # of places, over keys
    assert np.abs(between).max() < 5 / np.sqrt(400)
    after = [np.corrcoef(flat[:-lag].ravel(), flat[lag:].ravel())[0, 1] for lag in (1, 2, 3)]
    assert np.abs(after).max() < 4 / np.sqrt(flat.size)
    bits = np.asarray(scatter(jax.random.key(1), 5000, 4))
    assert len(np.unique(bits)) > 0.99 * bits.size
