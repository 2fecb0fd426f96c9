"""Networks against numbers worked out elsewhere."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from helpers.learner_data import floats
from merlin.nets.layers import (
    MLP,
    Linear,
    Normaliser,
    clip_by_norm,
    cosine_decay,
    gaussian_log_prob,
    horizon_embedding,
)
from merlin.types import Moments


@pytest.mark.parametrize("horizon", [1, 7, 50])
def test_horizon_embedding_is_that_of_the_paper(horizon):
    """Sixteen frequencies 50^(-k/16) of the raw horizon: first the cosines, then the sines."""
    found = horizon_embedding(jnp.float32(horizon), max_period=50.0)
    angles = [horizon * 50 ** (-k / 16) for k in range(16)]
    expected = [math.cos(a) for a in angles] + [math.sin(a) for a in angles]
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, atol=5e-6)


def test_horizon_embedding_by_hand():
    found = horizon_embedding(jnp.float32(1.0), max_period=50.0)
    # cos 1, cos(50^(-1/16)) = cos 0.78309, sin(50^(-15/16)) = sin 0.025540
    np.testing.assert_allclose(found[0], 0.540302, atol=1e-5)
    np.testing.assert_allclose(found[1], 0.708734, atol=1e-5)
    np.testing.assert_allclose(found[31], 0.025537, atol=1e-5)


def test_horizon_embedding_of_another_size_and_period():
    found = horizon_embedding(jnp.float32(3.0), max_period=100.0, dim=4)
    np.testing.assert_allclose(
        found, [math.cos(3), math.cos(0.3), math.sin(3), math.sin(0.3)], atol=1e-6
    )


def test_normaliser_standardises_with_a_floor_and_a_clip():
    moments = Moments(np.array([1, 1, 1], np.float32), np.array([2, 0.001, 2], np.float32))
    normalise = Normaliser(moments)
    # The second deviation is taken as 0.01; the third value is ten deviations away.
    found = normalise(floats(2.0, 1.02, 21.0))
    np.testing.assert_allclose(found, [0.5, 2.0, 5.0], rtol=2e-4)
    np.testing.assert_allclose(normalise(floats(1.0, 0.0, -99.0)), [0.0, -5.0, -5.0])
    assert found.dtype == jnp.float32


def test_normaliser_does_not_clip_what_is_in_the_data():
    """Of three dimensions only the first has data beyond five deviations, up to twelve."""
    mean, std, extent = (np.array(x, np.float32) for x in ([1, 1, 0], [2, 2, 0.001], [24, 6, 0.02]))
    normalise = Normaliser(Moments(mean, std, extent))
    np.testing.assert_allclose(normalise.limit, [12.0, 5.0, 5.0], rtol=1e-4)
    found = normalise(floats(21.0, 21.0, 1.0))
    np.testing.assert_allclose(found, [10.0, 5.0, 5.0], rtol=1e-4)
    np.testing.assert_allclose(normalise(floats(-99.0, 0, 0)), [-12.0, -0.5, 0.0], rtol=1e-4)


def test_gaussian_log_prob_is_scipys(rng):
    x, mean = rng.normal(size=(2, 4)).astype(np.float32)
    std = rng.uniform(0.1, 3, 4).astype(np.float32)
    found = gaussian_log_prob(*map(jnp.asarray, (x, mean, std)))
    assert found.shape == ()
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, stats.norm(mean, std).logpdf(x).sum(), rtol=1e-5)


def test_linear_starts_uniform_within_one_over_root_inputs():
    layer = Linear(100, 400, key=jax.random.key(0))
    uniform = stats.uniform(-0.1, 0.2)
    assert stats.kstest(np.asarray(layer.weight).ravel(), uniform.cdf).pvalue > 1e-3
    assert stats.kstest(np.asarray(layer.bias), uniform.cdf).pvalue > 1e-3
    assert float(abs(layer.weight).max()) <= 0.1


def test_mlp_is_its_layers_with_relu_between(rng):
    net = MLP(3, (8, 5), 2, key=jax.random.key(1))
    assert [layer.weight.shape for layer in net.layers] == [(3, 8), (8, 5), (5, 2)]
    assert [layer.bias.shape for layer in net.layers] == [(8,), (5,), (2,)]
    x = rng.normal(size=3).astype(np.float32)
    y = x
    for layer in net.layers[:-1]:
        y = np.maximum(y @ np.asarray(layer.weight) + np.asarray(layer.bias), 0)
    y = y @ np.asarray(net.layers[-1].weight) + np.asarray(net.layers[-1].bias)
    np.testing.assert_allclose(net(jnp.asarray(x)), y, rtol=1e-5)
    # No activation after the last layer: some output is negative for some input.
    assert (jax.vmap(net)(jnp.asarray(rng.normal(size=(50, 3)), jnp.float32)) < 0).any()


def test_mlp_takes_another_activation_and_differs_by_key():
    net = MLP(1, (4,), 1, key=jax.random.key(0), activation=jnp.tanh)
    inner, outer = net.layers
    x = floats(0.3)
    np.testing.assert_allclose(net(x), outer(jnp.tanh(inner(x))), rtol=1e-6)
    other = MLP(1, (4,), 1, key=jax.random.key(1), activation=jnp.tanh)
    assert (other.layers[0].weight != inner.weight).any()
    # Layers of equal shape do not start equal.
    square = MLP(4, (4, 4), 4, key=jax.random.key(0))
    assert (square.layers[0].weight != square.layers[1].weight).any()


def test_dtype_promotion_is_strict():
    """These tests rely on it: an accidental float64 or integer mix would raise."""
    with pytest.raises(jax.dtypes.TypePromotionError):
        jnp.float32(1) + jnp.int32(1)


def test_gradients_are_cut_to_a_norm():
    long, norm = clip_by_norm({"w": floats(3.0, 0.0), "b": floats(4.0)}, 1.0)
    assert norm == pytest.approx(5.0)
    np.testing.assert_allclose(np.concatenate([long["w"], long["b"]]), [0.6, 0.0, 0.8], rtol=1e-6)
    short, norm = clip_by_norm(floats(0.3, 0.4), 1.0)
    assert norm == pytest.approx(0.5)
    np.testing.assert_array_equal(short, floats(0.3, 0.4))
    np.testing.assert_array_equal(clip_by_norm(floats(0.0), 1.0)[0], [0.0])


def test_a_cosine_falls_to_zero():
    rate = jax.jit(cosine_decay(0.1, 100))
    found = [float(rate(jnp.int32(step))) for step in (0, 50, 100, 200)]
    np.testing.assert_allclose(found, [0.1, 0.05, 0.0, 0.0], atol=1e-8)
