"""OGBench's environments as goal environments whose episodes depend only on their seed.

A goal is a whole observation. Every environment has five fixed evaluation goals; the seed of an
episode selects one. OGBench is imported when the first environment is made.
"""

import os
import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator

from merlin.envs.gl import pick_gl
from merlin.envs.ogbench import GOALS, PREFIX, SIZES
from merlin.io import extras

Observation = dict[str, np.ndarray]


class OwnRandomness:
    """A private copy of NumPy's global random state, which OGBench draws from.

    Within the context, global draws come from this stream. On exit the global state is restored.
    """

    def __init__(self, seed: int):
        self._own = np.random.RandomState(seed).get_state()

    def __enter__(self) -> None:
        self._outer = np.random.get_state()  # noqa: NPY002 (it is what OGBench draws from)
        np.random.set_state(self._own)  # noqa: NPY002

    def __exit__(self, *_: object) -> None:
        self._own = np.random.get_state()  # noqa: NPY002
        np.random.set_state(self._outer)  # noqa: NPY002


def make_plain(dataset: str, **arguments: Any) -> Any:
    """OGBench's own environment of a dataset, without a time limit."""
    extras.check("ogbench", f"task {PREFIX}{dataset}")
    import ogbench  # noqa: F401 (registers the environments)

    spec = gymnasium.spec(SIZES[dataset].env)
    assert isinstance(spec.entry_point, str)
    with warnings.catch_warnings():
        # Importing GLFW warns if there is no display, but states need no renderer.
        warnings.filterwarnings("ignore", message=".*DISPLAY")
        create: Any = load_env_creator(spec.entry_point)
    if isinstance(create, type):
        # Its property creates a new, unseeded space on every access.
        space = spaces.Box(-1.0, 1.0, (SIZES[dataset].action,), np.float32)
        create = type(create.__name__, (create,), {"action_space": space})
    env = create(**spec.kwargs, **arguments)
    if "maze_type" in spec.kwargs:
        os.unlink(env.fullpath)  # a temporary file that is read only once
    return env


class GoalTask(gymnasium.Env):
    """An environment of OGBench as a goal environment; episodes end at their goal.

    `reset(seed=n)` uses the evaluation goal n % 5 + 1, and `reset(options={"task_id": k})` uses
    goal k. The same seed gives the same episode.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self, dataset: str, render_mode: str | None = None, width: int = 400, height: int = 400
    ):
        self.render_mode = render_mode
        if render_mode:
            pick_gl()  # sets MUJOCO_GL, which MuJoCo reads on import
        self._env = make_plain(dataset, render_mode="rgb_array", width=width, height=height)
        size = SIZES[dataset]
        self.action_space = spaces.Box(-1.0, 1.0, (size.action,), np.float32)
        box = spaces.Box(-np.inf, np.inf, (size.observation,), np.float64)
        self.observation_space = spaces.Dict(dict.fromkeys(_KEYS, box))
        self._maze = "maze_type" in gymnasium.spec(size.env).kwargs
        self._draws_in_steps = "teleport" in dataset
        self._random = OwnRandomness(0)
        self._goal = np.zeros(size.observation)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        own = int(self.np_random.integers(2**31)) if seed is None else seed
        chosen = {"task_id": own % GOALS + 1, **(options or {})}
        drawn = int(np.random.SeedSequence(own).generate_state(1)[0])
        self._random = OwnRandomness(drawn)
        with self._random:
            self._env.action_space.seed(drawn)
            observation, info = self._env.reset(options=chosen, seed=drawn)
        self._goal = np.asarray(info["goal"], np.float64)
        return self._seen(observation), {"success": False, "task_id": chosen["task_id"]}

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if self._draws_in_steps:
            with self._random:
                observation, reward, terminated, _, info = self._env.step(action)
        else:
            observation, reward, terminated, _, info = self._env.step(action)
        told = {"success": bool(info["success"])}
        return self._seen(observation), float(reward), bool(terminated), False, told

    def render(self) -> Any:
        return self._env.render()

    def close(self) -> None:
        # OGBench would free its renderers at process exit, when OpenGL is already gone.
        drawing = self._env.custom_renderer if self._maze else self._env._renderer
        if drawing is not None:
            drawing.close()
        self._env.close()

    def _seen(self, observation: np.ndarray) -> Observation:
        state = np.asarray(observation, np.float64)
        return dict(zip(_KEYS, (state, state, self._goal), strict=True))


_KEYS = ("observation", "achieved_goal", "desired_goal")
