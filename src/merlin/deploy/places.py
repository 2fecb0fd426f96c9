"""The map of a policy on NumPy arrays, with any number of leading axes.

Like `networks`, this uses only operations that `graph.Value` also supports.
"""

from dataclasses import dataclass
from functools import cached_property, singledispatch
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Places:
    """The map stored in a policy file."""

    centres: np.ndarray  # (places, goal)
    phi: np.ndarray  # (goal,): which columns of a state are its goal
    ahead: np.ndarray  # (places, places): the next waypoint; -1: the goal itself
    told: np.ndarray  # (places, places): the steps to the waypoint
    steps: np.ndarray  # (places, places): the steps of the whole path; -1: no path
    least: int  # lower bound on the executor's horizon
    temperature: float  # of the executor's noise, in standard deviations

    def cell(self, states: Any, goals: Any) -> Any:
        """The index of a state and a goal in the flattened tables."""
        here, there = self.place(columns(states, self.phi)), self.place(goals)
        return here * len(self.centres) + there

    def place(self, goals: Any) -> Any:
        """The place to which each goal belongs."""
        off = goals[..., None, :] - self.centres
        return (off * off).sum(axis=-1).argmin(axis=-1)

    def heading(self, states: Any, goals: Any) -> tuple[Any, Any, Any]:
        """The goals and horizons to give to the executor, and where they are the goals given."""
        cell = self.cell(states, goals)
        head = entries(entries(cell, self._heads), self.centres)
        near = entries(cell, self._near) == 1.0
        return np.where(near[..., None], goals, head), entries(cell, self._told), near

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
        tables = self.ahead, self.told, self.steps
        return (
            (self.centres.dtype, self.centres.shape) == (np.float32, (count, goals))
            and (self.phi.dtype, self.phi.shape) == (np.int32, (goals,))
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
