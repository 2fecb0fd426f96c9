"""Pieces of value learning that experts and learners share: pure functions on batches.

Networks see states and goals that are standardised and joined into one input `x`, and actions in
units of their bounds, from -1 to 1. The reward is -1 until the goal is reached and 0 there, so a
value is minus the discounted number of steps away from the goal, between -1 / (1 - discount) and 0.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from merlin.vision import Net


def act(actor: Net, x: Float[Array, "batch inputs"]) -> Float[Array, "batch action"]:
    """Deterministic actions in units of their bounds."""
    return jnp.tanh(jax.vmap(actor)(x))


def value(
    critic: Net, x: Float[Array, "batch inputs"], action: Float[Array, "batch action"]
) -> Float[Array, " batch"]:
    """Q(s, a, g)."""
    return jax.vmap(critic)(jnp.concatenate([x, action], axis=-1))[:, 0]


def sparse_reward(
    achieved: Float[Array, "batch goal"],
    goal: Float[Array, "batch goal"],
    tolerance: float | Float[Array, ""],
) -> Float[Array, " batch"]:
    """-1 where what was achieved is farther from the goal than the tolerance, else 0."""
    distance = jnp.linalg.norm(achieved - goal, axis=-1)
    return -(distance > tolerance).astype(jnp.float32)


def possible(estimate: Float[Array, " batch"], discount: float) -> Float[Array, " batch"]:
    """An estimate, held within what returns of -1 and 0 can be."""
    return jnp.clip(estimate, -1.0 / (1.0 - discount), 0.0)


def td_target(
    reward: Float[Array, " batch"], next_value: Float[Array, " batch"], discount: float
) -> Float[Array, " batch"]:
    """The bootstrapped target of a critic."""
    return possible(reward + discount * next_value, discount)
