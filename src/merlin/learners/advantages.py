"""Weights of recorded actions for cloning, from a critic's advantages (see `wgcsl`)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

QUEUE = 50_000
"""Number of recent advantages to rank, rounded down to whole minibatches."""
HALVINGS = 20
"""Bisection steps: they locate the percentile to a millionth of the range of advantages."""


def soon_weight(horizon: Float[Array, " batch"], discount: float) -> Float[Array, " batch"]:
    """1 for the action that reached its goal, discounted for each step before it.

    The exponent in the paper is larger by one, which is a constant factor; both releases use this
    one.
    """
    return discount ** (horizon - 1.0)


def best_weight(
    advantage: Float[Array, " batch"], threshold: Float[Array, ""]
) -> Float[Array, " batch"]:
    """1 at or above the threshold, 0.05 below it."""
    return jnp.where(advantage >= threshold, 1.0, 0.05)


def lowest_of_best(
    queue: Float[Array, "rows batch"], percentile: Float[Array, ""], limit: float
) -> Float[Array, ""]:
    """The given percentile of the finite entries of the queue.

    Found by bisecting the range [-limit, limit] and counting. Sorting 50,000 numbers in every
    update would take longer than the update itself.
    """
    allowed = percentile / 100 * jnp.sum(jnp.isfinite(queue), dtype=jnp.float32)

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        few = jnp.sum(queue < middle, dtype=jnp.float32) <= allowed
        return jnp.where(few, middle, low), jnp.where(few, high, middle)

    bounds = jnp.float32(-limit), jnp.float32(limit)
    return jax.lax.fori_loop(0, HALVINGS, halve, bounds)[0]
