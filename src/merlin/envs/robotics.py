"""Fetch and the Shadow hand from Gymnasium-Robotics, and Reacher as a goal environment."""

import contextlib
import importlib
import io
import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float

from merlin.envs.gl import pick_gl
from merlin.io import extras

extras.check("robotics", "a Reacher, Fetch or hand task")

from gymnasium.envs.mujoco.reacher_v5 import ReacherEnv  # noqa: E402

Observation = dict[str, np.ndarray]


def make(module: str, name: str, **arguments: Any) -> gymnasium.Env:
    """An environment of Gymnasium-Robotics with sparse rewards, imported on first use.

    The import prints warnings about environments that are not used here; they are suppressed.
    """
    if arguments.get("render_mode"):
        pick_gl()  # sets MUJOCO_GL, which Gymnasium's renderer reads
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        home = importlib.import_module(f"gymnasium_robotics.envs.{module}")
    env = getattr(home, name)(reward_type="sparse", **arguments)
    env._utils = _QuickUtils(env)
    return env


class _QuickUtils:
    """The functions with which Gymnasium-Robotics reads the simulation, one of them faster.

    `robot_get_obs` looks up the robot's joints by name once instead of in every step, which took a
    third of the simulation time of Fetch and hand. The numbers are the same.
    """

    def __init__(self, env: Any):
        self._utils, model = env._utils, env.model
        robot = [n for n in env._model_names.joint_names if n.startswith("robot")]
        joints = [env._model_names.joint_name2id[name] for name in robot]
        self._positions, self._velocities = model.jnt_qposadr[joints], model.jnt_dofadr[joints]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._utils, name)

    def robot_get_obs(
        self, model: Any, data: Any, joint_names: Any
    ) -> tuple[Float[np.ndarray, " joints"], Float[np.ndarray, " joints"]]:
        """Positions and velocities of the robot's joints, which are all hinges and slides."""
        return data.qpos[self._positions], data.qvel[self._velocities]


class GoalReacher(gymnasium.Env):
    """Gymnasium's two-link arm as a goal environment: move the fingertip to a target.

    The observation has the benchmark's eleven numbers: cosines and sines of the two angles, the
    target, the angular velocities, the fingertip, and a zero (the fingertip's height over the
    target). The target stays in the observation even when a goal is relabelled, as it does in
    the benchmark's data.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012
    tolerance = 0.05

    def __init__(self, render_mode: str | None = None, width: int = 480, height: int = 480):
        self.render_mode = render_mode
        if render_mode:
            pick_gl()
        self._arm = ReacherEnv(render_mode=render_mode, width=width, height=height)
        self.action_space = self._arm.action_space
        box = lambda size: spaces.Box(-np.inf, np.inf, (size,), np.float64)  # noqa: E731
        self.observation_space = spaces.Dict(
            observation=box(11), achieved_goal=box(2), desired_goal=box(2)
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        raw, _ = self._arm.reset(seed=int(self.np_random.integers(2**31)), options=options)
        observation = self._observe(raw)
        return observation, self._info(observation)

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        # The arm itself does not clip torques; the benchmark's actions are within +-1.
        raw, *_ = self._arm.step(np.clip(action, -1.0, 1.0))
        observation = self._observe(raw)
        reward = self.compute_reward(
            observation["achieved_goal"], observation["desired_goal"], None
        )
        return observation, float(reward), False, False, self._info(observation)

    def compute_reward(
        self,
        achieved_goal: Float[np.ndarray, "*batch 2"],
        desired_goal: Float[np.ndarray, "*batch 2"],
        info: Any,
    ) -> np.ndarray:
        """-1 where the goal is farther than the tolerance, else 0."""
        distance = np.linalg.norm(np.asarray(achieved_goal) - np.asarray(desired_goal), axis=-1)
        return np.where(distance > self.tolerance, np.float32(-1.0), np.float32(0.0))

    def render(self) -> Any:
        return self._arm.render()

    def close(self) -> None:
        self._arm.close()

    @staticmethod
    def _observe(raw: Float[np.ndarray, "10"]) -> Observation:
        target = raw[4:6].copy()
        fingertip = raw[8:10] + target
        return {
            "observation": np.concatenate([raw[:8], fingertip, [0.0]]),
            "achieved_goal": fingertip,
            "desired_goal": target,
        }

    def _info(self, observation: Observation) -> dict[str, Any]:
        distance = np.linalg.norm(observation["achieved_goal"] - observation["desired_goal"])
        return {"is_success": float(distance < self.tolerance)}
