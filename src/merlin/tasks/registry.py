"""The tasks: what each is called, how large it is, what its goals are, what was tuned for it.

Everything that depends on a task is asked here; no other file names one.
"""

import dataclasses
import difflib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
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


IMAGE_VALUES: Mapping[str, Any] = {"hidden": (256,)}
"""What the paper changes for images of all tasks: one hidden layer behind the CNN."""
IMAGE_SETTINGS: Mapping[str, str] = {
    "batch_size": "64",
    "encoder_max_updates": "1000",
    "threshold": "auto",  # of stitching: 0.9999 is for an encoder that was trained for longer
}
"""What a benchmark on images sets, of the fields that a method has, so that it ends in hours."""


@dataclass(frozen=True)
class Task:
    """A goal environment and what is known of it."""

    name: str
    observation_dim: int
    action_dim: int
    goal_dim: int
    env_id: str = ""  # of Gymnasium; merlin/NAME-v0 unless given
    module: str | None = None  # to import before Gymnasium knows the id
    goal_slice: tuple[int, int] | None = None  # phi: the part of the state that is its goal
    tolerance: float | None = None  # how near is reached, for the reward
    success_tolerance: float | None = None  # for the success at the end, if it differs
    action_low: float | tuple[float, ...] = -1.0
    action_high: float | tuple[float, ...] = 1.0
    episodes: int = 2000  # of the paper's datasets
    episode_steps: int = 50
    tuned: Mapping[str, Tuned] = field(default_factory=dict)
    environments: int = 16  # stepped together in one batch
    image_size: int | None = None  # height and width of the frames that show its state, if any
    sees: str = "state"  # what a policy is shown: state or image
    goal: str = "vector"  # what it is told to reach: vector or image
    film: str | None = None  # function that draws states, where they say all that is to be seen
    size_arguments: tuple[str, ...] = ()  # what its environment calls the size of frames
    entry_point: str | None = None
    vector_entry_point: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.env_id:
            object.__setattr__(self, "env_id", f"merlin/{self.name}-v0")

    def achieved(self, states: np.ndarray) -> np.ndarray:
        """phi: the goals that states achieve, over any leading axes."""
        if self.goal_slice is None:
            raise MerlinError(f"{self.name}: it is not known which part of a state is its goal.")
        return states[..., slice(*self.goal_slice)]

    @property
    def pixels(self) -> bool:
        """Whether it can be learned from images."""
        return self.image_size is not None

    @property
    def observation_shape(self) -> tuple[int, ...]:
        if self.sees == "state":
            return (self.observation_dim,)
        assert self.image_size is not None
        return (self.image_size, self.image_size, 3)

    def from_pixels(self, size: int | None = None, goal: str = "vector") -> "Task":
        """The same task seen through a camera, in frames of its usual size or of the one given."""
        if self.image_size is None:
            able = ", ".join(task.name for task in TASKS.values() if task.pixels)
            raise MerlinError(
                f"--pixels: {self.name} has no images; the tasks that have are {able}."
            )
        return dataclasses.replace(
            self, sees="image", goal=goal, image_size=self.image_size if size is None else size
        )

    def as_seen(self, shape: Sequence[int], goal: str = "vector") -> "Task":
        """The same task for a policy whose observations have this shape."""
        return self if len(shape) == 1 else self.from_pixels(shape[0], goal)

    def image_arguments(self) -> dict[str, Any]:
        """What to make its environment with, so that it draws what a policy is shown."""
        if self.sees == "state":
            return {}
        size = dict.fromkeys(self.size_arguments, self.image_size)
        return {"render_mode": "rgb_array", "draw_goal": False, **size}

    def check_fit(self, dimensions: Sequence[int], where: str) -> None:
        """Refuse data or a policy whose observation, action and goal have other sizes."""
        wanted = (*self.observation_shape, self.action_dim, self.goal_dim)
        if tuple(dimensions) != wanted:
            raise MerlinError(
                f"--task {self.name}: observation, action and goal have {wanted} dimensions there "
                f"but {tuple(dimensions)} in {where}; name the task that it is for."
            )

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest action."""
        low, high = (np.asarray(b, np.float32) for b in (self.action_low, self.action_high))
        shape = (self.action_dim,)
        return np.broadcast_to(low, shape).copy(), np.broadcast_to(high, shape).copy()

    def describe(self) -> dict[str, Any]:
        """Plain values for a table or JSON."""
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
    "film": "merlin.tasks.point:film",
    "size_arguments": ("render_size",),
    "entry_point": "merlin.tasks.point:PointEnv",
    "vector_entry_point": "merlin.tasks.point:PointVectorEnv",
}
_FETCH: dict[str, Any] = {
    "action_dim": 4,
    "goal_dim": 3,
    "tolerance": 0.05,
    "entry_point": "merlin.tasks.robotics:make",
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
        tuned={"expert": Tuned(0.2, 5), "random": Tuned(1.0, 5)},
        entry_point="merlin.tasks.robotics:GoalReacher",
    ),
    Task(
        name="SawyerReach",
        observation_dim=3,
        action_dim=3,
        goal_dim=3,
        goal_slice=(0, 3),
        tolerance=0.06,
        tuned={"expert": Tuned(0.2, 1, 1.0), "random": Tuned(1.0, 1)},
        image_size=84,
        size_arguments=("width", "height"),
        entry_point="merlin.tasks.sawyer:SawyerReachEnv",
    ),
    Task(
        name="SawyerDoor",
        observation_dim=4,
        action_dim=3,
        goal_dim=1,
        goal_slice=(3, 4),
        tolerance=0.06,
        success_tolerance=0.02,
        tuned={"expert": Tuned(0.2, 5), "random": Tuned(1.0, 5)},
        image_size=84,
        size_arguments=("width", "height"),
        entry_point="merlin.tasks.sawyer:SawyerDoorEnv",
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
        tuned={"expert": Tuned(0.0, 20), "random": Tuned(0.2, 20)},
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
        entry_point="merlin.tasks.robotics:make",
    ),
)

TASKS: dict[str, Task] = {task.name: task for task in _ALL}


def find(name: str | Task) -> Task:
    """The task called `name`, or any goal environment by its Gymnasium id.

    `package.module:EnvId` imports the module first, as Gymnasium does.
    """
    if isinstance(name, Task):
        return name
    if name in TASKS:
        return TASKS[name]
    if ":" in name or name in gymnasium.registry:
        return _adopt(name)
    folded = {known.lower(): known for known in TASKS}
    close = difflib.get_close_matches(name.lower(), folded, n=1)
    hint = f"did you mean {folded[close[0]]}?" if close else f"choose from {', '.join(TASKS)}"
    raise MerlinError(f"task: none is called {name!r}; {hint}.")


@cache
def _adopt(name: str) -> Task:
    """Describe somebody else's goal environment by looking at its spaces."""
    module, _, env_id = name.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        env = gymnasium.make(env_id)
    except (ImportError, gymnasium.error.Error) as error:
        raise MerlinError(f"task {name}: cannot be made ({error}); check the name.") from None
    space, action = env.observation_space, env.action_space
    steps = env.spec.max_episode_steps if env.spec else None
    env.close()
    keys = {"observation", "achieved_goal", "desired_goal"}
    if not isinstance(space, gymnasium.spaces.Dict) or set(space.spaces) != keys:
        raise MerlinError(
            f"task {name}: is no goal environment; its observation must be a Dict of "
            f"{', '.join(sorted(keys))}."
        )
    if not isinstance(action, gymnasium.spaces.Box) or len(action.shape) != 1:
        raise MerlinError(f"task {name}: its actions must be a Box of one dimension.")
    if not (np.isfinite(action.low).all() and np.isfinite(action.high).all()):
        raise MerlinError(f"task {name}: its actions have no finite bounds; give them some.")
    if steps is None:
        raise MerlinError(f"task {name}: has no time limit; register it with max_episode_steps.")
    shapes = {key: space[key].shape for key in keys}
    if any(shape is None or len(shape) != 1 for shape in shapes.values()):
        raise MerlinError(f"task {name}: observations and goals must be vectors.")
    return Task(
        name=name,
        env_id=env_id,
        module=module or None,
        observation_dim=shapes["observation"][0],  # type: ignore[index]
        action_dim=action.shape[0],
        goal_dim=shapes["desired_goal"][0],  # type: ignore[index]
        action_low=tuple(map(float, action.low)),
        action_high=tuple(map(float, action.high)),
        episode_steps=steps,
    )


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


register()
