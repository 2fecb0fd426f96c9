"""The map of a policy on NumPy arrays, with any number of leading axes.

Like `networks`, acting uses only operations that `graph.Value` also supports.
"""

from dataclasses import dataclass
from functools import cached_property, singledispatch
from typing import Any, NamedTuple

import numpy as np

from merlin.deploy.networks import Layer, Standardiser, fits, forward

LEAST_RADIUS = np.float32(1e-6)
"""The radius of a place whose goals are all equal."""
OUTSIDE = np.float32(4.0)
"""Rate at which the confidence decays outside a place, per radius."""


class Reach(NamedTuple):
    """Whether a goal is reachable, in how many steps, and with what confidence."""

    reachable: Any  # whether recorded passages lead to the goal's place
    steps: Any  # length of the shortest path; -1 if there is none
    confidence: Any  # that the goal can be reached, from 0 to 1


@dataclass(frozen=True, eq=False)
class Hazard:
    """The model of the steps to a near goal (see `nets.hazard`)."""

    inputs: Standardiser
    phi: np.ndarray  # (goal,): which columns of a state are its goal
    layers: tuple[Layer, ...]

    def within(self, states: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """The probability of reaching the goals within the steps that the model looks ahead."""
        x = np.concatenate([states, goals, goals - states[..., self.phi]], axis=-1)
        logits = forward(self.layers, self.inputs(x))
        result: np.ndarray = -np.expm1(-np.logaddexp(np.float32(0.0), logits).sum(axis=-1))
        return result

    def fits(self, states: int, goals: int) -> bool:
        """Whether all arrays have consistent types and sizes."""
        inputs = states + 2 * goals
        return (
            self.inputs.fits(inputs)
            and (self.phi.dtype, self.phi.shape) == (np.int32, (goals,))
            and bool(((self.phi >= 0) & (self.phi < states)).all())
            and fits(self.layers, inputs)
        )


@dataclass(frozen=True, eq=False)
class Map:
    """The map stored in a policy file."""

    centres: np.ndarray  # (places, goal)
    projection: np.ndarray  # (goal, goal): distances are those between projected goals
    phi: np.ndarray  # (goal,): which columns of a state are its goal
    ahead: np.ndarray  # (places, places): the next waypoint; -1: the goal itself
    told: np.ndarray  # (places, places): the steps to the waypoint
    steps: np.ndarray  # (places, places): the steps of the whole path; -1: no path
    seen: np.ndarray  # (places, places): how often the rarest passage of the path was recorded
    states: np.ndarray  # (places, state): a recorded state of each place
    radius: np.ndarray  # (places,): the distance from its centre within which goals belong to it
    hazard: Hazard
    least: int  # lower bound on the executor's horizon
    temperature: float  # of the executor's noise, in standard deviations

    def cell(self, states: Any, there: Any) -> Any:
        """The index of a state and the place of a goal in the flattened tables."""
        return self.place(columns(states, self.phi)) * len(self.centres) + there

    def place(self, goals: Any) -> Any:
        """The place to which each goal belongs."""
        off = (goals @ self.projection)[..., None, :] - self._projected
        return (off * off @ self._ones).argmin(axis=-1)  # quicker than a sum over a short axis

    def heading(self, states: Any, goals: Any) -> tuple[Any, Any, Any]:
        """The goals and horizons to give to the executor, and where they are the goals given."""
        cell = self.cell(states, self.place(goals))
        near = self.near(cell)
        head, steps = self.waypoint(cell)
        return np.where(near[..., None], goals, head), steps, near

    def near(self, cell: Any) -> Any:
        """Whether a goal needs no waypoint."""
        return entries(cell, self._near) == 1.0

    def waypoint(self, cell: Any) -> tuple[Any, Any]:
        """The next waypoint and the steps to it."""
        return entries(entries(cell, self._heads), self.centres), entries(cell, self._told)

    def reach(self, states: np.ndarray, goals: np.ndarray) -> Reach:
        """Whether there are paths, their lengths, and confidences, as in `policies.map`."""
        rows = np.broadcast_shapes(states.shape[:-1], goals.shape[:-1])
        states = np.broadcast_to(states, (*rows, states.shape[-1]))
        goals = np.broadcast_to(goals, (*rows, goals.shape[-1]))
        achieved = states[..., self.phi]
        here, there = self.place(achieved), self.place(goals)
        steps, n = self.steps[here, there], self.seen[here, there].astype(np.float32)
        direct = self.hazard.within(states, goals)
        arrived = self.hazard.within(self.states[there], goals)
        likely = np.maximum(direct, (1.0 - np.float32(0.5) ** n) * arrived)
        inside = self._inside(achieved, here) * self._inside(goals, there)
        return Reach(steps >= 0, steps, likely * inside)

    def _inside(self, goals: np.ndarray, place: np.ndarray) -> np.ndarray:
        """1 within the radius of a goal's place; outside, it falls exponentially."""
        away = np.linalg.norm((goals - self.centres[place]) @ self.projection, axis=-1)
        radius = np.maximum(self.radius[place], LEAST_RADIUS)
        result: np.ndarray = np.exp(np.minimum(np.float32(0.0), OUTSIDE * (1.0 - away / radius)))
        return result

    @cached_property
    def _projected(self) -> np.ndarray:
        projected: np.ndarray = self.centres @ self.projection
        return projected

    @cached_property
    def _ones(self) -> np.ndarray:
        return np.ones(self._projected.shape[-1], np.float32)

    @cached_property
    def _heads(self) -> np.ndarray:
        return np.maximum(self.ahead, 0).astype(np.int32).ravel()

    @cached_property
    def _near(self) -> np.ndarray:
        return (self.ahead < 0).astype(np.float32).ravel()

    @cached_property
    def _told(self) -> np.ndarray:
        return np.maximum(self.told, self.least).astype(np.float32).ravel()

    def fits(self, states: int, goals: int) -> bool:
        """Whether all arrays have consistent types and sizes."""
        count = len(self.centres)
        tables = self.ahead, self.told, self.steps, self.seen
        return (
            (self.centres.dtype, self.centres.shape) == (np.float32, (count, goals))
            and (self.projection.dtype, self.projection.shape) == (np.float32, (goals, goals))
            and (self.phi.dtype, self.phi.shape) == (np.int32, (goals,))
            and (self.states.dtype, self.states.shape) == (np.float32, (count, states))
            and (self.radius.dtype, self.radius.shape) == (np.float32, (count,))
            and self.hazard.fits(states, goals)
            and all((t.dtype, t.shape) == (np.int16, (count, count)) for t in tables)
            and bool(((self.phi >= 0) & (self.phi < states)).all())
            and bool(((self.ahead >= -1) & (self.ahead < count)).all())
        )


@singledispatch
def entries(index: Any, table: np.ndarray) -> Any:
    """The entries of a table at an index."""
    return table[index]


@singledispatch
def columns(x: Any, which: np.ndarray) -> Any:
    """Select columns along the last axis."""
    return x[..., which]
