"""A mixture of Gaussians over actions: its densest component, its density, and sampling."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.policies.goal import MIN_STD, GoalPolicy
from merlin.types import Key

NARROW = 0.05
"""Lower bound on the width of a component when comparing densities, relative to the half range.

Recorded actions are often clipped. Many are then exactly at a bound, and a component that models
only these would have no width.
"""
HASTE = np.array([1.0, 2.0], np.float32)
"""Factors by which the aggressive proposals scale the action for the horizon `SOON`."""
SOON = 1.0
MIXTURE_CONSTANTS = {"narrow": NARROW, "haste": HASTE.tolist(), "soon": SOON}
"""Constants of mixture policies that a deployed policy needs."""

Mixture = tuple[
    Float[Array, " components"],
    Float[Array, "components action"],
    Float[Array, "components action"],
]
"""Log weights (up to a constant), means and standard deviations."""
Chances = tuple[Float[Array, "candidates components"], Float[Array, "candidates action"]]
"""Standard Gumbel noise for choosing components, and standard normal noise."""


def mixture_of(policy: GoalPolicy, outputs: Float[Array, " outputs"], components: int) -> Mixture:
    """The mixture that the outputs of a policy's network describe."""
    size = components * len(policy.action_centre)
    # A single component needs no weight, so the network is the same as Merlin's.
    weights = outputs[2 * size :] if components > 1 else jnp.zeros(1)
    means, stds = outputs[: 2 * size].reshape(2, components, -1)
    return weights, jax.vmap(policy.within_bounds)(means), jax.nn.softplus(stds) + MIN_STD


def densest(
    mixture: Mixture, scale: Float[Array, " action"]
) -> tuple[Float[Array, " action"], Float[Array, " action"]]:
    """Mean and standard deviation of the component with the highest weight per volume."""
    _, means, stds = mixture
    best = jnp.argmax(per_volume(mixture, scale))
    return means[best], stds[best]


def per_volume(mixture: Mixture, scale: Float[Array, " action"]) -> Float[Array, " components"]:
    """Log weight per volume of each component, up to a constant."""
    weights, _, stds = mixture
    return weights - jnp.sum(jnp.log(widths(stds, scale)), axis=1)


def log_density(
    mixture: Mixture, action: Float[Array, " action"], scale: Float[Array, " action"]
) -> Float[Array, ""]:
    """Log density of a mixture at an action, up to a constant."""
    _, means, stds = mixture
    off = (action - means) / widths(stds, scale)
    return jax.nn.logsumexp(per_volume(mixture, scale) - jnp.sum(off**2, axis=1) / 2)


def widths(
    stds: Float[Array, "components action"], scale: Float[Array, " action"]
) -> Float[Array, "components action"]:
    """Standard deviations, bounded below by `NARROW`."""
    return jnp.maximum(stds, NARROW * scale)


def draw(
    mixture: Mixture,
    scale: Float[Array, " action"],
    luck: Float[Array, " components"],
    noise: Float[Array, " action"],
) -> tuple[Float[Array, " action"], Float[Array, " action"]]:
    """Sample an action from Gumbel and normal noise; also return its component's deviation.

    Components are drawn by their weight per volume. This favours narrow components, and hence a
    controller over noise.
    """
    _, means, stds = mixture
    which = jnp.argmax(per_volume(mixture, scale) + luck)
    return means[which] + stds[which] * noise, stds[which]


def chances(key: Key, candidates: int, components: int, dim: int) -> Chances:
    """Random numbers for sampling actions; without a key, the same numbers in every call."""
    drawn = max(candidates - len(HASTE), 0)
    uniform = scatter(jax.random.key(0) if key is None else key, drawn, components + dim)
    luck = -jnp.log(-jnp.log(uniform[:, :components]))
    return luck, jax.scipy.special.ndtri(uniform[:, components:])


def scatter(key: PRNGKeyArray, rows: int, columns: int) -> Float[Array, "rows columns"]:
    """Uniform random numbers in (0, 1) from a key, by hashing their indices.

    JAX's generator would take as long as the network takes to act on one state. The hash is
    lowbias32 by C. Wellons, applied once for each half of the key.
    """
    x = jnp.arange(rows * columns, dtype=jnp.uint32).reshape(rows, columns)
    for word in jax.random.key_data(key):
        x = x + word
        x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
        x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
        x = x ^ (x >> 16)
    # 23 bits plus a half exclude 0 and 1, for which the normal quantile would be infinite.
    return ((x >> 9).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-23)
