"""A mixture of Gaussians over actions: its densest component, its density, and drawing from it."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

NARROW = 0.05
"""Components are not the denser for being narrower than this share of the actions' half range.

Recorded actions are often clipped: then many are exactly at a bound, and a component that holds
these alone has no width at all.
"""
HASTE = np.array([1.0, 2.0], np.float32)
"""How many times as far as the action for the horizon `SOON` the proposals that hurry go."""
SOON = 1.0
MIXTURE_CONSTANTS = {"narrow": NARROW, "haste": HASTE.tolist(), "soon": SOON}
"""What acting with a mixture takes beside a policy's arrays and settings."""

Mixture = tuple[
    Float[Array, " components"],
    Float[Array, "components action"],
    Float[Array, "components action"],
]
"""Log weights (up to a constant), means and standard deviations."""
Chances = tuple[Float[Array, "candidates components"], Float[Array, "candidates action"]]
"""Standard Gumbel numbers, which choose components, and standard normal ones."""


def densest(
    mixture: Mixture, scale: Float[Array, " action"]
) -> tuple[Float[Array, " action"], Float[Array, " action"]]:
    """Mean and deviation of the component with the highest weight per volume."""
    _, means, stds = mixture
    best = jnp.argmax(per_volume(mixture, scale))
    return means[best], stds[best]


def per_volume(mixture: Mixture, scale: Float[Array, " action"]) -> Float[Array, " components"]:
    """Log weights of the components per volume, up to a constant."""
    weights, _, stds = mixture
    return weights - jnp.sum(jnp.log(widths(stds, scale)), axis=1)


def log_density(
    mixture: Mixture, action: Float[Array, " action"], scale: Float[Array, " action"]
) -> Float[Array, ""]:
    """Of a mixture at an action, up to a constant."""
    _, means, stds = mixture
    off = (action - means) / widths(stds, scale)
    return jax.nn.logsumexp(per_volume(mixture, scale) - jnp.sum(off**2, axis=1) / 2)


def widths(
    stds: Float[Array, "components action"], scale: Float[Array, " action"]
) -> Float[Array, "components action"]:
    """Deviations, where none counts as narrower than `NARROW`."""
    return jnp.maximum(stds, NARROW * scale)


def draw(
    mixture: Mixture,
    scale: Float[Array, " action"],
    luck: Float[Array, " components"],
    noise: Float[Array, " action"],
) -> tuple[Float[Array, " action"], Float[Array, " action"]]:
    """An action and the deviation of its component, by standard Gumbel and standard normal numbers.

    A component is drawn by its weight per volume: the wider, the less, so that of a controller and
    noise it is the controller's.
    """
    _, means, stds = mixture
    which = jnp.argmax(per_volume(mixture, scale) + luck)
    return means[which] + stds[which] * noise, stds[which]


def chances(key: PRNGKeyArray | None, candidates: int, components: int, dim: int) -> Chances:
    """What to draw actions by; without a key the same numbers at every call."""
    drawn = max(candidates - len(HASTE), 0)
    uniform = scatter(jax.random.key(0) if key is None else key, drawn, components + dim)
    luck = -jnp.log(-jnp.log(uniform[:, :components]))
    return luck, jax.scipy.special.ndtri(uniform[:, components:])


def scatter(key: PRNGKeyArray, rows: int, columns: int) -> Float[Array, "rows columns"]:
    """Numbers between 0 and 1 that a key scatters, by hashing where they stand.

    JAX's own generator would take as long as the network takes to act on one state. The hash is
    lowbias32 by C. Wellons, once for each half of the key.
    """
    x = jnp.arange(rows * columns, dtype=jnp.uint32).reshape(rows, columns)
    for word in jax.random.key_data(key):
        x = x + word
        x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
        x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
        x = x ^ (x >> 16)
    # 23 bits and a half: neither 0 nor 1, where a normal number would be infinite.
    return ((x >> 9).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-23)
