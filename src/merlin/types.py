"""Types that data, learners and evaluation share."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

Metrics = dict[str, Float[Array, ""]]
State = Any
"""The training state of a learner: a pytree of arrays, opaque to other code."""


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
    drawn_steps: int | None = None  # as in `Dataset`


class Segment(NamedTuple):
    """Consecutive steps of one episode; if it is too short, its first or last step is repeated."""

    observations: Array  # (batch, steps, *observation)
    actions: Float[Array, "batch steps action"]
    valid: Bool[Array, "batch steps"]  # False where the edge is repeated


class DrawnGoals(NamedTuple):
    """Goals for the states of a batch, drawn from one distribution (see `data.goals.Goals`)."""

    goal: Float[Array, "batch goal"]
    observation: Array  # (batch, *observation), the state that achieved the goal, if one did
    horizon: Float[Array, " batch"]  # steps to a future goal; to other goals: states left
    reached: Bool[Array, " batch"]  # whether the goal is what the present state achieves
    relabelled: Bool[Array, " batch"]  # whether the goal was taken from the episode's future
    subgoal: Float[Array, "batch goal"] | None = None  # on the way to the goal, if asked for
    subgoal_observation: Array | None = None  # the state that achieved it


class Batch(NamedTuple):
    """The input of one update. Unused fields cost nothing, because jit drops them."""

    observation: Array  # (batch, *observation)
    action: Float[Array, "batch action"]
    next_observation: Array  # (batch, *observation)
    achieved_goal: Float[Array, "batch goal"]
    next_achieved_goal: Float[Array, "batch goal"]
    first_observation: Array  # (batch, *observation), of the same episode
    goals: dict[str, DrawnGoals]  # by the names that the learner gave its distributions
    ahead: Segment | None = None  # from the observation on, if `Sampling.ahead` asks for it
    behind: Segment | None = None  # up to the observation, if `Sampling.behind` asks for it

    @property
    def only(self) -> DrawnGoals:
        """The goals of a learner with a single goal distribution."""
        (drawn,) = self.goals.values()
        return drawn

    @property
    def goal(self) -> Float[Array, "batch goal"]:
        return self.only.goal

    @property
    def horizon(self) -> Float[Array, " batch"]:
        return self.only.horizon

    def shown(self) -> dict[str, Array]:
        """All observations outside segments, by position; `showing` is the inverse."""
        found = {
            "observation": self.observation,
            "next_observation": self.next_observation,
            "first_observation": self.first_observation,
        }
        for name, drawn in sorted(self.goals.items()):
            found[f"{name} goal"] = drawn.observation
            if drawn.subgoal_observation is not None:
                found[f"{name} subgoal"] = drawn.subgoal_observation
        return found

    def showing(self, shown: Mapping[str, Any]) -> "Batch":
        """The same batch with other observations."""
        goals = {
            name: drawn._replace(
                observation=shown[f"{name} goal"],
                subgoal_observation=shown.get(f"{name} subgoal"),
            )
            for name, drawn in self.goals.items()
        }
        return self._replace(
            observation=shown["observation"],
            next_observation=shown["next_observation"],
            first_observation=shown["first_observation"],
            goals=goals,
        )


class Moments(NamedTuple):
    """Mean and standard deviation per dimension, and the largest deviation from the mean."""

    mean: Float[np.ndarray, " dim"]
    std: Float[np.ndarray, " dim"]
    extent: Float[np.ndarray, " dim"] | None = None  # if known


class Map(NamedTuple):
    """Places of the data and the paths between them (see `data.places`)."""

    centres: Any  # (places, goal) float32: the goal that stands for each place
    projection: Any  # (goal, goal) float32: distances are those between projected goals
    phi: Any  # (goal,) int32: which numbers of a state are its goal
    ahead: Any  # (places, places) int16: where to head on the way to a place; -1: to the goal
    told: Any  # (places, places) int16: the steps to that waypoint
    steps: Any  # (places, places) int16: the steps of the whole path; -1: no path
    seen: Any  # (places, places) int16: how often the rarest passage of the path was recorded
    states: Any  # (places, state) float32: a recorded state of each place
    radius: Any  # (places,) float32: the distance from its centre within which goals belong to it


class Spec(NamedTuple):
    """Everything that a learner may know about the data before training."""

    observation_shape: tuple[int, ...]
    action_low: Float[np.ndarray, " action"]
    action_high: Float[np.ndarray, " action"]
    goal_dim: int
    max_horizon: int  # states of the longest episode
    observation_moments: Moments
    goal_moments: Moments
    tolerance: float | None = None  # distance at which a goal counts as reached, if known
    goal_image: bool = False  # whether goals are given as images
    map: Map | None = None  # if the learner adds one (see `Learner.survey`)
    hazard: Any = None  # a model of the steps to a goal (see `nets.hazard`), likewise

    @property
    def action_dim(self) -> int:
        return len(self.action_low)

    @property
    def has_images(self) -> bool:
        return len(self.observation_shape) > 1


__all__ = [
    "Batch",
    "DrawnGoals",
    "Map",
    "Metrics",
    "Moments",
    "PRNGKeyArray",
    "Segment",
    "Spec",
    "State",
    "Trajectories",
]
