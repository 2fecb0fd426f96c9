"""The number of steps to a goal as a discrete-time hazard model.

Singer and Willett, "It's about time: using discrete-time survival analysis to study duration and
the timing of events" (1993). The hazard h_k(s, g) is the probability that the goal is reached at
step k, given that it was not reached before. Hence

    P(within k steps) = 1 - (1 - h_1) (1 - h_2) ... (1 - h_k).

A pair that reaches its goal at step T has the log-likelihood log h_T + sum_{k < T} log(1 - h_k). A
pair that is censored after c steps has sum_{k <= c} log(1 - h_k): nothing is assumed about what
happens later. Steps may be weighted, if late ones are observed less often (`data.passage_times`).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from merlin.nets.layers import MLP, Normaliser


class Hazard(eqx.Module):
    """Hazards of the first `limit` steps. Goals beyond are farther; the model does not say how far.

    The network sees the state, the goal, and the difference between the goal and what the state
    achieves.
    """

    inputs: Normaliser
    phi: Int[Array, " goal"]  # the columns of a state that are its goal
    net: MLP

    def logits(
        self, state: Float[Array, " state"], goal: Float[Array, " goal"]
    ) -> Float[Array, " limit"]:
        """The logits of the hazards."""
        return self.net(self.inputs(jnp.concatenate([state, goal, goal - state[self.phi]])))

    def within(
        self, state: Float[Array, " state"], goal: Float[Array, " goal"]
    ) -> Float[Array, " limit"]:
        """The probability of reaching the goal within 1, 2, ... steps."""
        return -jnp.expm1(-jnp.cumsum(jax.nn.softplus(self.logits(state, goal))))


def log_arrivals(logits: Float[Array, " limit"]) -> Float[Array, " limit"]:
    """The log-probability of reaching the goal at step 1, 2, ..., and not before."""
    return logits - jnp.cumsum(jax.nn.softplus(logits))


def log_likelihood(
    logits: Float[Array, " limit"],
    steps: Int[Array, ""],
    reached: Bool[Array, ""],
    weights: Float[Array, " limit"],
) -> Float[Array, ""]:
    """Weighted log-likelihood of reaching a goal after some steps, or not within them."""
    k = jnp.arange(1, len(logits) + 1)
    # log(1 - h) = -softplus(logit), and log h = logit - softplus(logit).
    each = jnp.where(k <= steps, -jax.nn.softplus(logits), 0.0)
    each += jnp.where(reached & (k == steps), logits, 0.0)
    return jnp.sum(weights * each)
