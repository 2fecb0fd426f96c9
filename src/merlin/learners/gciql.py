"""GCIQL: Q-learning that never evaluates actions outside the data.

Kostrikov et al., "Offline Reinforcement Learning with Implicit Q-Learning" (ICLR 2022),
conditioned on goals and with a DDPG+BC actor, as in OGBench (Park et al., ICLR 2025).

    value   min  E  |expectile - 1(A < 0)| A^2,    A = min Q'(s, a, g) - V(s, g)
    critic  min  sum_i E  (r + discount * mask * V(s', g) - Q_i(s, a, g))^2
    actor   min  -E min Q(s, mode, g) / E|min Q|  -  alpha E log N(a | mean, 1)     (DDPG+BC)

' marks target networks. The mode is the actor's mean, clipped to the action bounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.data.goals import Sampling
from merlin.io.settings import check_types
from merlin.learners.base import check_not_negative, tuned
from merlin.learners.ogbench import (
    LONG,
    MANIPULATION,
    STITCH,
    ExpectileLearner,
    Twins,
    actor_goals,
    cloning_log_prob,
    evaluate_twins,
    inputs_of,
    make_actor,
    make_twins,
    make_value,
)
from merlin.nets.layers import MLP
from merlin.nets.td import ddpg_bc_loss, estimates, expectile_loss, reach_reward
from merlin.policies.goal import ClippedPolicy, policy_fields, transitions
from merlin.types import Batch, Metrics, Spec


class Critics(NamedTuple):
    """V(s, g) and twin Q(s, a, g)."""

    value: MLP
    twins: Twins


@final
@dataclass(frozen=True)
class GCIQL(ExpectileLearner[Critics]):
    """Goal-conditioned implicit Q-learning."""

    alpha: float = tuned(0.3)  # weight of the cloning term

    by_dataset: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **LONG,
        **STITCH,
        "pointmaze": {"alpha": 0.003},
        **{kind: {"alpha": 1.0} for kind in MANIPULATION},
    }

    def __post_init__(self) -> None:
        check_types(self)
        check_not_negative(self, "alpha")
        super().__post_init__()

    @property
    def sampling(self) -> Sampling:
        return Sampling({"value": self.value_goals, "actor": actor_goals(self.actor_random)})

    def networks(self, key: PRNGKeyArray, spec: Spec) -> tuple[ClippedPolicy, Critics]:
        actor_key, value_key, critic_key = jax.random.split(key, 3)
        inputs = inputs_of(spec)
        net = make_actor(inputs, self.hidden, spec.action_dim, key=actor_key)
        critics = Critics(
            value=make_value(inputs, self.hidden, key=value_key),
            twins=make_twins(inputs + spec.action_dim, self.hidden, key=critic_key),
        )
        return ClippedPolicy(**policy_fields(spec), net=net), critics

    def followed(self, value: Critics) -> Twins:
        return value.twins

    def loss(
        self, policy: ClippedPolicy, value: Critics, target: Twins, batch: Batch
    ) -> tuple[Float[Array, ""], Metrics]:
        goals = batch.goals["value"]
        x, next_x = transitions(policy, batch, goals)
        taken = jnp.concatenate([x, policy.in_units(batch.action)], axis=1)
        advantage = jnp.min(evaluate_twins(target, taken), axis=0) - estimates(value.value, x)
        value_loss = jnp.mean(expectile_loss(advantage, advantage, self.expectile))
        reward, mask = reach_reward(goals.reached)
        next_value = estimates(jax.lax.stop_gradient(value.value), next_x)
        wanted = reward + self.discount * mask * next_value
        estimate = evaluate_twins(value.twins, taken)
        critic_loss = jnp.sum(jnp.mean((wanted - estimate) ** 2, axis=1))
        x = policy.state_goal(batch.observation, batch.goals["actor"].goal)
        log_prob, mode = cloning_log_prob(policy, x, batch)
        fixed = jax.lax.stop_gradient(value.twins)
        q = jnp.min(evaluate_twins(fixed, jnp.concatenate([x, mode], axis=1)), axis=0)
        actor_loss = ddpg_bc_loss(q, log_prob, self.alpha)
        return value_loss + critic_loss + actor_loss, {
            "value_loss": value_loss,
            "critic_loss": critic_loss,
            "actor_loss": actor_loss,
            "q": jnp.mean(q),
        }
