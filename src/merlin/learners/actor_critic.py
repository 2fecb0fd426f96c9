"""A deterministic actor and a critic with slow copies: what WGCSL and Actionable Models train.

The critic learns minus the discounted number of steps away from the goal (see `merlin.values`).
For that it must know when a goal is reached, hence the tolerance.
"""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.errors import MerlinError
from merlin.learners.base import Sized, check_settings
from merlin.learners.policies import DeterministicPolicy, make_policy, with_net
from merlin.nets import descend, polyak
from merlin.types import Spec
from merlin.values import act, value
from merlin.vision import Net, make_net

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


@runtime_checkable
class Valued(Sized, Protocol):
    """The hyperparameters that methods with a critic have."""

    @property
    def discount(self) -> float: ...

    @property
    def target_keep(self) -> float: ...

    @property
    def tolerance(self) -> float | None: ...


def check_values(learner: Valued) -> None:
    """Refuse settings that no critic can be learned with."""
    check_settings(learner)
    check_discount(learner.discount, learner.target_keep)
    if learner.tolerance is not None and not learner.tolerance >= 0:
        raise MerlinError(f"tolerance: {learner.tolerance} is no distance from 0 up.")


def check_discount(discount: float, target_keep: float) -> None:
    if not 0 < discount < 1:
        raise MerlinError(f"discount: {discount} is not between 0 and 1.")
    if not 0 <= target_keep < 1:
        raise MerlinError(
            f"target_keep: {target_keep} is not from 0 to below 1; "
            "it is the share of the slow copies that an update keeps."
        )


def init_actor_critic(
    learner: Valued, optimiser: optax.GradientTransformation, spec: Spec, key: PRNGKeyArray
) -> ActorCritic:
    tolerance = spec.tolerance if learner.tolerance is None else learner.tolerance
    if tolerance is None:
        raise MerlinError(
            "tolerance: the data names no task that says how near to a goal counts as reached; "
            "say it yourself, e.g. --set tolerance=0.05."
        )
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
        policy_optimiser=optimiser.init(policy.net),
        critic_optimiser=optimiser.init(critic),
        tolerance=jnp.float32(tolerance),
    )


def step(
    state: ActorCritic,
    optimiser: optax.GradientTransformation,
    policy_gradient: Net,
    critic_gradient: Net,
    keep: float,
) -> ActorCritic:
    """Move both networks down their gradients, then the slow copies towards them."""
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
