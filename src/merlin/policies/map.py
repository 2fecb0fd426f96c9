"""A policy that follows the waypoints of a map."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from merlin.io.observations import checked
from merlin.policies.base import Policy
from merlin.policies.critic import CriticPolicy
from merlin.types import Map


class Reach(NamedTuple):
    """What the map predicts about a goal before an episode starts."""

    reachable: Any  # whether recorded passages lead to the goal's place
    steps: Any  # length of the shortest path; -1 if there is none


class MapPolicy(Policy):
    """Gives an executor the next waypoint on the way to the goal, and the number of steps to it.

    Close to the goal, or if the map has no path to it, the executor gets the goal itself, without
    a horizon.
    """

    executor: CriticPolicy
    map: Map
    least: int = eqx.field(static=True)  # lower bound on the executor's horizon

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
        return replace(self, executor=replace(self.executor, temperature=temperature))

    def act(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " action"]:
        """Act towards the next waypoint. A given horizon replaces that of the map.

        Without a key, the policy acts without noise.
        """
        observation, goal = jnp.asarray(observation), jnp.asarray(goal)
        here, there = self.place(observation[self.map.phi]), self.place(goal)
        ahead = self.map.ahead[here, there]
        towards = jnp.where(ahead < 0, goal, self.map.centres[ahead])
        executor = self.executor if key is not None else self.executor.with_temperature(0.0)
        if horizon is not None:
            return executor.act(observation, towards, horizon, key)
        steps = jnp.maximum(self.map.told[here, there], self.least).astype(jnp.float32)
        on_the_way = executor.act(observation, towards, steps, key)
        return jnp.where(ahead < 0, executor.act(observation, goal), on_the_way)

    def judged(
        self, observation: Float[Array, " observation"], goal: Float[Array, " goal"]
    ) -> tuple[Float[Array, "proposals action"], Float[Array, " proposals"]]:
        """The executor's proposals and their costs; infinite if it heads for a waypoint."""
        mixture, actions = self.executor.proposals(observation, goal)
        costs = self.executor.costs(observation, goal, mixture, actions)
        near = self.map.ahead[self.place(observation[self.map.phi]), self.place(goal)] < 0
        return jnp.where(near, actions, jnp.inf), costs

    def place(self, goal: Float[Array, "*batch goal"]) -> Int[Array, "*batch"]:
        """The place to which a goal belongs."""
        off = goal[..., None, :] - self.map.centres
        return jnp.argmin(jnp.sum(jnp.square(off), axis=-1), axis=-1)

    def reach(self, observation: Any, goal: Any) -> Reach:
        """Whether the map has a path from a state to a goal, and its number of steps."""
        shapes = self.executor.input_shapes
        assert shapes is not None
        state = jnp.asarray(checked(observation, shapes[0], "observation"))
        wanted = jnp.asarray(checked(goal, shapes[1], "goal"))
        steps = self.map.steps[self.place(state[..., self.map.phi]), self.place(wanted)]
        return Reach(steps >= 0, steps)
