"""Networks: unbatched modules; callers vmap."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from merlin.types import Moments

Tree = TypeVar("Tree")


class Linear(eqx.Module):
    """An affine map, initialised uniformly within 1/sqrt(inputs) as PyTorch does.

    The weight is stored (in, out): under vmap that is one plain matrix product, which XLA runs
    some 7 % faster on a CPU than the product with the transpose. Without a key it is left at zero,
    for `randomise` to fill.
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
    """Linear layers with an activation between them and none after the last."""

    layers: tuple[Linear, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        key: PRNGKeyArray,
        activation: Callable[[Array], Array] = jax.nn.relu,
    ):
        sizes = [inputs, *hidden, outputs]
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            Linear(i, o, key=k) for i, o, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        self.activation = activation

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


class GRU(eqx.Module):
    """Gated recurrent unit (Cho et al., 2014): one layer, applied to a whole sequence."""

    into: Linear
    onward: Linear

    def __init__(self, inputs: int, width: int, *, key: PRNGKeyArray):
        into_key, onward_key = jax.random.split(key)
        self.into = Linear(inputs, 3 * width, key=into_key)
        self.onward = Linear(width, 3 * width, key=onward_key)

    @property
    def width(self) -> int:
        return self.onward.weight.shape[0]

    def step(
        self, memory: Float[Array, " width"], x: Float[Array, " inputs"]
    ) -> Float[Array, " width"]:
        """The memory after one more input."""
        return self._step(memory, self.into(x))

    def _step(
        self, memory: Float[Array, " width"], projected: Float[Array, " three_widths"]
    ) -> Float[Array, " width"]:
        reset, update, new = jnp.split(projected, 3)
        reset_memory, update_memory, new_memory = jnp.split(self.onward(memory), 3)
        keep = jax.nn.sigmoid(update + update_memory)
        candidate = jnp.tanh(new + jax.nn.sigmoid(reset + reset_memory) * new_memory)
        return keep * memory + (1 - keep) * candidate

    def __call__(self, xs: Float[Array, "steps inputs"]) -> Float[Array, "steps width"]:
        """The memory after each input, from an empty one."""
        # All inputs are projected at once: one large product instead of one per step.
        projected = jax.vmap(self.into)(xs)

        def body(memory: Array, row: Array) -> tuple[Array, Array]:
            memory = self._step(memory, row)
            return memory, memory

        return jax.lax.scan(body, jnp.zeros(self.width, xs.dtype), projected)[1]


def randomise(module: Tree, key: PRNGKeyArray) -> Tree:
    """Start all linear layers of a module as `Linear` starts, from a single draw.

    A draw of its own for each of many layers would take XLA most of a minute to compile.
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
"""Where normalised inputs end, and the least deviation they are divided by."""


class Normaliser(eqx.Module):
    """Standardise and clip to +-5 deviations, with a floor of 0.01 under the deviation.

    The floor keeps dimensions that hardly move (sensor noise, a blocked joint) from being blown
    up to the size of the ones that matter.
    """

    mean: Float[Array, " dim"]
    scale: Float[Array, " dim"]

    def __init__(self, moments: Moments):
        self.mean = jnp.asarray(moments.mean)
        self.scale = jnp.asarray(1.0 / (np.maximum(moments.std, LEAST_STD) + 1e-6))

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        return jnp.clip((x - self.mean) * self.scale, -CLIP, CLIP)


class ActionRange(eqx.Module):
    """Actions between their bounds as numbers from -1 to 1, and back."""

    centre: Float[Array, " action"]
    scale: Float[Array, " action"]

    def __init__(self, low: Float[np.ndarray, " action"], high: Float[np.ndarray, " action"]):
        self.centre, self.scale = jnp.asarray((high + low) / 2), jnp.asarray((high - low) / 2)

    def to_unit(self, action: Float[Array, "*batch action"]) -> Float[Array, "*batch action"]:
        return (action - self.centre) / self.scale

    def from_unit(self, unit: Float[Array, "*batch action"]) -> Float[Array, "*batch action"]:
        return self.centre + self.scale * jnp.clip(unit, -1.0, 1.0)


def mish(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """x tanh(softplus(x)), with one exponential instead of three transcendental functions."""
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
    """Log density of a mixture of diagonal Gaussians whose log weights need not add up to one."""
    each = jax.vmap(gaussian_log_prob, (None, 0, 0))(x, means, stds)
    return jax.nn.logsumexp(jax.nn.log_softmax(weights) + each)


def clip_by_norm(gradient: Tree, limit: float) -> tuple[Tree, Float[Array, ""]]:
    """Scale a gradient down to a global norm, and say what its norm was.

    Optax has the same as a transformation, but keeps the norm to itself; to compute it twice would
    cost a tenth of an update.
    """
    norm = jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradient)))
    scale = jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-12))
    return jax.tree.map(lambda leaf: leaf * scale, gradient), norm


def descend(
    optimiser: optax.GradientTransformation, net: Tree, gradient: Tree, state: optax.OptState
) -> tuple[Tree, optax.OptState]:
    """One step of an optimiser: the network and the optimiser's state after it."""
    updates, state = optimiser.update(gradient, state)
    return optax.apply_updates(net, updates), state


def descend_clipped(
    optimiser: optax.GradientTransformation,
    net: Tree,
    gradient: Tree,
    state: optax.OptState,
    limit: float,
) -> tuple[Tree, optax.OptState, Float[Array, ""]]:
    """The same with a gradient whose global norm is limited; its norm before that comes last."""
    gradient, norm = clip_by_norm(gradient, limit)
    return *descend(optimiser, net, gradient, state), norm


def polyak(slow: Tree, fast: Tree, keep: ArrayLike) -> Tree:
    """Move a slow copy of a network towards it; `keep` is the share that stays."""
    return jax.tree.map(lambda old, new: keep * old + (1.0 - keep) * new, slow, fast)


def late_average(
    average: Tree, new: Tree, step: Int[Array, ""], *, decay: float, every: int, start: int
) -> Tree:
    """An average that copies until update `start` and then moves every so many updates.

    What is averaged early is mostly the random beginning.
    """
    kept = jnp.where(step % every == 0, decay, 1.0)
    return polyak(average, new, jnp.where(step < start, 0.0, kept))
