"""Value learning functions shared by experts and learners: pure functions on batches.

Networks take standardised states and goals, concatenated into one input `x`, and actions scaled to
[-1, 1]. The reward is -1 until the goal is reached and 0 there, so a value is the negative
discounted number of steps to the goal, between -1 / (1 - discount) and 0.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from merlin.nets.cnn import Net


def act(actor: Net, x: Float[Array, "batch inputs"]) -> Float[Array, "batch action"]:
    """Deterministic actions, scaled to [-1, 1]."""
    return jnp.tanh(jax.vmap(actor)(x))


def estimates(net: Net, x: Float[Array, "batch inputs"]) -> Float[Array, " batch"]:
    """Apply a network with a single output to a batch."""
    return jax.vmap(net)(x)[:, 0]


def value(
    critic: Net, x: Float[Array, "batch inputs"], action: Float[Array, "batch action"]
) -> Float[Array, " batch"]:
    """Q(s, a, g)."""
    return estimates(critic, jnp.concatenate([x, action], axis=-1))


def sparse_reward(
    achieved: Float[Array, "batch goal"],
    goal: Float[Array, "batch goal"],
    tolerance: float | Float[Array, ""],
) -> Float[Array, " batch"]:
    """-1 where the achieved goal is farther from the goal than the tolerance, otherwise 0."""
    distance = jnp.linalg.norm(achieved - goal, axis=-1)
    return -(distance > tolerance).astype(jnp.float32)


def possible(estimate: Float[Array, " batch"], discount: float) -> Float[Array, " batch"]:
    """Clip value estimates to the range of returns that rewards of -1 and 0 allow."""
    return jnp.clip(estimate, -1.0 / (1.0 - discount), 0.0)


def td_target(
    reward: Float[Array, " batch"], next_value: Float[Array, " batch"], discount: float
) -> Float[Array, " batch"]:
    """The bootstrapped target of a critic, clipped to the possible returns."""
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
    """Squared errors, weighted by `expectile`, or 1 - `expectile` for negative advantages."""
    return jnp.where(advantage < 0.0, 1.0 - expectile, expectile) * error**2


def advantage_weight(
    advantage: Float[Array, " batch"], limit: float, alpha: float = 1.0
) -> Float[Array, " batch"]:
    """The weight of an action in cloning: exp(alpha * advantage), at most `limit`."""
    return jnp.minimum(jnp.exp(alpha * advantage), limit)


def unit_log_prob(
    mean: Float[Array, "batch dim"], x: Float[Array, "batch dim"]
) -> Float[Array, " batch"]:
    """Log density of a Gaussian with standard deviation 1."""
    return -0.5 * (jnp.sum((x - mean) ** 2, axis=-1) + mean.shape[-1] * math.log(2 * math.pi))


def ddpg_bc_loss(
    value: Float[Array, " batch"], log_prob: Float[Array, " batch"], alpha: float
) -> Float[Array, ""]:
    """DDPG+BC: maximise the value of the policy's actions and clone the recorded ones.

    Values are divided by their mean magnitude, so `alpha` is independent of the reward scale.
    """
    size = jax.lax.stop_gradient(jnp.mean(jnp.abs(value)))
    return -jnp.mean(value) / (size + 1e-6) - alpha * jnp.mean(log_prob)
