"""GCIVL: a state value by expectile regression, and advantage-weighted cloning.

Kostrikov et al., "Offline Reinforcement Learning with Implicit Q-Learning" (ICLR 2022), without
the Q-function and conditioned on goals, as in OGBench (Park et al., ICLR 2025).

Twin networks V learn the negative discounted number of steps to the goal from transitions alone:

    target     q_i = r + discount * mask * V'_i(s', g)
    advantage  A   = r + discount * mask * min V'(s', g) - mean V'(s, g)
    value      min  sum_i E  |expectile - 1(A < 0)| (q_i - V_i(s, g))^2
    actor      min  -E  min(exp(alpha (mean V(s', g) - mean V(s, g))), 100) log N(a | mean, 1)

' marks target networks. An expectile near 1 estimates the value of the best transition out of a
state. In stochastic environments this is biased towards lucky outcomes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.data.goals import Sampling
from merlin.io.settings import check_types
from merlin.learners.base import check_not_negative
from merlin.learners.ogbench import (
    LONG,
    STITCH,
    ExpectileLearner,
    Twins,
    actor_goals,
    awr_loss,
    cloning_log_prob,
    evaluate_twins,
    inputs_of,
    ivl_loss,
    make_actor,
    make_twins,
)
from merlin.policies.goal import ClippedPolicy, policy_fields, transitions
from merlin.types import Batch, Metrics, Spec


@final
@dataclass(frozen=True)
class GCIVL(ExpectileLearner[Twins]):
    """Goal-conditioned implicit V-learning."""

    alpha: float = 10.0  # inverse temperature of the advantage weights

    by_dataset: ClassVar[Mapping[str, Mapping[str, Any]]] = {**LONG, **STITCH}

    def __post_init__(self) -> None:
        check_types(self)
        check_not_negative(self, "alpha")
        super().__post_init__()

    @property
    def sampling(self) -> Sampling:
        return Sampling({"value": self.value_goals, "actor": actor_goals(self.actor_random)})

    def networks(self, key: PRNGKeyArray, spec: Spec) -> tuple[ClippedPolicy, Twins]:
        actor_key, value_key = jax.random.split(key)
        net = make_actor(inputs_of(spec), self.hidden, spec.action_dim, key=actor_key)
        twins = make_twins(inputs_of(spec), self.hidden, key=value_key)
        return ClippedPolicy(**policy_fields(spec), net=net), twins

    def followed(self, value: Twins) -> Twins:
        return value

    def loss(
        self, policy: ClippedPolicy, value: Twins, target: Twins, batch: Batch
    ) -> tuple[Float[Array, ""], Metrics]:
        goals = batch.goals["value"]
        x, next_x = transitions(policy, batch, goals)
        values = evaluate_twins(value, x)
        value_loss = ivl_loss(
            values,
            evaluate_twins(target, x),
            evaluate_twins(target, next_x),
            goals.reached,
            discount=self.discount,
            expectile=self.expectile,
        )
        x, next_x = transitions(policy, batch, batch.goals["actor"])
        fixed = jax.lax.stop_gradient(value)
        now, then = (jnp.mean(evaluate_twins(fixed, rows), axis=0) for rows in (x, next_x))
        log_prob, _ = cloning_log_prob(policy, x, batch)
        actor_loss = awr_loss(then - now, log_prob, self.alpha)
        return value_loss + actor_loss, {
            "value_loss": value_loss,
            "actor_loss": actor_loss,
            "value": jnp.mean(values),
            "advantage": jnp.mean(then - now),
        }
