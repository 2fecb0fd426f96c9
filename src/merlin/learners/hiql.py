"""HIQL: a high-level policy proposes subgoals, and a low-level policy reaches them.

Park et al., "HIQL: Offline Goal-Conditioned RL with Latent States as Actions" (NeurIPS 2023), as in
OGBench (Park et al., ICLR 2025).

Twin values V(s, z) are trained as in GCIVL. The goal enters through a low-dimensional
representation z = rep(s, g), scaled to length sqrt(size) and trained by the value loss alone.
For a distant goal, all first actions have nearly the same value, so errors hide the differences
between them. Comparing states several steps ahead is easier. There are therefore two actors, both
trained by cloning with weights exp(alpha A):

    high    proposes a subgoal:  N(rep(s, s_k) | high(s, g), 1),    A = V(s_k, g) - V(s, g)
    low     reaches the subgoal: N(a | low(s, rep(s, s_k)), 1),     A = V(s', s_k) - V(s, s_k)

where s_k is the state k steps ahead, for the high-level actor at most the goal. To act, the
high-level actor's mode is scaled like a representation and passed to the low-level actor, whose
mode is the action.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.data.goals import Goals, Sampling
from merlin.data.offsets import Fixed
from merlin.learners.base import check_discount, check_not_negative, check_sizes, tuned
from merlin.learners.ogbench import (
    LONG,
    MANIPULATION,
    STITCH,
    OGBenchLearner,
    Twins,
    actor_goals,
    awr_loss,
    check_shares,
    evaluate_twins,
    inputs_of,
    ivl_loss,
    make_actor,
    make_twins,
    make_value,
    value_goals,
)
from merlin.nets.layers import MLP
from merlin.nets.td import unit_log_prob
from merlin.policies.goal import ClippedPolicy, policy_fields
from merlin.types import Batch, Metrics, Spec

LEAST_LENGTH = 1e-12


class Levels(eqx.Module):
    """The two actors: one proposes subgoals, the other reaches them."""

    high: MLP
    low: MLP


class HierarchicalPolicy(ClippedPolicy):
    """Gets a subgoal from the high-level actor and an action from the low-level actor."""

    net: Levels  # type: ignore[assignment]

    def mode(
        self, state: Float[Array, " state"], goal: Float[Array, " goal"]
    ) -> Float[Array, " action"]:
        subgoal = unit_length(self.net.high(jnp.concatenate([state, goal])))
        return self.net.low(jnp.concatenate([state, subgoal]))


class Represented(NamedTuple):
    """Twin values of states and goal representations."""

    rep: MLP
    twins: Twins

    def represent(
        self, state: Float[Array, "batch state"], goal: Float[Array, "batch goal"]
    ) -> Float[Array, "batch rep"]:
        return jax.vmap(lambda x: unit_length(self.rep(x)))(jnp.concatenate([state, goal], axis=1))

    def __call__(
        self, state: Float[Array, "batch state"], goal: Float[Array, "batch goal"]
    ) -> Float[Array, "2 batch"]:
        return evaluate_twins(
            self.twins, jnp.concatenate([state, self.represent(state, goal)], axis=1)
        )


@final
@dataclass(frozen=True)
class HIQL(OGBenchLearner[Represented]):
    """Hierarchical implicit Q-learning."""

    discount: float = tuned(0.99)
    expectile: float = 0.7
    subgoal_steps: int = tuned(25)  # steps to the subgoal; 10 for manipulation
    high_alpha: float = 3.0  # inverse temperature of the high-level advantage weights
    low_alpha: float = 3.0  # inverse temperature of the low-level advantage weights
    rep_dim: int = 10  # size of a goal representation
    tau: float = 0.005  # target network update rate
    value_current: float = 0.2  # fraction of the value's goals that are already reached
    value_random: float = 0.3  # fraction that are random states; the rest are future states
    actor_random: float = tuned(0.0)  # fraction of the high actor's goals that are random states

    by_dataset: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **LONG,
        **STITCH,
        **{kind: {"subgoal_steps": 10} for kind in MANIPULATION},
    }

    def __post_init__(self) -> None:
        check_discount(self.discount)
        check_shares(self, "expectile", "tau", "actor_random")
        check_not_negative(self, "high_alpha", "low_alpha")
        check_sizes(self, "rep_dim", "subgoal_steps")
        super().__post_init__()

    @property
    def sampling(self) -> Sampling:
        return Sampling(
            {
                "value": value_goals(self.value_current, self.value_random, self.discount),
                "high": actor_goals(self.actor_random, self.subgoal_steps),
                "low": Goals(future=1.0, offsets=Fixed(self.subgoal_steps)),
            }
        )

    def networks(self, key: PRNGKeyArray, spec: Spec) -> tuple[ClippedPolicy, Represented]:
        high_key, low_key, rep_key, value_key = jax.random.split(key, 4)
        inputs, told = inputs_of(spec), spec.observation_shape[0] + self.rep_dim
        levels = Levels(
            high=make_actor(inputs, self.hidden, self.rep_dim, key=high_key),
            low=make_actor(told, self.hidden, spec.action_dim, key=low_key),
        )
        value = Represented(
            rep=make_value(inputs, self.hidden, self.rep_dim, key=rep_key),
            twins=make_twins(told, self.hidden, key=value_key),
        )
        return HierarchicalPolicy(**policy_fields(spec), net=levels), value

    def followed(self, value: Represented) -> Represented:
        return value

    def loss(
        self, policy: Any, value: Represented, target: Represented, batch: Batch
    ) -> tuple[Float[Array, ""], Metrics]:
        see, aim = policy.observation_normaliser, policy.goal_normaliser
        state, next_state = see(batch.observation), see(batch.next_observation)
        goals, high, low = (batch.goals[name] for name in ("value", "high", "low"))
        goal = aim(goals.goal)
        values = value(state, goal)
        value_loss = ivl_loss(
            values,
            target(state, goal),
            target(next_state, goal),
            goals.reached,
            discount=self.discount,
            expectile=self.expectile,
        )
        assert high.subgoal is not None, "the sampling asks for it"
        assert high.subgoal_observation is not None
        fixed = jax.lax.stop_gradient(value)

        def gained(later: Array, goal: Array) -> Float[Array, " batch"]:
            return jnp.mean(fixed(later, goal) - fixed(state, goal), axis=0)

        goal, subgoal = aim(high.goal), aim(high.subgoal)
        mean = jax.vmap(policy.net.high)(jnp.concatenate([state, goal], axis=1))
        log_prob = unit_log_prob(mean, fixed.represent(state, subgoal))
        advantage = gained(see(high.subgoal_observation), goal)
        high_loss = awr_loss(advantage, log_prob, self.high_alpha)

        subgoal = aim(low.goal)
        told = jnp.concatenate([state, fixed.represent(state, subgoal)], axis=1)
        log_prob = unit_log_prob(jax.vmap(policy.net.low)(told), policy.in_units(batch.action))
        low_loss = awr_loss(gained(next_state, subgoal), log_prob, self.low_alpha)
        return value_loss + high_loss + low_loss, {
            "value_loss": value_loss,
            "high_loss": high_loss,
            "low_loss": low_loss,
            "value": jnp.mean(values),
            "advantage": jnp.mean(advantage),
        }


def unit_length(x: Float[Array, " rep"]) -> Float[Array, " rep"]:
    """Scale a vector so that the mean of its squares is 1."""
    square = jnp.maximum(jnp.sum(x**2), LEAST_LENGTH**2)
    return x * jax.lax.rsqrt(square) * jnp.float32(x.size**0.5)
