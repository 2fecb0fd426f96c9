"""Network layers and optimiser steps. Modules are unbatched; use `jax.vmap`."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, Shaped

from merlin.types import Moments

Tree = TypeVar("Tree")


class Linear(eqx.Module):
    """An affine map, initialised like PyTorch's, uniformly within 1/sqrt(inputs).

    The weight has shape (in, out). Under vmap this gives a plain matrix product, which XLA runs
    about 7 % faster on a CPU than a product with the transpose. Without a key the layer is zero, to
    be filled by `randomise`.
    """

    weight: Float[Array, "inputs outputs"]
    bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, outputs: int, *, key: PRNGKeyArray | None = None):
        if key is None:
            self.weight, self.bias = jnp.zeros((inputs, outputs)), jnp.zeros(outputs)
            return
        weight_key, bias_key = jax.random.split(key)
        limit = 1.0 / np.sqrt(inputs)
        self.weight = jax.random.uniform(weight_key, (inputs, outputs), minval=-limit, maxval=limit)
        self.bias = jax.random.uniform(bias_key, (outputs,), minval=-limit, maxval=limit)

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        return x @ self.weight + self.bias


class MLP(eqx.Module):
    """Linear layers with an activation after each except the last.

    With `normed`, a LayerNorm follows every activation.
    """

    layers: tuple[Linear, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        key: PRNGKeyArray,
        activation: Callable[[Array], Array] = jax.nn.relu,
        normed: bool = False,
    ):
        sizes = [inputs, *hidden, outputs]
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            Linear(i, o, key=k) for i, o, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        self.norms = tuple(map(eqx.nn.LayerNorm, hidden)) if normed else ()
        self.activation = activation

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        for index, layer in enumerate(self.layers[:-1]):
            x = self.activation(layer(x))
            if self.norms:
                x = self.norms[index](x)
        return self.layers[-1](x)


def randomise(module: Tree, key: PRNGKeyArray) -> Tree:
    """Initialise all linear layers of a module from a single random draw.

    With one draw per layer, XLA would take most of a minute to compile a large module.
    """
    nodes, structure = jax.tree.flatten(module, is_leaf=lambda node: isinstance(node, Linear))
    sizes = [n.weight.size + n.bias.size if isinstance(n, Linear) else 0 for n in nodes]
    draw = jax.random.uniform(key, (sum(sizes),), minval=-1.0, maxval=1.0)
    filled = []
    for node, part in zip(nodes, jnp.split(draw, np.cumsum(sizes)[:-1]), strict=True):
        if isinstance(node, Linear):
            part = part / np.float32(np.sqrt(len(node.weight)))
            new = part[: node.weight.size].reshape(node.weight.shape), part[node.weight.size :]
            node = eqx.tree_at(lambda n: (n.weight, n.bias), node, new)
        filled.append(node)
    return jax.tree.unflatten(structure, filled)


CLIP, LEAST_STD = 5.0, 0.01
"""Default clipping range of normalised inputs, and the lower bound on the standard deviation they
are divided by."""


class Normaliser(eqx.Module):
    """Standardises and clips inputs, with a lower bound on the standard deviation.

    The bound keeps dimensions that hardly move (sensor noise, a blocked joint) from being
    amplified. Without a bound, constant dimensions are not scaled.

    Inputs are clipped at `clip` standard deviations, or at the limits of the data if those are
    farther: a door that rarely opens has most of its range beyond five standard deviations.
    """

    mean: Float[Array, " dim"]
    scale: Float[Array, "..."]
    limit: Float[Array, " dim"] | None  # of the scaled inputs; None: no clipping
    shape: tuple[int, ...] = eqx.field(static=True)  # of the inputs, which are flattened

    def __init__(
        self,
        moments: Moments,
        *,
        floor: float = LEAST_STD,
        epsilon: float = 1e-6,
        clip: float = CLIP,
    ):
        std = np.maximum(moments.std, floor)
        self.mean = jnp.asarray(moments.mean.reshape(-1), jnp.float32)
        scale = 1.0 / np.where(std > 0, std + epsilon, 1.0)
        self.scale = jnp.asarray(scale, jnp.float32)
        self.limit, self.shape = None, moments.mean.shape
        if math.isfinite(clip):
            extent = 0.0 if moments.extent is None else moments.extent * scale
            limit = np.broadcast_to(np.maximum(clip, extent), self.mean.shape)
            self.limit = jnp.asarray(limit, jnp.float32)

    def __call__(self, x: Shaped[Array, "..."]) -> Float[Array, "*batch dim"]:
        flat = x.reshape(*x.shape[: x.ndim - len(self.shape)], -1).astype(jnp.float32)
        scaled = (flat - self.mean) * self.scale
        return scaled if self.limit is None else jnp.clip(scaled, -self.limit, self.limit)

    @property
    def takes_images(self) -> bool:
        return len(self.shape) > 1


def plain_normaliser(moments: Moments) -> Normaliser:
    """Zero mean and unit variance per dimension, without lower bound or clipping."""
    return Normaliser(moments, floor=0.0, epsilon=0.0, clip=math.inf)


class ActionRange(eqx.Module):
    """Scales actions to [-1, 1] and back."""

    centre: Float[Array, " action"]
    scale: Float[Array, " action"]

    def __init__(self, low: Float[np.ndarray, " action"], high: Float[np.ndarray, " action"]):
        self.centre, self.scale = jnp.asarray((high + low) / 2), jnp.asarray((high - low) / 2)

    def to_unit(self, action: Float[Array, "*batch action"]) -> Float[Array, "*batch action"]:
        return (action - self.centre) / self.scale

    def from_unit(self, unit: Float[Array, "*batch action"]) -> Float[Array, "*batch action"]:
        return self.centre + self.scale * jnp.clip(unit, -1.0, 1.0)


def mish(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x tanh(softplus(x)), computed with one exponential instead of three transcendentals.

    `jax.nn.mish` takes 2.6 times as long (0.28 against 0.11 ms for 256x256 numbers, one core).
    """
    e = jnp.exp(jnp.minimum(x, 20.0))
    n = e * (e + 2.0)
    return x * (n / (n + 2.0))


def horizon_embedding(
    horizon: Float[Array, ""], max_period: float, dim: int = 32
) -> Float[Array, " dim"]:
    """Cosines and sines of the raw horizon at frequencies max_period^(-k / (dim / 2))."""
    half = dim // 2
    frequencies = (max_period ** (-np.arange(half) / half)).astype(np.float32)
    angles = horizon * frequencies
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)])


def gaussian_log_prob(
    x: Float[Array, " dim"], mean: Float[Array, " dim"], std: Float[Array, " dim"]
) -> Float[Array, ""]:
    """Log density of a diagonal Gaussian."""
    return jnp.sum(-0.5 * ((x - mean) / std) ** 2 - jnp.log(std) - 0.5 * jnp.log(2 * jnp.pi))


def mixture_log_prob(
    x: Float[Array, " dim"],
    weights: Float[Array, " components"],
    means: Float[Array, "components dim"],
    stds: Float[Array, "components dim"],
) -> Float[Array, ""]:
    """Log density of a mixture of diagonal Gaussians; log weights need not be normalised."""
    each = jax.vmap(gaussian_log_prob, (None, 0, 0))(x, means, stds)
    return jax.nn.logsumexp(jax.nn.log_softmax(weights) + each)


def cosine_decay(rate: float, updates: int) -> optax.Schedule:
    """A learning rate that decays to zero along half a cosine."""
    schedule = optax.cosine_decay_schedule(rate, updates)
    # Optax's schedule mixes integers and floats, which strict type promotion rejects.
    return lambda step: schedule(jnp.float32(step))


def clip_by_norm(gradient: Tree, limit: float) -> tuple[Tree, Float[Array, ""]]:
    """Clip a gradient to a global norm; also return its norm before clipping.

    With `optax.clip_by_global_norm` an update took 3 % longer (2.75 against 2.67 ms, FetchPush
    shapes, `benchmarks/throughput.py`, three alternating runs).
    """
    norm = jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradient)))
    scale = jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-12))
    return jax.tree.map(lambda leaf: leaf * scale, gradient), norm


def descend(
    optimiser: optax.GradientTransformation, net: Tree, gradient: Tree, state: optax.OptState
) -> tuple[Tree, optax.OptState]:
    """Take one optimiser step; return the new network and optimiser state."""
    updates, state = optimiser.update(gradient, state, net)
    return optax.apply_updates(net, updates), state


def descend_clipped(
    optimiser: optax.GradientTransformation,
    net: Tree,
    gradient: Tree,
    state: optax.OptState,
    limit: float,
) -> tuple[Tree, optax.OptState, Float[Array, ""]]:
    """Take one step with a clipped gradient; also return its norm before clipping."""
    gradient, norm = clip_by_norm(gradient, limit)
    return *descend(optimiser, net, gradient, state), norm


def polyak(slow: Tree, fast: Tree, keep: ArrayLike) -> Tree:
    """Move target networks towards the online networks; `keep` is 1 - tau."""
    return optax.incremental_update(fast, slow, 1.0 - keep)


def running_average(average: Tree, new: Tree, step: Int[Array, ""], *, decay: float) -> Tree:
    """An exponential moving average whose decay rises with the number of updates.

    A constant decay would keep much of the random initial parameters in short runs.
    """
    count = step.astype(jnp.float32)
    return polyak(average, new, jnp.minimum(decay, (1.0 + count) / (10.0 + count)))


def late_average(
    average: Tree, new: Tree, step: Int[Array, ""], *, decay: float, every: int, start: int
) -> Tree:
    """A moving average that is a copy until update `start` and then moves every `every` updates.

    An average from the start would mostly contain the random initialisation.
    """
    kept = jnp.where(step % every == 0, decay, 1.0)
    return polyak(average, new, jnp.where(step < start, 0.0, kept))
