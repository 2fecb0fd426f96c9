"""A deterministic actor and a critic with slow copies: what WGCSL and Actionable Models train.

The critic learns minus the discounted number of steps away from the goal (see `nets.td`).
For that it must know when a goal is reached, hence the tolerance.
"""

import abc

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
)
from merlin.nets.cnn import Net, make_net
from merlin.nets.layers import descend, polyak
from merlin.nets.td import act, value
from merlin.policies.goal import DeterministicPolicy, make_policy, with_net
from merlin.types import Spec

TARGET_KEEP = 0.9974
"""The releases keep 0.95 of the slow copies once in 20 updates; this is 0.95 ^ (1 / 20) in each."""


class ActorCritic(eqx.Module):
    """Networks, their slow copies, the optimisers of the former, and how near is reached."""

    policy: DeterministicPolicy
    critic: Net
    target_actor: Net
    target_critic: Net
    policy_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    tolerance: Float[Array, ""]

    def next_value(self, next_x: Float[Array, "batch inputs"]) -> Float[Array, " batch"]:
        """What the slow copies expect from the next states on."""
        return value(self.target_critic, next_x, act(self.target_actor, next_x))


class CriticLearner(Learner):
    """A method that trains such networks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "hidden")
        check_discount(self.discount)
        check_below_one(self, "target_keep")
        if self.tolerance is not None:
            check_not_negative(self, "tolerance")

    @property
    @abc.abstractmethod
    def hidden(self) -> tuple[int, ...]: ...

    @property
    @abc.abstractmethod
    def discount(self) -> float: ...

    @property
    @abc.abstractmethod
    def target_keep(self) -> float:
        """The share of the slow copies that an update keeps."""

    @property
    @abc.abstractmethod
    def tolerance(self) -> float | None:
        """How near to a goal counts as reached; None: as the task says."""

    @property
    @abc.abstractmethod
    def hindsight_ratio(self) -> float:
        """The share of goals taken from the episode's own future."""

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
    """Move both networks down their gradients, then the slow copies towards them."""
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
