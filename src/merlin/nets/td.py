"""Pieces of value learning that experts and learners share: pure functions on batches.

Networks see states and goals that are standardised and joined into one input `x`, and actions in
units of their bounds, from -1 to 1. The reward is -1 until the goal is reached and 0 there, so a
value is minus the discounted number of steps away from the goal, between -1 / (1 - discount) and 0.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from merlin.nets.cnn import Net


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


def reach_reward(
    reached: Bool[Array, " batch"],
) -> tuple[Float[Array, " batch"], Float[Array, " batch"]]:
    """The reward, -1 until the goal is reached and 0 there, and a mask that is 0 there."""
    mask = 1.0 - reached.astype(jnp.float32)
    return -mask, mask


def expectile_loss(
    advantage: Float[Array, "*batch"], error: Float[Array, "*batch"], expectile: float
) -> Float[Array, "*batch"]:
    """Squared errors: `expectile` of those with an advantage, the rest of the others."""
    return jnp.where(advantage < 0.0, 1.0 - expectile, expectile) * error**2


def advantage_weight(
    advantage: Float[Array, " batch"], limit: float, alpha: float = 1.0
) -> Float[Array, " batch"]:
    """exp(alpha * advantage), at most `limit`: how much an action counts when it is cloned."""
    return jnp.minimum(jnp.exp(alpha * advantage), limit)


def unit_log_prob(
    mean: Float[Array, "batch dim"], x: Float[Array, "batch dim"]
) -> Float[Array, " batch"]:
    """Log density of a Gaussian of standard deviation 1."""
    return -0.5 * (jnp.sum((x - mean) ** 2, axis=-1) + mean.shape[-1] * math.log(2 * math.pi))


def ddpg_bc_loss(
    value: Float[Array, " batch"], log_prob: Float[Array, " batch"], alpha: float
) -> Float[Array, ""]:
    """DDPG+BC: raise the value of the policy's own actions, and clone the recorded ones.

    Values are divided by their mean size, so that `alpha` means the same for any reward.
    """
    size = jax.lax.stop_gradient(jnp.mean(jnp.abs(value)))
    return -jnp.mean(value) / (size + 1e-6) - alpha * jnp.mean(log_prob)
