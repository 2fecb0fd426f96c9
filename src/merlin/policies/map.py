"""A policy that heads for one place of a map after the other."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from merlin.io.observations import checked
from merlin.policies.base import Policy
from merlin.types import Map


class Reach(NamedTuple):
    """What a map says of a goal before anything moves."""

    reachable: Any  # whether recorded passages lead to the place of the goal
    steps: Any  # how many steps they took together; -1 if there is no way


class MapPolicy(Policy):
    """Tells an executor the next place on the way to the goal, and the steps it has for it.

    Near the goal, or if the map has no way to it, the executor is told the goal itself.
    """

    executor: Policy
    map: Map
    least: int = eqx.field(static=True)  # the fewest steps that the executor is told

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        return self.executor.input_shapes

    @property
    def constants(self) -> Mapping[str, Any]:
        return self.executor.constants

    @property
    def temperature(self) -> float | None:
        return self.executor.temperature

    def with_temperature(self, temperature: float) -> "MapPolicy":
        return replace(self, executor=self.executor.with_temperature(temperature))

    def act(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " action"]:
        """A horizon that is given is told to the executor in place of the map's.

        Without a key it acts without noise.
        """
        observation, goal = jnp.asarray(observation), jnp.asarray(goal)
        here, there = self.place(observation[self.map.phi]), self.place(goal)
        ahead = self.map.ahead[here, there]
        towards = jnp.where(ahead < 0, goal, self.map.centres[ahead])
        if horizon is None:
            horizon = jnp.maximum(self.map.told[here, there], self.least).astype(jnp.float32)
        executor = self.executor if key is not None else self.executor.with_temperature(0.0)
        return executor.act(observation, towards, horizon, key)

    def place(self, goal: Float[Array, "*batch goal"]) -> Int[Array, "*batch"]:
        """The place that a goal belongs to."""
        off = goal[..., None, :] - self.map.centres
        return jnp.argmin(jnp.sum(jnp.square(off), axis=-1), axis=-1)

    def reach(self, observation: Any, goal: Any) -> Reach:
        """Whether the map has a way from a state to a goal, and its steps."""
        shapes = self.executor.input_shapes
        assert shapes is not None
        state = jnp.asarray(checked(observation, shapes[0], "observation"))
        wanted = jnp.asarray(checked(goal, shapes[1], "goal"))
        steps = self.map.steps[self.place(state[..., self.map.phi]), self.place(wanted)]
        return Reach(steps >= 0, steps)
