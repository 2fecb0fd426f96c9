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
from merlin.learners.base import check_discount, check_not_negative, tuned
from merlin.learners.ogbench import (
    LONG,
    STITCH,
    OGBenchLearner,
    Twins,
    actor_goals,
    awr_loss,
    check_shares,
    cloning_log_prob,
    evaluate_twins,
    inputs_of,
    ivl_loss,
    make_actor,
    make_twins,
    value_goals,
)
from merlin.policies.goal import ClippedPolicy, policy_fields, transitions
from merlin.types import Batch, Metrics, Spec


@final
@dataclass(frozen=True)
class GCIVL(OGBenchLearner[Twins]):
    """Goal-conditioned implicit V-learning."""

    discount: float = tuned(0.99)
    expectile: float = 0.9
    alpha: float = 10.0  # inverse temperature of the advantage weights
    tau: float = 0.005  # target network update rate
    value_current: float = 0.2  # fraction of the value's goals that are already reached
    value_random: float = 0.3  # fraction that are random states; the rest are future states
    actor_random: float = tuned(0.0)  # fraction of the actor's goals that are random states

    by_dataset: ClassVar[Mapping[str, Mapping[str, Any]]] = {**LONG, **STITCH}

    def __post_init__(self) -> None:
        check_types(self)
        check_discount(self.discount)
        check_shares(self, "expectile", "tau", "actor_random")
        check_not_negative(self, "alpha")
        super().__post_init__()

    @property
    def sampling(self) -> Sampling:
        return Sampling(
            {
                "value": value_goals(self.value_current, self.value_random, self.discount),
                "actor": actor_goals(self.actor_random),
            }
        )

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
