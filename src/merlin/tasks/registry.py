"""The tasks: what each is called, how large it is, what its goals are, what was tuned for it.

Everything that depends on a task is asked here; no other file names one.
"""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from merlin.errors import MerlinError

VARIANTS = ("expert", "random")


@dataclass(frozen=True)
class Tuned:
    """What the paper tuned for one task and kind of data."""

    hindsight_ratio: float
    horizon: int
    released_hindsight_ratio: float | None = None  # where the authors' code differs

    def values(self) -> dict[str, Any]:
        return {"hindsight_ratio": self.hindsight_ratio, "horizon": self.horizon}


@dataclass(frozen=True)
class Task:
    """A goal environment and what is known of it."""

    name: str
    entry_point: str
    observation_dim: int
    action_dim: int
    goal_dim: int
    goal_slice: tuple[int | None, int | None]  # phi: which part of the state is the achieved goal
    tolerance: float
    tuned: Mapping[str, Tuned]
    episodes: int  # of the paper's datasets
    episode_steps: int = 50
    environments: int = 100  # stepped together in one batch
    pixels: bool = False
    vector_entry_point: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def env_id(self) -> str:
        return f"merlin/{self.name}-v0"

    def achieved(self, states: np.ndarray) -> np.ndarray:
        """phi: the goals that states achieve, over any leading axes."""
        return states[..., slice(*self.goal_slice)]

    def describe(self) -> dict[str, Any]:
        """Plain values for a table or JSON."""
        return {
            "name": self.name,
            "id": self.env_id,
            "observation_dim": self.observation_dim,
            "action_dim": self.action_dim,
            "goal_dim": self.goal_dim,
            "goal_slice": list(self.goal_slice),
            "tolerance": self.tolerance,
            "episode_steps": self.episode_steps,
            "episodes": self.episodes,
            "pixels": self.pixels,
            "tuned": {k: dataclasses.asdict(v) for k, v in self.tuned.items()},
        }


_POINT: dict[str, Any] = {
    "observation_dim": 2,
    "action_dim": 2,
    "goal_dim": 2,
    "goal_slice": (0, 2),
    "tolerance": 1.0,
    "episodes": 2000,
    "pixels": True,
    "entry_point": "merlin.tasks.point:PointEnv",
    "vector_entry_point": "merlin.tasks.point:PointVectorEnv",
}

_ALL = (
    Task(
        name="PointReach",
        tuned={"expert": Tuned(0.2, 1, 1.0), "random": Tuned(1.0, 1)},
        **_POINT,
    ),
    Task(
        name="PointRooms",
        tuned={"expert": Tuned(0.2, 1), "random": Tuned(1.0, 1)},
        arguments={"rooms": True},
        **_POINT,
    ),
)

TASKS: dict[str, Task] = {task.name: task for task in _ALL}


def find(name: str | Task) -> Task:
    """The task called `name`, or an error that suggests the nearest one."""
    if isinstance(name, Task):
        return name
    if name in TASKS:
        return TASKS[name]
    folded = {known.lower(): known for known in TASKS}
    close = difflib.get_close_matches(name.lower(), folded, n=1)
    hint = f"did you mean {folded[close[0]]}?" if close else f"choose from {', '.join(TASKS)}"
    raise MerlinError(f"task: none is called {name!r}; {hint}.")


def register() -> None:
    """Make every task known to Gymnasium; nothing is imported until one is made."""
    for task in TASKS.values():
        if task.env_id not in gymnasium.registry:
            gymnasium.register(
                task.env_id,
                entry_point=task.entry_point,
                vector_entry_point=task.vector_entry_point,
                max_episode_steps=task.episode_steps,
                kwargs=dict(task.arguments),
            )
