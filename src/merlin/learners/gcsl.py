"""GCSL: clone the actions that led to goals, with every future state as a goal.

Ghosh et al., "Learning to Reach Goals via Iterated Supervised Learning" (ICLR 2021); offline and
with continuous actions as in the comparisons of Yang et al. (ICLR 2022) and Ma et al. (2022).

Whatever an episode achieved later is a goal that the actions before it led to. A deterministic
policy regresses on those actions:

    min  E  |policy(s, g) - a|^2.

It knows neither how far away the goal is nor how sure it may be of an action. With a horizon it is
told the former: Merlin without its variance.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.data.relabel import Relabel
from merlin.learners.base import check_horizon, check_settings, tuned
from merlin.learners.policies import DeterministicPolicy, make_policy, squared_error, with_net
from merlin.nets import descend
from merlin.types import Batch, Metrics, Spec
from merlin.values import act
from merlin.vision import Net


class GCSLState(eqx.Module):
    """The policy and its optimiser."""

    policy: DeterministicPolicy
    optimiser: optax.OptState


@dataclass(frozen=True)
class GCSL:
    """Goal-conditioned supervised learning."""

    hindsight_ratio: float = 1.0  # share of goals taken from the episode's own future
    horizon: int | None = None  # steps told when acting; None trains without, as published
    hidden: tuple[int, ...] = tuned((256, 256, 256))
    learning_rate: float = 5e-4
    batch_size: int = 512

    def __post_init__(self) -> None:
        check_settings(self)
        check_horizon(self.horizon)
        _ = self.relabel

    @property
    def relabel(self) -> Relabel:
        return Relabel(hindsight_ratio=self.hindsight_ratio, uniform_time=True)

    def init(self, key: PRNGKeyArray, spec: Spec) -> GCSLState:
        policy = make_policy(
            DeterministicPolicy,
            spec,
            self.hidden,
            outputs=spec.action_dim,
            horizon=self.horizon,
            key=key,
        )
        return GCSLState(policy=policy, optimiser=self._optimiser.init(policy.net))

    def update(
        self, state: GCSLState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[GCSLState, Metrics]:
        loss, gradient = jax.value_and_grad(self.loss)(state.policy.net, state.policy, batch)
        net, optimiser = descend(self._optimiser, state.policy.net, gradient, state.optimiser)
        return GCSLState(policy=with_net(state.policy, net), optimiser=optimiser), {"loss": loss}

    def policy(self, state: GCSLState) -> DeterministicPolicy:
        return state.policy

    @staticmethod
    def loss(net: Net, policy: DeterministicPolicy, batch: Batch) -> Float[Array, ""]:
        """Squared error of actions in units of their bounds; only `net` is differentiated."""
        embedding = policy.embed_all(batch.horizon)
        x = jax.vmap(policy.inputs)(batch.observation, policy.goal_of(batch), embedding)
        return jnp.mean(squared_error(act(net, x), policy.in_units(batch.action)))

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)
