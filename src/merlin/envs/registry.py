"""The task registry: names, sizes, goals and tuned values.

Properties of a task are fields of its entry. `TASKS` are the paper's ten tasks, and `OGBENCH` are
OGBench's datasets.
"""

import dataclasses
import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from merlin.envs import ogbench
from merlin.envs.names import parse
from merlin.envs.scoring import NEGATIVE, Scoring
from merlin.errors import MerlinError
from merlin.io import extras

VARIANTS = ("expert", "random")
TUNINGS = ("own", "paper")


@dataclass(frozen=True)
class Tuned:
    """Tuned values for one task and kind of data: the paper's, and ours if they differ."""

    hindsight_ratio: float
    horizon: int
    released_hindsight_ratio: float | None = None  # if the authors' code differs
    own: tuple[float, int] | None = None  # ratio and horizon tuned on our data, if they differ

    def values(self, tuning: str = "own") -> dict[str, Any]:
        """The values for our data (`own`) or the paper's (`paper`)."""
        ratio, horizon = self.hindsight_ratio, self.horizon
        if tuning == "own" and self.own is not None:
            ratio, horizon = self.own
        return {"hindsight_ratio": ratio, "horizon": horizon}


IMAGE_VALUES: Mapping[str, Any] = {"hidden": (256,)}
"""The paper's settings for images on all tasks: one hidden layer after the CNN."""


@dataclass(frozen=True)
class Task:
    """A goal environment and its properties."""

    name: str
    observation_dim: int
    action_dim: int
    goal_dim: int
    env_id: str = ""  # Gymnasium id; by default merlin/NAME-v0
    module: str | None = None  # to import before Gymnasium knows the id
    goal_slice: tuple[int, int] | None = None  # phi: the part of the state that is its goal
    tolerance: float | None = None  # distance that counts as reached, for the return
    success_tolerance: float | None = None  # for the success at the end, if it differs
    scoring: Scoring = NEGATIVE  # how the environment reports that a goal is reached
    ends: bool = False  # whether the environment can end an episode before the time limit
    goal_count: int = 0  # number of fixed evaluation goals; 0 if each episode has its own
    action_low: float | tuple[float, ...] = -1.0
    action_high: float | tuple[float, ...] = 1.0
    variants: tuple[str, ...] = VARIANTS  # available kinds of data
    episodes: int = 2000  # of the published datasets
    episode_steps: int = 50
    tuned: Mapping[str, Tuned] = field(default_factory=dict)
    environments: int = 16  # stepped together in one batch
    image_size: int | None = None  # height and width of image observations, if supported
    sees: str = "state"  # what a policy observes: state or image
    goal: str = "vector"  # how its goal is given: vector or image
    film: str | None = None  # function that renders states, if they determine the image
    size_arguments: tuple[str, ...] = ()  # arguments of its environment for the frame size
    entry_point: str | None = None
    vector_entry_point: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    extra: str | None = None  # optional packages that its environment needs

    def __post_init__(self) -> None:
        if not self.env_id:
            object.__setattr__(self, "env_id", f"merlin/{self.name}-v0")

    def check_installed(self) -> None:
        """Say in one sentence what to install, if its environment cannot be made without it."""
        if self.extra is not None:
            extras.check(self.extra, f"task {self.name}")

    def achieved(self, states: np.ndarray) -> np.ndarray:
        """phi: the goals that states achieve, over any leading axes."""
        if self.goal_slice is None:
            raise MerlinError(
                f"{self.name}: it is not known which part of a state is its goal; set goal_slice."
            )
        return states[..., slice(*self.goal_slice)]

    @property
    def final_episodes(self) -> int:
        """Default number of episodes to evaluate a final policy."""
        return 50 * self.goal_count or 200

    @property
    def pixels(self) -> bool:
        """Whether the task supports image observations."""
        return self.image_size is not None

    @property
    def observation_shape(self) -> tuple[int, ...]:
        if self.sees == "state":
            return (self.observation_dim,)
        assert self.image_size is not None
        return (self.image_size, self.image_size, 3)

    def from_pixels(self, size: int | None = None, goal: str = "vector") -> "Task":
        """The same task with image observations, of its usual size or the given one."""
        if self.image_size is None:
            able = ", ".join(task.name for task in TASKS.values() if task.pixels)
            raise MerlinError(f"pixels: {self.name} has no images; choose one of {able}.")
        return dataclasses.replace(
            self, sees="image", goal=goal, image_size=self.image_size if size is None else size
        )

    def as_seen(self, shape: Sequence[int], goal: str = "vector") -> "Task":
        """The same task for a policy whose observations have this shape."""
        return self if len(shape) == 1 else self.from_pixels(shape[0], goal)

    def image_arguments(self) -> dict[str, Any]:
        """Arguments with which its environment renders what a policy observes."""
        if self.sees == "state":
            return {}
        size = dict.fromkeys(self.size_arguments, self.image_size)
        return {"render_mode": "rgb_array", "draw_goal": False, **size}

    def check_fit(self, dimensions: Sequence[int], where: str) -> None:
        """Refuse data or a policy whose observation, action and goal have other sizes."""
        wanted = (*self.observation_shape, self.action_dim, self.goal_dim)
        if tuple(dimensions) != wanted:
            raise MerlinError(
                f"task {self.name}: observation, action and goal have dimensions {wanted}, but "
                f"{tuple(dimensions)} in {where}; give the task that it is for."
            )

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of the action."""
        low, high = (np.asarray(b, np.float32) for b in (self.action_low, self.action_high))
        shape = (self.action_dim,)
        return np.broadcast_to(low, shape).copy(), np.broadcast_to(high, shape).copy()

    def describe(self) -> dict[str, Any]:
        """The properties as plain values for a table or JSON."""
        return {
            "name": self.name,
            "id": self.env_id,
            "observation_dim": self.observation_dim,
            "action_dim": self.action_dim,
            "goal_dim": self.goal_dim,
            "goal_slice": self.goal_slice,
            "tolerance": self.tolerance,
            "success_tolerance": self.success_tolerance or self.tolerance,
            "episode_steps": self.episode_steps,
            "ends_when_terminated": self.ends,
            "evaluation_goals": self.goal_count or None,
            "variants": self.variants,
            "reached": self.scoring.in_words(),
            "episodes": self.episodes,
            "pixels": self.pixels,
            "image_size": self.image_size,
            "tuned": {k: dataclasses.asdict(v) for k, v in self.tuned.items()},
        }


_POINT: dict[str, Any] = {
    "observation_dim": 2,
    "action_dim": 2,
    "goal_dim": 2,
    "goal_slice": (0, 2),
    "tolerance": 1.0,
    "environments": 100,
    "image_size": 48,
    "film": "merlin.envs.point:film",
    "size_arguments": ("render_size",),
    "entry_point": "merlin.envs.point:PointEnv",
    "vector_entry_point": "merlin.envs.point:PointVectorEnv",
}
_SAWYER: dict[str, Any] = {
    "action_dim": 3,
    "tolerance": 0.06,
    "image_size": 84,
    "size_arguments": ("width", "height"),
    "extra": "sawyer",
}
_FETCH: dict[str, Any] = {
    "action_dim": 4,
    "goal_dim": 3,
    "tolerance": 0.05,
    "entry_point": "merlin.envs.robotics:make",
    "extra": "robotics",
}
_FETCH_OBJECT: dict[str, Any] = {
    **_FETCH,
    "observation_dim": 25,
    "goal_slice": (3, 6),
    "episodes": 40_000,
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
    Task(
        name="Reacher",
        observation_dim=11,
        action_dim=2,
        goal_dim=2,
        goal_slice=(8, 10),
        tolerance=0.05,
        tuned={"expert": Tuned(0.2, 5, own=(1.0, 3)), "random": Tuned(1.0, 5, own=(1.0, 3))},
        entry_point="merlin.envs.robotics:GoalReacher",
        extra="robotics",
    ),
    Task(
        name="SawyerReach",
        observation_dim=3,
        goal_dim=3,
        goal_slice=(0, 3),
        tuned={"expert": Tuned(0.2, 1, 1.0, own=(1.0, 1)), "random": Tuned(1.0, 1)},
        entry_point="merlin.envs.sawyer:SawyerReachEnv",
        **_SAWYER,
    ),
    Task(
        name="SawyerDoor",
        observation_dim=4,
        goal_dim=1,
        goal_slice=(3, 4),
        success_tolerance=0.02,
        tuned={"expert": Tuned(0.2, 5, own=(0.2, 1)), "random": Tuned(1.0, 5, own=(1.0, 2))},
        entry_point="merlin.envs.sawyer:SawyerDoorEnv",
        **_SAWYER,
    ),
    Task(
        name="FetchReach",
        observation_dim=10,
        goal_slice=(0, 3),
        tuned={"expert": Tuned(0.2, 1, 1.0), "random": Tuned(1.0, 1)},
        arguments={"module": "fetch.reach", "name": "MujocoFetchReachEnv"},
        **_FETCH,
    ),
    Task(
        name="FetchPush",
        tuned={"expert": Tuned(0.0, 20, own=(1.0, 5)), "random": Tuned(0.2, 20)},
        arguments={"module": "fetch.push", "name": "MujocoFetchPushEnv"},
        **_FETCH_OBJECT,
    ),
    Task(
        name="FetchPick",
        tuned={"expert": Tuned(0.0, 10), "random": Tuned(0.5, 50)},
        arguments={"module": "fetch.pick_and_place", "name": "MujocoFetchPickAndPlaceEnv"},
        **_FETCH_OBJECT,
    ),
    Task(
        name="FetchSlide",
        tuned={"expert": Tuned(0.2, 10), "random": Tuned(0.8, 10)},
        arguments={"module": "fetch.slide", "name": "MujocoFetchSlideEnv"},
        **_FETCH_OBJECT,
    ),
    Task(
        name="HandReach",
        observation_dim=63,
        action_dim=20,
        goal_dim=15,
        goal_slice=(48, 63),
        tolerance=0.01,
        episodes=40_000,
        tuned={"expert": Tuned(1.0, 1), "random": Tuned(1.0, 1)},
        arguments={"module": "shadow_dexterous_hand.reach", "name": "MujocoHandReachEnv"},
        entry_point="merlin.envs.robotics:make",
        extra="robotics",
    ),
)

TASKS: dict[str, Task] = {task.name: task for task in _ALL}


def _ogbench_task(name: str, size: ogbench.Size) -> Task:
    is_maze = "navigate" in name or "stitch" in name or "explore" in name
    return Task(
        name=ogbench.PREFIX + name,
        env_id=f"merlin/ogbench-{name}",
        observation_dim=size.observation,
        action_dim=size.action,
        goal_dim=size.observation,
        goal_slice=(0, size.observation),
        tolerance=1.0 if name.startswith("pointmaze") else None,
        scoring=Scoring("success"),
        ends=True,
        goal_count=ogbench.GOALS,
        variants=(ogbench.DOWNLOADED, *[ogbench.REGENERATED] * size.regenerated),
        episodes=size.episodes,
        episode_steps=size.steps,
        environments=25 if is_maze else 10,  # an arm takes seconds to build
        entry_point="merlin.envs.ogbench_env:GoalTask",
        arguments={"dataset": name},
        extra="ogbench",
    )


OGBENCH: dict[str, Task] = {
    ogbench.PREFIX + name: _ogbench_task(name, size) for name, size in ogbench.SIZES.items()
}


def own(name: str | None) -> Task | None:
    """One of merlin's own tasks by name, without importing anything; None for other names."""
    return TASKS.get(name or "") or OGBENCH.get(name or "")


def find(name: str | Task) -> Task:
    """The task called `name`, or any goal environment by its Gymnasium id.

    The prefix of OGBench's datasets is optional. `package.module:EnvId` imports the module first,
    so call this only with names given by the user; use `choose` for names read from files.
    """
    if isinstance(name, Task):
        return name
    if task := own(name) or OGBENCH.get(ogbench.PREFIX + name):
        return task
    if name.startswith(ogbench.PREFIX):
        raise ogbench.unknown(name)
    asked = parse(name)
    if asked.module or asked.env_id in gymnasium.registry:
        from merlin.envs.adopt import adopt

        return adopt(str(asked))
    folded = {k.lower().removeprefix(ogbench.PREFIX): k for k in (*TASKS, *OGBENCH)}
    close = difflib.get_close_matches(name.lower(), folded, n=1)
    hint = f"did you mean {folded[close[0]]}?" if close else f"choose from {', '.join(TASKS)}."
    raise MerlinError(f"task: {name!r} is unknown; {hint}")


def check_variant(variant: str, task: Task | None = None) -> None:
    """Refuse a kind of data that the task (or, without a task, the paper) does not have."""
    known = VARIANTS if task is None else task.variants
    if variant not in known:
        whose = f" for {task.name}" if task else ""
        choices = " or ".join(known)
        raise MerlinError(f"variant: {variant!r} is not available{whose}; choose {choices}.")


NO_TASK = "none"
"""The value of `task` that means no task, even if the data names one."""


def choose(recorded: str | None, asked: str | Task | None) -> Task | None:
    """The task that the user asks for, or else the one named by the data or the run, if any.

    A file must not cause code to run: an environment that is not yet registered in this process is
    imported only if the user names it as well. Its recorded options are kept.
    """
    if asked == NO_TASK:
        return None
    if recorded is None:
        return None if asked is None else find(asked)
    name = recorded
    if asked is None:
        told = parse(name)
        imported = told.module is None or told.module in sys.modules
        known = own(name) or (imported and told.env_id in gymnasium.registry)
        if not known:
            raise MerlinError(
                f"task {name}: is your own environment, whose code is not run just because a file "
                f"names it; pass `task='{parse(name).base}'` to evaluate in it, or `task='none'`."
            )
        return find(name)
    same = isinstance(asked, str) and not own(name) and asked == parse(name).base
    return find(name if same else asked)


def register() -> None:
    """Register every task with Gymnasium; environments are imported when they are made."""
    for task in (*TASKS.values(), *OGBENCH.values()):
        if task.env_id not in gymnasium.registry:
            gymnasium.register(
                task.env_id,
                entry_point=task.entry_point,
                vector_entry_point=task.vector_entry_point,
                max_episode_steps=task.episode_steps,
                kwargs=dict(task.arguments),
            )


register()
