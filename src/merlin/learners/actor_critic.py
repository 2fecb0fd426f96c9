"""The deterministic actor-critic shared by WGCSL and Actionable Models.

The critic learns the negative discounted number of steps to the goal (see `nets.td`). Its reward
depends on whether the goal is reached, so the learner needs a tolerance.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.data.goals import Sampling, hindsight
from merlin.learners.base import (
    Learner,
    check_below_one,
    check_discount,
    check_not_negative,
    check_sizes,
    known_tolerance,
    tuned,
)
from merlin.nets.cnn import Net, make_net
from merlin.nets.layers import descend, polyak
from merlin.nets.td import act, value
from merlin.policies.goal import DeterministicPolicy, make_policy, with_net
from merlin.types import Spec

TARGET_KEEP = 0.9974
"""The releases apply 0.95 once every 20 updates; this is 0.95 ^ (1 / 20), applied every update."""


class ActorCritic(eqx.Module):
    """Actor, critic, their target networks and optimisers, and the goal tolerance."""

    policy: DeterministicPolicy
    critic: Net
    target_actor: Net
    target_critic: Net
    policy_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    tolerance: Float[Array, ""]

    def next_value(self, next_x: Float[Array, "batch inputs"]) -> Float[Array, " batch"]:
        """Value of the next states under the target networks."""
        return value(self.target_critic, next_x, act(self.target_actor, next_x))


@dataclass(frozen=True)
class CriticLearner(Learner):
    """Base class of methods that train an actor and a critic with target networks."""

    hindsight_ratio: float = 1.0  # fraction of goals relabelled with the episode's future
    tolerance: float | None = None  # distance that counts as reached; None: the task's
    discount: float = 0.98
    target_keep: float = TARGET_KEEP  # fraction of the target networks kept per update (1 - tau)
    hidden: tuple[int, ...] = tuned((256, 256, 256))
    learning_rate: float = 5e-4
    batch_size: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "hidden")
        check_discount(self.discount)
        check_below_one(self, "target_keep")
        if self.tolerance is not None:
            check_not_negative(self, "tolerance")

    @property
    def sampling(self) -> Sampling:
        return hindsight(self.hindsight_ratio, "episodes")


def init_actor_critic(learner: CriticLearner, spec: Spec, key: PRNGKeyArray) -> ActorCritic:
    tolerance = known_tolerance(learner.tolerance, spec)
    policy_key, critic_key = jax.random.split(key)
    policy = make_policy(
        DeterministicPolicy, spec, learner.hidden, outputs=spec.action_dim, key=policy_key
    )
    critic = make_net(spec, learner.hidden, 1, extra=spec.action_dim, key=critic_key)
    return ActorCritic(
        policy=policy,
        critic=critic,
        target_actor=policy.net,
        target_critic=critic,
        policy_optimiser=learner.optimiser.init(policy.net),
        critic_optimiser=learner.optimiser.init(critic),
        tolerance=jnp.float32(tolerance),
    )


def step(
    learner: CriticLearner, state: ActorCritic, policy_gradient: Net, critic_gradient: Net
) -> ActorCritic:
    """Take one optimiser step on both networks, then update the target networks."""
    optimiser, keep = learner.optimiser, learner.target_keep
    net, policy_optimiser = descend(
        optimiser, state.policy.net, policy_gradient, state.policy_optimiser
    )
    critic, critic_optimiser = descend(
        optimiser, state.critic, critic_gradient, state.critic_optimiser
    )
    return ActorCritic(
        policy=with_net(state.policy, net),
        critic=critic,
        target_actor=polyak(state.target_actor, net, keep),
        target_critic=polyak(state.target_critic, critic, keep),
        policy_optimiser=policy_optimiser,
        critic_optimiser=critic_optimiser,
        tolerance=state.tolerance,
    )
