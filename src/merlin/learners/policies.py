"""What policies share: normalised inputs, a network, actions within their bounds."""

from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from merlin.nets import horizon_embedding
from merlin.types import Batch, Spec
from merlin.vision import Inputs, Net, Pixels, goal_inputs, make_net, observation_inputs

HORIZON_DIM = 32


class GoalPolicy(eqx.Module):
    """A network on (observation, goal, horizon); what its outputs mean is up to who acts on them.

    `horizon` is what the policy is told when nobody says; None if its network has no input for it.
    """

    observation_normaliser: Inputs
    goal_normaliser: Inputs
    action_centre: Float[Array, " action"]
    action_scale: Float[Array, " action"]
    net: Net
    horizon: int | None = eqx.field(static=True)
    max_period: float = eqx.field(static=True)

    def embed(self, horizon: ArrayLike | None) -> Float[Array, " embedding"]:
        """The horizon as the network sees it: nothing, if it is trained without."""
        if self.horizon is None:
            return jnp.zeros(0)
        told = jnp.asarray(self.horizon if horizon is None else horizon, jnp.float32)
        return horizon_embedding(told, self.max_period, HORIZON_DIM)

    def embed_all(self, horizons: Float[Array, " batch"]) -> Float[Array, "batch embedding"]:
        """The same for a batch of whole numbers, fewer than rows: each is embedded once."""
        embeddings = jax.vmap(self.embed)(jnp.arange(self.max_period + 1))
        return embeddings[horizons.astype(jnp.int32)]

    def inputs(
        self,
        observation: Array,
        goal: Array,
        embedding: Float[Array, " embedding"],
    ) -> Float[Array, " inputs"]:
        """What the network is given."""
        return jnp.concatenate(
            [self.observation_normaliser(observation), self.goal_normaliser(goal), embedding]
        )

    def goal_of(self, batch: Batch) -> Array:
        """The goals of a batch, as vectors or images: as the policy is told them."""
        told_images = isinstance(self.goal_normaliser, Pixels)
        return batch.goal_observation if told_images else batch.goal

    def state_goal(self, observation: Array, goal: Array) -> Float[Array, "batch inputs"]:
        """A batch of states and goals as critics are given them, without a horizon."""
        return jax.vmap(self.inputs, (0, 0, None))(observation, goal, jnp.zeros(0))

    def within_bounds(self, raw: Float[Array, " action"]) -> Float[Array, " action"]:
        """Squash the network's outputs into the bounds of actions."""
        return self.action_centre + self.action_scale * jnp.tanh(raw)

    def clip(self, action: Float[Array, " action"]) -> Float[Array, " action"]:
        """Into the bounds of actions."""
        low, high = self.action_centre - self.action_scale, self.action_centre + self.action_scale
        return jnp.clip(action, low, high)

    def with_noise(
        self,
        action: Float[Array, " action"],
        std: Float[Array, " action"],
        temperature: float,
        key: PRNGKeyArray | None,
    ) -> Float[Array, " action"]:
        """The action, with normal noise of so many deviations."""
        if temperature == 0.0:
            return action
        if key is None:
            raise ValueError("a policy with a temperature samples: give it a key")
        return self.clip(action + temperature * std * jax.random.normal(key, action.shape))

    def in_units(self, action: Float[Array, "*batch action"]) -> Float[Array, "*batch action"]:
        """Actions in units of their bounds, -1 to 1; 0 where the bounds leave no choice."""
        free = self.action_scale > 0
        scale = jnp.where(free, self.action_scale, 1.0)
        return jnp.where(free, (action - self.action_centre) / scale, 0.0)


class DeterministicPolicy(GoalPolicy):
    """Acts on the squashed outputs of its network."""

    def __call__(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " action"]:
        x = self.inputs(jnp.asarray(observation), jnp.asarray(goal), self.embed(horizon))
        return self.within_bounds(self.net(x))


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
    """A policy with a fresh network for data as `spec` describes it; `more` are its own fields."""
    extra = 0 if horizon is None else HORIZON_DIM
    fields: dict[str, Any] = {
        "observation_normaliser": observation_inputs(spec),
        "goal_normaliser": goal_inputs(spec),
        "action_centre": jnp.asarray((spec.action_high + spec.action_low) / 2),
        "action_scale": jnp.asarray((spec.action_high - spec.action_low) / 2),
        "net": make_net(spec, hidden, outputs, extra=extra, key=key),
        "horizon": horizon,
        "max_period": float(spec.max_horizon),
        **more,
    }
    return kind(**fields)


def with_net(policy: Kind, net: Net) -> Kind:
    """The same policy with another network."""
    return eqx.tree_at(lambda p: p.net, policy, net)


def squared_error(
    action: Float[Array, "batch action"], wanted: Float[Array, "batch action"]
) -> Float[Array, " batch"]:
    """Mean over the dimensions of an action, which are in units of their bounds."""
    return jnp.mean((action - wanted) ** 2, axis=-1)


def transitions(
    policy: GoalPolicy, batch: Batch, following: Batch | None = None
) -> tuple[Float[Array, "batch inputs"], Float[Array, "batch inputs"]]:
    """States and next states with their goals, as critics are given them.

    The goals of next states are those of the batch `following`, if they differ.
    """
    return (
        policy.state_goal(batch.observation, policy.goal_of(batch)),
        policy.state_goal(
            batch.next_observation, policy.goal_of(batch if following is None else following)
        ),
    )
