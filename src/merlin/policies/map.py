"""A policy that follows the waypoints of a map."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from merlin.io.observations import checked
from merlin.nets.hazard import Hazard
from merlin.policies.base import Policy
from merlin.policies.critic import CriticPolicy
from merlin.types import Horizon, Key, Map

LEAST_RADIUS = 1e-6
"""The radius of a place whose goals are all equal."""
OUTSIDE = 4.0
"""Rate at which the confidence decays outside a place, per radius."""


class Reach(NamedTuple):
    """Whether a goal is reachable, in how many steps, and with what confidence."""

    reachable: Any  # whether recorded passages lead to the goal's place
    steps: Any  # length of the shortest path; -1 if there is none
    confidence: Any  # that the goal can be reached, from 0 to 1


class MapPolicy(Policy):
    """Gives an executor the next waypoint on the way to the goal, and the number of steps to it.

    Close to the goal, or if the map has no path to it, the executor gets the goal itself, without
    a horizon.
    """

    executor: CriticPolicy
    map: Map
    hazard: Hazard  # the probability of reaching a near goal
    least: int = eqx.field(static=True)  # lower bound on the executor's horizon

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        return self.executor.input_shapes

    @property
    def takes_horizon(self) -> bool:
        return self.executor.takes_horizon

    @property
    def constants(self) -> Mapping[str, Any]:
        return self.executor.constants

    @property
    def temperature(self) -> float | None:
        return self.executor.temperature

    def with_temperature(self, temperature: float) -> "MapPolicy":
        return replace(self, executor=replace(self.executor, temperature=temperature))

    def act(
        self, observation: ArrayLike, goal: ArrayLike, horizon: Horizon = None, key: Key = None
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
        projected = (goal @ self.map.projection)[..., None, :]
        off = projected - self.map.centres @ self.map.projection
        return jnp.argmin(jnp.sum(jnp.square(off), axis=-1), axis=-1)

    def reach(self, observation: Any, goal: Any) -> Reach:
        """Whether the map has a path from a state to a goal, its length, and a confidence.

        The confidence is the larger of two probabilities: that the data reaches the goal from the
        state, within the steps that the hazard model looks ahead; and that it does so from the
        goal's place, times 1 - 2^-n, where n is how often the rarest passage on the path was
        recorded (0 without a path). It falls exponentially outside of places, by a factor of e for
        every quarter of a radius.
        """
        shapes = self.executor.input_shapes
        assert shapes is not None
        state = jnp.asarray(checked(observation, shapes[0], "observation"), jnp.float32)
        wanted = jnp.asarray(checked(goal, shapes[1], "goal"), jnp.float32)
        rows = jnp.broadcast_shapes(state.shape[:-1], wanted.shape[:-1])
        state = jnp.broadcast_to(state, (*rows, *shapes[0]))
        wanted = jnp.broadcast_to(wanted, (*rows, *shapes[1]))
        achieved = state[..., self.map.phi]
        here, there = self.place(achieved), self.place(wanted)
        steps, n = self.map.steps[here, there], self.map.seen[here, there].astype(jnp.float32)
        within = jnp.vectorize(self.hazard.within, signature="(s),(g)->(k)")
        direct = within(state, wanted)[..., -1]
        arrived = within(self.map.states[there], wanted)[..., -1]
        likely = jnp.maximum(direct, (1.0 - 0.5**n) * arrived)
        inside = self._inside(achieved, here) * self._inside(wanted, there)
        return Reach(steps >= 0, steps, likely * inside)

    def _inside(
        self, goal: Float[Array, "*batch goal"], place: Int[Array, "*batch"]
    ) -> Float[Array, "*batch"]:
        """1 within the radius of a goal's place; outside, it falls exponentially."""
        off = (goal - self.map.centres[place]) @ self.map.projection
        away = jnp.linalg.norm(off, axis=-1)
        radius = jnp.maximum(self.map.radius[place], LEAST_RADIUS)
        return jnp.exp(jnp.minimum(0.0, OUTSIDE * (1.0 - away / radius)))
