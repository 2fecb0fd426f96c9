"""The policy interface."""

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
from merlin.types import Horizon, Key, Spec


@eqx.filter_jit
def _act(
    policy: "Policy",
    observation: Any,
    goal: Any,
    horizon: Any,
    key: Any,  # one, or one for each row of a batch
    in_axes: tuple[int | None, ...] | None = None,
) -> Float[Array, "*batch action"]:
    """`policy.act` as one program, for one state or for a batch; `in_axes` is that of `jax.vmap`.

    A program for each operation takes six times as long to compile and a hundred times to run.
    """
    act = policy.act if in_axes is None else jax.vmap(policy.act, in_axes)
    return act(observation, goal, horizon, key)


class Policy(eqx.Module):
    """A pytree that acts. Unbatched; use `jax.vmap`.

    To play an episode, `begin` with an empty memory and call `step` repeatedly. Calling a policy
    acts as in the first step of an episode. Subclasses implement `act`.
    """

    @abc.abstractmethod
    def act(
        self, observation: ArrayLike, goal: ArrayLike, horizon: Horizon = None, key: Key = None
    ) -> Float[Array, " action"]:
        """An action for one observation and one goal, within the action bounds."""

    def __call__(
        self,
        observation: Any,
        goal: Any = None,
        horizon: Any = None,
        key: Key = None,
    ) -> Float[Array, "*batch action"]:
        """Return an action, or one for every row of a batch.

        Call it with an observation and a goal, or with Gymnasium's dict of `observation` and
        `desired_goal`. `horizon` is the number of steps in which to reach the goal; None uses the
        policy's default. Only stochastic policies need a `key`.
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
            return _act(self, state, wanted, horizon, key)
        axes = {name: 0 if x.ndim > dimensions else None for name, (x, dimensions) in parts.items()}
        keys = None if key is None else jax.random.split(key, rows)
        in_axes = axes["observation"], axes["goal"], axes.get("horizon"), None if key is None else 0
        return _act(self, state, wanted, horizon, keys, in_axes)

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The shapes of an observation and a goal; None if unknown."""
        return None

    @property
    def temperature(self) -> float | None:
        """The scale of the policy's sampling noise; None if the policy is deterministic.

        A stochastic policy declares it as a static field with a default.
        """
        return None

    def log_prob(
        self, observation: ArrayLike, goal: ArrayLike, action: ArrayLike, horizon: Horizon = None
    ) -> Float[Array, ""] | None:
        """The log density of an action; None if the policy defines no distribution."""
        return None

    @property
    def own_horizon(self) -> int | None:
        """The default horizon; None if the policy acts without one unless it is given."""
        return None

    @property
    def takes_horizon(self) -> bool:
        """Whether actions depend on a given horizon; a policy that ignores it overrides this."""
        return True

    @property
    def constants(self) -> Mapping[str, Any]:
        """Constants, besides its arrays and settings, that a deployed policy needs in its file.

        Empty for policies that only run in JAX.
        """
        return {}

    def with_temperature(self, temperature: float) -> "Policy":
        """A copy of the policy with another temperature."""
        if self.temperature is None:
            raise MerlinError("temperature: this policy has none; leave it out.")
        fields: dict[str, Any] = {"temperature": temperature}
        return dataclasses.replace(self, **fields)

    def begin(self) -> Any:
        """The memory at the start of an episode: a pytree of arrays, empty if it has none."""
        return ()

    def step(
        self,
        memory: Any,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: Horizon = None,
        key: Key = None,
    ) -> tuple[Float[Array, " action"], Any]:
        """Return an action and the memory for the next step."""
        return self.act(observation, goal, horizon, key), memory


class FunctionPolicy(Policy):
    """A policy from any function of observation, goal, horizon and key."""

    function: Callable[..., Float[Array, " action"]]

    def act(
        self, observation: ArrayLike, goal: ArrayLike, horizon: Horizon = None, key: Key = None
    ) -> Float[Array, " action"]:
        return self.function(observation, goal, horizon, key)


def as_policy(acting: Policy | Callable[..., Float[Array, " action"]]) -> Policy:
    """Return a policy unchanged, or wrap a function as a policy."""
    return acting if isinstance(acting, Policy) else FunctionPolicy(acting)


class DiffusionPolicy(Policy):
    """Base class of policies that sample by diffusion from standardised states and goals."""

    observation_normaliser: Normaliser
    goal_normaliser: Normaliser
    actions: ActionRange

    @property
    def takes_horizon(self) -> bool:
        return False

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self.observation_normaliser.shape, self.goal_normaliser.shape

    def inputs(
        self, observation: ArrayLike, goal: ArrayLike
    ) -> tuple[Float[Array, " observation"], Float[Array, " goal"]]:
        """The standardised state and goal."""
        state = self.observation_normaliser(jnp.asarray(observation))
        return state, self.goal_normaliser(jnp.asarray(goal))


def vector_inputs(spec: Spec, who: str) -> dict[str, Any]:
    """The fields of a `DiffusionPolicy` for the given spec, which must describe vectors."""
    if spec.has_images:
        raise MerlinError(f"observations: are images; {who} learns from their latents.")
    return {
        "observation_normaliser": Normaliser(spec.observation_moments),
        "goal_normaliser": Normaliser(spec.goal_moments),
        "actions": ActionRange(spec.action_low, spec.action_high),
    }


def require_key(key: Key) -> PRNGKeyArray:
    """Raise an error if a stochastic policy is called without a key."""
    if key is None:
        raise MerlinError(
            "key: is missing; a diffusion policy starts from noise, so pass key=jax.random.key(0)."
        )
    return key
