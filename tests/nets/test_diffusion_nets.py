"""The networks of the diffusion methods: each layer against its definition or another library."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.learner_data import floats
from merlin.nets.layers import ActionRange, Linear, late_average, mish, polyak, randomise
from merlin.nets.transformer import Transformer
from merlin.nets.unet import Conv, UNet, Upsample, group_norm, normalise


def test_mish_is_its_definition():
    x = jnp.linspace(-30.0, 30.0, 61)
    np.testing.assert_allclose(mish(x), jax.nn.mish(x), atol=1e-5, rtol=1e-5)
    slopes = jax.vmap(jax.grad(mish))(x)
    np.testing.assert_allclose(slopes, jax.vmap(jax.grad(jax.nn.mish))(x), atol=1e-5)


def test_action_range_there_and_back():
    actions = ActionRange(np.array([-0.5, -2.0], np.float32), np.array([1.5, 2.0], np.float32))
    unit = actions.to_unit(floats(1.5, -1.0))
    np.testing.assert_allclose(unit, [1.0, -0.5])
    np.testing.assert_allclose(actions.from_unit(unit), [1.5, -1.0])
    np.testing.assert_allclose(actions.from_unit(floats(9.0, -9.0)), [1.5, -2.0])


def test_many_layers_start_as_one_does():
    """Uniform within one over the root of the inputs, and no two alike."""
    wide, tall = randomise((Linear(100, 50), Linear(4, 50), jnp.ones(3)), jax.random.key(0))[:2]
    assert 0.099 < float(abs(wide.weight).max()) <= 0.1
    assert 0.48 < float(abs(tall.weight).max()) <= 0.5
    assert float(abs(wide.bias).max()) <= 0.1
    assert abs(float(wide.weight.mean())) < 0.003
    assert len(np.unique(wide.weight)) > 4900


def test_averages():
    np.testing.assert_allclose(polyak(floats(1.0), floats(3.0), 0.75), [1.5])
    average = lambda step: late_average(  # noqa: E731
        floats(1.0), floats(3.0), jnp.int32(step), decay=0.75, every=5, start=10
    )[0]
    # A copy at first, then a quarter of the way at every fifth update.
    assert [float(average(step)) for step in (3, 9, 10, 11, 14, 15)] == [3, 3, 1.5, 1, 1, 1.5]


def test_convolution_is_xlas(rng):
    x = jnp.asarray(rng.normal(size=(8, 3)), jnp.float32)
    for kernel, stride in ((5, 1), (3, 2), (1, 1)):
        conv = randomise(Conv(3, 4, kernel, stride=stride), jax.random.key(0))
        weight = conv.linear.weight.reshape(kernel, 3, 4)
        expected = jax.lax.conv_general_dilated(
            x[None],
            weight,
            (stride,),
            [(kernel // 2,) * 2],
            dimension_numbers=("NWC", "WIO", "NWC"),
        )[0]
        np.testing.assert_allclose(conv(x), expected + conv.linear.bias, atol=1e-5)


def test_upsampling_is_a_transposed_convolution(rng):
    """Inputs spread out by zeros, then a convolution with kernel 4."""
    x = jnp.asarray(rng.normal(size=(5, 2)), jnp.float32)
    up = randomise(Upsample(2), jax.random.key(0))
    even, odd = (layer.weight.reshape(2, 2, 2) for layer in (up.even, up.odd))
    # Output 2i sees inputs i - 1 and i, output 2i + 1 sees i and i + 1.
    weight = jnp.stack([even[0], odd[0], even[1], odd[1]])
    expected = jax.lax.conv_general_dilated(
        x[None], weight, (1,), [(2, 2)], lhs_dilation=(2,), dimension_numbers=("NWC", "WIO", "NWC")
    )[0]
    bias = jnp.stack([up.even.bias, up.odd.bias])[jnp.arange(10) % 2]
    np.testing.assert_allclose(up(x), expected + bias, atol=1e-5)


def test_groups_of_channels_are_standardised_over_time(rng):
    x = rng.normal(2, 3, (7, 16)).astype(np.float32)
    weight, bias = rng.normal(size=(2, 16)).astype(np.float32)
    norm = eqx.tree_at(lambda n: (n.weight, n.bias), group_norm(16), (weight, bias))
    groups = x.reshape(7, 8, 2)
    mean, variance = groups.mean((0, 2), keepdims=True), groups.var((0, 2), keepdims=True)
    expected = ((groups - mean) / np.sqrt(variance + 1e-5)).reshape(7, 16) * weight + bias
    np.testing.assert_allclose(normalise(norm, jnp.asarray(x)), expected, atol=1e-4)


@pytest.mark.parametrize("length", [2, 5, 8, 13])
def test_unet_takes_any_length_and_hears_its_embedding(length, rng):
    net = randomise(UNet(3, 4, channels=8, multipliers=(1, 2, 2)), jax.random.key(0))
    x = jnp.asarray(rng.normal(size=(length, 3)), jnp.float32)
    call = eqx.filter_jit(net)
    found = call(x, jnp.zeros(4))
    assert found.shape == x.shape
    assert (call(x, jnp.ones(4)) != found).any()
    # To a multiple of four it is the same as with the end repeated by hand.
    longer = jnp.concatenate([x, jnp.repeat(x[-1:], -length % 4, axis=0)])
    np.testing.assert_allclose(found, call(longer, jnp.zeros(4))[:length], atol=1e-5)


def test_transformer_sees_the_past_that_is_there(rng):
    calm, dropping = (
        Transformer(8, 1, 2, dropout, key=jax.random.key(0)) for dropout in (0.0, 0.5)
    )
    call = eqx.filter_jit(lambda net, *arguments: net(*arguments))
    tokens = jnp.asarray(rng.normal(size=(5, 8)), jnp.float32)
    everything = jnp.ones(5, bool)
    found = call(calm, tokens, everything)
    # What comes later changes nothing, what came before does, and what is absent does not.
    later, earlier, other = tokens.at[4].set(9.0), tokens.at[0, 0].set(9.0), tokens.at[1].set(9.0)
    np.testing.assert_allclose(call(calm, later, everything)[:4], found[:4], atol=1e-5)
    assert (abs(call(calm, earlier, everything)[4] - found[4]) > 1e-6).any()
    absent = everything.at[1].set(False)
    np.testing.assert_allclose(
        call(calm, other, absent)[2:], call(calm, tokens, absent)[2:], atol=1e-5
    )
    # In training, with a key, some of it is dropped; in acting nothing is.
    one, two = (call(dropping, tokens, everything, jax.random.key(k)) for k in (0, 1))
    assert (one != two).any()
    np.testing.assert_allclose(call(dropping, tokens, everything), found, atol=1e-6)
