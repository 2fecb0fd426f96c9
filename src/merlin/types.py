"""The few names that data, learners and evaluation share."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

Metrics = dict[str, Float[Array, ""]]
State = Any
"""What a learner learns: a pytree of arrays, opaque to everybody else."""


class Trajectories(NamedTuple):
    """A dataset's arrays on the device: all episodes back to back.

    Episode `e` has the states `starts[e] .. starts[e + 1] - 1` and one action fewer than states,
    so its action `t` is row `starts[e] - e + t`.
    """

    observations: Array  # (states, *observation)
    actions: Float[Array, "actions action"]
    achieved_goals: Float[Array, "states goal"]
    desired_goals: Float[Array, "episodes goal"] | None
    starts: Int[Array, "episodes+1"]


class Window(NamedTuple):
    """Consecutive steps of one episode; where it is too short, its edge is repeated."""

    observations: Array  # (batch, window, *observation)
    actions: Float[Array, "batch window action"]
    valid: Bool[Array, "batch window"]  # False where the edge is repeated


class Batch(NamedTuple):
    """What a learner is given per update. What it does not use costs nothing: jit drops it."""

    observation: Array  # (batch, *observation)
    action: Float[Array, "batch action"]
    next_observation: Array  # (batch, *observation)
    achieved_goal: Float[Array, "batch goal"]
    next_achieved_goal: Float[Array, "batch goal"]
    goal: Float[Array, "batch goal"]
    horizon: Float[Array, " batch"]
    first_observation: Array  # (batch, *observation), of the same episode
    goal_observation: Array  # (batch, *observation), the state that achieved the goal, if any did
    relabelled: Bool[Array, " batch"]  # whether the goal was taken from the episode's future
    future_goal: Float[Array, "batch goal"]  # achieved later in the same episode, relabelled or not
    future_horizon: Float[Array, " batch"]  # so many steps later
    ahead: Window | None = None  # from the observation on, if `Relabel.ahead` asks for it
    behind: Window | None = None  # up to the observation, if `Relabel.behind` asks for it


class Moments(NamedTuple):
    """Mean and standard deviation per dimension."""

    mean: Float[np.ndarray, " dim"]
    std: Float[np.ndarray, " dim"]


class Spec(NamedTuple):
    """All that a learner may know of the data before it sees a batch."""

    observation_shape: tuple[int, ...]
    action_low: Float[np.ndarray, " action"]
    action_high: Float[np.ndarray, " action"]
    goal_dim: int
    max_horizon: int  # states of the longest episode
    observation_moments: Moments
    goal_moments: Moments
    tolerance: float | None = None  # how near to a goal counts as there, where that is known
    goal_image: bool = False  # whether goals are told as images

    @property
    def action_dim(self) -> int:
        return len(self.action_low)

    @property
    def has_images(self) -> bool:
        return len(self.observation_shape) > 1


__all__ = [
    "Batch",
    "Metrics",
    "Moments",
    "PRNGKeyArray",
    "Spec",
    "State",
    "Trajectories",
    "Window",
]
