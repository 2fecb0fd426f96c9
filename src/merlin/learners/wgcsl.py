"""WGCSL: goal-conditioned cloning, weighted by a critic's advantages.

Yang et al., "Rethinking Goal-Conditioned Supervised Learning and Its Connection to Offline RL"
(ICLR 2022).

GCSL clones every action that led to a goal, including detours. WGCSL trains a critic on the number
of steps to the goal and weights each action by the product of three terms:

    discount          discount ^ (h - 1) favours actions shortly before the goal;
    advantage         min(exp(A), 10) favours actions better than the policy's own;
    best advantage    1 for the best recent advantages, 0.05 for the others. The threshold is a
                      percentile that rises from 0 to 80 as the critic improves.

    min  E  weight * |policy(s, g) - a|^2,    A = r + discount * Q'(s', policy'(s', g), g)
                                                  - Q(s, policy(s, g), g)

' marks target networks. Only rows with goals from the future of their episode are cloned. Other
rows, which occur if the hindsight ratio is below 1, train the critic only.

The two public releases differ, and each has a preset. `gofar-release` (Ma et al., the baseline of
the Merlin paper) has no best-advantage weight. `awgcsl` (by the authors) computes the advantage
with the online networks instead of the target networks, and trains the critic on 20 % original
goals.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from merlin.errors import MerlinError
from merlin.learners.actor_critic import ActorCritic, CriticLearner, init_actor_critic, step
from merlin.learners.advantages import QUEUE, best_weight, lowest_of_best, soon_weight
from merlin.learners.base import check_positive
from merlin.nets.cnn import Net
from merlin.nets.td import act, advantage_weight, possible, sparse_reward, td_target, value
from merlin.policies.goal import DeterministicPolicy, squared_error, transitions
from merlin.types import Batch, Metrics, Spec


class WGCSLState(eqx.Module):
    """Actor and critic, recent advantages (one row per update), and the number of updates."""

    actor_critic: ActorCritic
    advantages: Float[Array, "rows batch"]  # infinite where unset
    updates: Int[Array, ""]


@final
@dataclass(frozen=True)
class WGCSL(CriticLearner):
    """Weighted goal-conditioned supervised learning."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "gofar-release": {"best_percentile": 0.0},
        "awgcsl": {"hindsight_ratio": 0.8, "slow_advantage": False, "target_keep": 0.9947},
    }

    discount_weight: bool = True  # the authors advise false for random data of hard tasks
    max_weight: float = 10.0  # cap on the exponential of the advantage
    best_percentile: float = 80.0  # final percentile; 0: no best-advantage weight
    percentile_step: float = 0.01  # increase per update; awgcsl uses 0.15 for easy tasks
    slow_advantage: bool = True  # evaluate the next state with the target networks

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hindsight_ratio == 0:
            raise MerlinError("hindsight_ratio: 0 leaves wgcsl nothing to clone; set it above 0.")
        check_positive(self, "max_weight")
        if not (0 <= self.best_percentile < 100 and self.percentile_step >= 0):
            raise MerlinError(
                "best_percentile, percentile_step: the percentile must be in [0, 100), "
                "and its step must not be negative."
            )

    def init(self, key: PRNGKeyArray, spec: Spec) -> WGCSLState:
        rows = max(1, QUEUE // self.batch_size) if self.best_percentile > 0 else 0
        return WGCSLState(
            actor_critic=init_actor_critic(self, spec, key),
            advantages=jnp.full((rows, self.batch_size), jnp.inf, jnp.float32),
            updates=jnp.int32(0),
        )

    def update(
        self, state: WGCSLState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[WGCSLState, Metrics]:
        nets = state.actor_critic
        x, next_x = transitions(nets.policy, batch, batch.only)
        action = nets.policy.in_units(batch.action)
        reward = sparse_reward(batch.next_achieved_goal, batch.goal, nets.tolerance)
        target = td_target(reward, nets.next_value(next_x), self.discount)
        expected = target
        if not self.slow_advantage:
            own = value(nets.critic, next_x, act(nets.policy.net, next_x))
            expected = td_target(reward, own, self.discount)

        def critic_loss(critic: Net) -> Float[Array, ""]:
            return jnp.mean((value(critic, x, action) - target) ** 2)

        def policy_loss(net: Net) -> tuple[Float[Array, ""], tuple[Array, ...]]:
            mine = act(net, x)
            now = value(nets.critic, x, jax.lax.stop_gradient(mine))
            advantage = expected - possible(now, self.discount)
            weight, queue, threshold = self.weigh(state, batch, advantage)
            loss = jnp.mean(jax.lax.stop_gradient(weight) * squared_error(mine, action))
            return loss, (advantage, weight, queue, threshold)

        critic_error, critic_gradient = jax.value_and_grad(critic_loss)(nets.critic)
        (loss, about), gradient = jax.value_and_grad(policy_loss, has_aux=True)(nets.policy.net)
        advantage, weight, queue, threshold = about
        after = WGCSLState(
            actor_critic=step(self, nets, gradient, critic_gradient),
            advantages=queue,
            updates=state.updates + 1,
        )
        return after, {
            "policy_loss": loss,
            "critic_loss": critic_error,
            "advantage": jnp.mean(advantage),
            "weight": jnp.mean(weight),
            "threshold": threshold,
            "target": jnp.mean(target),
        }

    def weigh(
        self, state: WGCSLState, batch: Batch, advantage: Float[Array, " batch"]
    ) -> tuple[Float[Array, " batch"], Float[Array, "rows batch"], Float[Array, ""]]:
        """The weights of the rows, the updated queue of advantages, and the threshold in it."""
        cloned = batch.only.relabelled.astype(jnp.float32)
        weight = cloned / jnp.maximum(jnp.mean(cloned), 1e-6)
        weight *= advantage_weight(advantage, self.max_weight)
        if self.discount_weight:
            weight *= soon_weight(batch.horizon, self.discount)
        if self.best_percentile == 0:
            return weight, state.advantages, jnp.float32(0)
        row = state.updates % len(state.advantages)
        ranked = jnp.where(batch.only.relabelled, advantage, jnp.inf)
        queue = state.advantages.at[row].set(ranked)
        percentile = jnp.minimum(
            self.best_percentile, self.percentile_step * state.updates.astype(jnp.float32)
        )
        threshold = lowest_of_best(queue, percentile, 1.0 / (1.0 - self.discount))
        return weight * best_weight(advantage, threshold), queue, threshold

    def policy(self, state: WGCSLState) -> DeterministicPolicy:
        return state.actor_critic.policy
