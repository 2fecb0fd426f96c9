"""A mixture policy whose critic chooses among a few proposed actions."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from merlin.nets.cnn import Net
from merlin.nets.layers import mixture_log_prob
from merlin.policies.goal import GOAL_CONSTANTS, HORIZON_DIM, GoalPolicy
from merlin.policies.mixture import (
    HASTE,
    MIXTURE_CONSTANTS,
    SOON,
    Mixture,
    densest,
    log_density,
    mixture_of,
)
from merlin.types import Horizon, Key


class CriticPolicy(GoalPolicy):
    """A mixture over actions, with or without a horizon, and a critic Q(s, a, g).

    With a horizon it acts on the densest component of the mixture for that horizon. Without one,
    the critic chooses among three proposals: the densest component without a horizon, the one for
    a horizon of one step, and twice that action.
    """

    critic: Net
    square_error: Float[Array, ""]  # of the critic, in squared steps
    components: int = eqx.field(static=True)
    caution: float = eqx.field(static=True)
    temperature: float = eqx.field(static=True, default=0.0)

    @property
    def own_horizon(self) -> int | None:
        return None

    @property
    def constants(self) -> Mapping[str, Any]:
        return GOAL_CONSTANTS | MIXTURE_CONSTANTS

    def embed(self, horizon: ArrayLike | None) -> Float[Array, " embedding"]:
        """The horizon embedding; zeros stand for no horizon."""
        return jnp.zeros(HORIZON_DIM) if horizon is None else super().embed(horizon)

    def distribution(self, observation: Array, goal: Array, horizon: Horizon = None) -> Mixture:
        """The mixture over actions, for a horizon or without one."""
        return self.mixture(self.inputs(observation, goal, self.embed(horizon)))

    def mixture(self, x: Float[Array, " inputs"]) -> Mixture:
        """The same as `distribution`, from the network's input."""
        return mixture_of(self, self.net(x), self.components)

    def act(
        self, observation: ArrayLike, goal: ArrayLike, horizon: Horizon = None, key: Key = None
    ) -> Float[Array, " action"]:
        """The critic's choice, or with a horizon the mixture's densest component plus noise."""
        observation, goal = jnp.asarray(observation), jnp.asarray(goal)
        if horizon is None:
            mixture, actions = self.proposals(observation, goal)
            return actions[jnp.argmin(self.costs(observation, goal, mixture, actions))]
        action, std = densest(self.distribution(observation, goal, horizon), self.action_scale)
        return self.with_noise(action, std, self.temperature, key)

    def proposals(
        self, observation: Float[Array, " observation"], goal: Float[Array, " goal"]
    ) -> tuple[Mixture, Float[Array, "proposals action"]]:
        """The mixture without a horizon, and the proposed actions."""
        horizons = jnp.stack([self.embed(None), self.embed(SOON)])
        x = jax.vmap(self.inputs, (None, None, 0))(observation, goal, horizons)
        mixtures = jax.vmap(self.mixture)(x)
        (usual, quick), _ = jax.vmap(densest, (0, None))(mixtures, self.action_scale)
        hurried = self.action_centre + HASTE[:, None] * (quick - self.action_centre)
        mixture = jax.tree.map(lambda rows: rows[0], mixtures)
        return mixture, jax.vmap(self.clip)(jnp.concatenate([usual[None], hurried]))

    def costs(
        self,
        observation: Float[Array, " observation"],
        goal: Float[Array, " goal"],
        mixture: Mixture,
        actions: Float[Array, "proposals action"],
    ) -> Float[Array, " proposals"]:
        """The critic's steps to the goal after each action, minus its weighted log density."""
        x = self.inputs(observation, goal, jnp.zeros(0))

        def cost(action: Float[Array, " action"]) -> Float[Array, ""]:
            value = self.critic(jnp.concatenate([x, self.in_units(action)]))[0]
            likely = log_density(mixture, action, self.action_scale)
            return -value - self.caution * self.square_error * likely

        return jax.vmap(cost)(actions)

    def log_prob(
        self, observation: ArrayLike, goal: ArrayLike, action: ArrayLike, horizon: Horizon = None
    ) -> Float[Array, ""]:
        mixture = self.distribution(jnp.asarray(observation), jnp.asarray(goal), horizon)
        return mixture_log_prob(jnp.asarray(action), *mixture)
