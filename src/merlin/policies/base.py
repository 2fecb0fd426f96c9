"""What every policy is."""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from merlin.errors import MerlinError
from merlin.io.observations import batch_size, checked, state_and_goal
from merlin.nets.layers import ActionRange, Normaliser
from merlin.types import Spec


class Policy(eqx.Module):
    """A pytree that acts: unbatched, callers vmap.

    Callers that play whole episodes `begin` with an empty memory and `step` from there. To call a
    policy is to act as in the first step of an episode. Subclasses say how to `act`.
    """

    @abc.abstractmethod
    def act(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " action"]:
        """An action for one observation and one goal, within the bounds of actions."""

    def __call__(
        self,
        observation: Any,
        goal: Any = None,
        horizon: Any = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "*batch action"]:
        """An action, or one for every row of a batch.

        Call it with an observation and a goal, or with Gymnasium's dict of `observation` and
        `desired_goal`. `horizon` is the number of steps within which the goal should be reached,
        None for the one the policy was made with. `key` is needed only by policies that act at
        random.
        """
        state, wanted = state_and_goal(observation, goal)
        shapes = self.input_shapes
        if shapes is None or any(isinstance(x, Tracer) for x in (state, wanted, horizon)):
            return self.act(state, wanted, horizon, key)
        state, wanted = checked(state, shapes[0], "observation"), checked(wanted, shapes[1], "goal")
        parts = {"observation": (state, len(shapes[0])), "goal": (wanted, len(shapes[1]))}
        if horizon is not None:
            horizon = checked(horizon, (), "horizon")
            parts["horizon"] = (horizon, 0)
        rows = batch_size(parts)
        if rows is None:
            return self.act(state, wanted, horizon, key)
        axes = {name: 0 if x.ndim > dimensions else None for name, (x, dimensions) in parts.items()}
        keys = None if key is None else jax.random.split(key, rows)
        in_axes = axes["observation"], axes["goal"], axes.get("horizon"), None if key is None else 0
        return jax.vmap(self.act, in_axes)(state, wanted, horizon, keys)

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The shapes of an observation and of a goal; None if it does not know them."""
        return None

    @property
    def temperature(self) -> float | None:
        """How much of its own randomness the policy acts with; None if it has none.

        A policy that has some declares it as a static field with a default.
        """
        return None

    def log_prob(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        action: ArrayLike,
        horizon: ArrayLike | None = None,
    ) -> Float[Array, ""] | None:
        """The log density of an action; None if the policy is no distribution."""
        return None

    def steps_to_goal(self, observation: ArrayLike, goal: ArrayLike) -> Float[Array, ""] | None:
        """Expected steps to a goal that is reached; None if the policy knows no distance."""
        return None

    @property
    def own_horizon(self) -> int | None:
        """The horizon that it acts for when it is told none; None if it acts for no horizon."""
        return None

    @property
    def constants(self) -> Mapping[str, Any]:
        """What acting with it takes beside its arrays and settings, which its file tells.

        Empty for policies that only JAX runs.
        """
        return {}

    def with_temperature(self, temperature: float) -> "Policy":
        """The same policy with another temperature."""
        if self.temperature is None:
            raise MerlinError("temperature: this policy has none; leave it out.")
        fields: dict[str, Any] = {"temperature": temperature}
        return dataclasses.replace(self, **fields)

    def begin(self) -> Any:
        """The memory before an episode: a pytree of arrays, empty if nothing is remembered."""
        return ()

    def step(
        self,
        memory: Any,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> tuple[Float[Array, " action"], Any]:
        """An action, and the memory for the next step."""
        return self.act(observation, goal, horizon, key), memory


class FunctionPolicy(Policy):
    """Any function of observation, goal, horizon and key, as a policy."""

    function: Callable[..., Float[Array, " action"]]

    def act(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " action"]:
        return self.function(observation, goal, horizon, key)


def as_policy(acting: Policy | Callable[..., Float[Array, " action"]]) -> Policy:
    """A policy, or a function made one."""
    return acting if isinstance(acting, Policy) else FunctionPolicy(acting)


class DiffusionPolicy(Policy):
    """What policies share that denoise from standardised states and goals, and from a key."""

    observation_normaliser: Normaliser
    goal_normaliser: Normaliser
    actions: ActionRange

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.observation_normaliser.shape, self.goal_normaliser.shape

    def inputs(
        self, observation: ArrayLike, goal: ArrayLike
    ) -> tuple[Float[Array, " observation"], Float[Array, " goal"]]:
        """State and goal, standardised."""
        state = self.observation_normaliser(jnp.asarray(observation))
        return state, self.goal_normaliser(jnp.asarray(goal))


def vector_inputs(spec: Spec, who: str) -> dict[str, Any]:
    """The fields of `DiffusionPolicy` for data as `spec` describes it, which must be vectors."""
    if spec.has_images:
        raise MerlinError(f"observations: are images; {who} learns from their latents.")
    return {
        "observation_normaliser": Normaliser(spec.observation_moments),
        "goal_normaliser": Normaliser(spec.goal_moments),
        "actions": ActionRange(spec.action_low, spec.action_high),
    }


def require_key(key: PRNGKeyArray | None) -> PRNGKeyArray:
    """For policies that cannot act without randomness."""
    if key is None:
        raise ValueError("a diffusion policy starts from noise: give it a key")
    return key
