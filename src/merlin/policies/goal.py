"""Base classes of network policies: normalised inputs, and actions within their bounds."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from merlin.nets.cnn import FILTERS, PADDING, Net, goal_inputs, make_net, observation_inputs
from merlin.nets.layers import Normaliser, horizon_embedding
from merlin.policies.base import Policy
from merlin.types import Batch, DrawnGoals, Spec

HORIZON_DIM = 32
MIN_STD = 1e-5
"""Added to every standard deviation that a network predicts."""
GOAL_CONSTANTS = {
    "horizon_dim": HORIZON_DIM,
    "min_std": MIN_STD,
    "strides": [stride for *_, stride in FILTERS],
    "padding": PADDING,
}
"""Constants of these policies that a deployed policy needs."""


class GoalPolicy(Policy):
    """A network on (observation, goal, horizon); subclasses define the meaning of its outputs.

    `horizon` is the default horizon, or None if the network takes no horizon.
    """

    observation_normaliser: Normaliser
    goal_normaliser: Normaliser
    action_centre: Float[Array, " action"]
    action_scale: Float[Array, " action"]
    net: Net
    horizon: int | None = eqx.field(static=True)
    max_period: float = eqx.field(static=True)

    @property
    def own_horizon(self) -> int | None:
        return self.horizon

    @property
    def takes_horizon(self) -> bool:
        return self.horizon is not None

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.observation_normaliser.shape, self.goal_normaliser.shape

    @property
    def constants(self) -> Mapping[str, Any]:
        return GOAL_CONSTANTS

    def embed(self, horizon: ArrayLike | None) -> Float[Array, " embedding"]:
        """The horizon embedding; empty if the network takes no horizon."""
        if self.horizon is None:
            return jnp.zeros(0)
        told = jnp.asarray(self.horizon if horizon is None else horizon, jnp.float32)
        return horizon_embedding(told, self.max_period, HORIZON_DIM)

    def embed_all(self, horizons: Float[Array, " batch"]) -> Float[Array, "batch embedding"]:
        """Embed a batch of integer horizons, clipped to the period, by a lookup per value."""
        embeddings = jax.vmap(self.embed)(jnp.arange(self.max_period + 1))
        return embeddings[jnp.minimum(horizons, self.max_period).astype(jnp.int32)]

    def inputs(
        self,
        observation: Array,
        goal: Array,
        embedding: Float[Array, " embedding"],
    ) -> Float[Array, " inputs"]:
        """The network's input."""
        return jnp.concatenate(
            [self.observation_normaliser(observation), self.goal_normaliser(goal), embedding]
        )

    def told(self, drawn: DrawnGoals) -> Array:
        """The goals of a batch in the form the policy takes them: vectors or images."""
        return drawn.observation if self.goal_normaliser.takes_images else drawn.goal

    def batch_inputs(self, observation: Array, drawn: DrawnGoals) -> Float[Array, "batch inputs"]:
        """The network's inputs for a batch."""
        embedding = self.embed_all(drawn.horizon)
        return jax.vmap(self.inputs)(observation, self.told(drawn), embedding)

    def state_goal(self, observation: Array, goal: Array) -> Float[Array, "batch inputs"]:
        """States and goals of a batch without a horizon, the input of critics."""
        return jax.vmap(self.inputs, (0, 0, None))(observation, goal, jnp.zeros(0))

    def within_bounds(self, raw: Float[Array, " action"]) -> Float[Array, " action"]:
        """Squash the network's outputs into the action bounds."""
        return self.action_centre + self.action_scale * jnp.tanh(raw)

    def clip(self, action: Float[Array, " action"]) -> Float[Array, " action"]:
        """Clip to the action bounds."""
        low, high = self.action_centre - self.action_scale, self.action_centre + self.action_scale
        return jnp.clip(action, low, high)

    def with_noise(
        self,
        action: Float[Array, " action"],
        std: Float[Array, " action"],
        temperature: float,
        key: PRNGKeyArray | None,
    ) -> Float[Array, " action"]:
        """The action plus normal noise of `temperature` standard deviations."""
        if temperature == 0.0:
            return action
        if key is None:
            raise ValueError("a policy with a temperature samples: give it a key")
        return self.clip(action + temperature * std * jax.random.normal(key, action.shape))

    def in_units(self, action: Float[Array, "*batch action"]) -> Float[Array, "*batch action"]:
        """Scale actions to [-1, 1]; 0 where the bounds coincide."""
        free = self.action_scale > 0
        scale = jnp.where(free, self.action_scale, 1.0)
        return jnp.where(free, (action - self.action_centre) / scale, 0.0)


class DeterministicPolicy(GoalPolicy):
    """Acts on the squashed outputs of its network."""

    def act(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " action"]:
        x = self.inputs(jnp.asarray(observation), jnp.asarray(goal), self.embed(horizon))
        return self.within_bounds(self.net(x))


class ClippedPolicy(GoalPolicy):
    """Acts on the outputs of its GELU network, clipped to the action bounds.

    This is the mode of a Gaussian with constant standard deviation.
    """

    @property
    def constants(self) -> Mapping[str, Any]:
        return GOAL_CONSTANTS | {"activation": "gelu", "squash": "clip"}

    def mode(
        self, state: Float[Array, " state"], goal: Float[Array, " goal"]
    ) -> Float[Array, " action"]:
        """The mean action, scaled to [-1, 1], for a standardised state and goal."""
        return self.net(jnp.concatenate([state, goal]))

    def act(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " action"]:
        state = self.observation_normaliser(jnp.asarray(observation))
        unit = self.mode(state, self.goal_normaliser(jnp.asarray(goal)))
        return self.action_centre + self.action_scale * jnp.clip(unit, -1.0, 1.0)


Kind = TypeVar("Kind", bound=GoalPolicy)


def make_policy(
    kind: type[Kind],
    spec: Spec,
    hidden: Sequence[int],
    *,
    outputs: int,
    horizon: int | None = None,
    key: PRNGKeyArray,
    **more: Any,
) -> Kind:
    """Build a policy with a new network for the given spec; `more` are its other fields."""
    extra = 0 if horizon is None else HORIZON_DIM
    net = make_net(spec, hidden, outputs, extra=extra, key=key)
    return kind(**policy_fields(spec, horizon), net=net, **more)


def policy_fields(spec: Spec, horizon: int | None = None) -> dict[str, Any]:
    """The fields of a `GoalPolicy` for the given spec, except the network."""
    return {
        "observation_normaliser": observation_inputs(spec),
        "goal_normaliser": goal_inputs(spec),
        "action_centre": jnp.asarray((spec.action_high + spec.action_low) / 2),
        "action_scale": jnp.asarray((spec.action_high - spec.action_low) / 2),
        "horizon": horizon,
        "max_period": float(spec.max_horizon),
    }


def with_net(policy: Kind, net: Any) -> Kind:
    """A copy of the policy with another network of the same type."""
    return eqx.tree_at(lambda p: p.net, policy, net)


def squared_error(
    action: Float[Array, "batch action"], wanted: Float[Array, "batch action"]
) -> Float[Array, " batch"]:
    """Mean squared error over action dimensions, for actions scaled to [-1, 1]."""
    return jnp.mean((action - wanted) ** 2, axis=-1)


def transitions(
    policy: GoalPolicy, batch: Batch, goals: DrawnGoals
) -> tuple[Float[Array, "batch inputs"], Float[Array, "batch inputs"]]:
    """States and next states, each with the goal, as input of critics."""
    told = policy.told(goals)
    return (
        policy.state_goal(batch.observation, told),
        policy.state_goal(batch.next_observation, told),
    )
