"""SawyerReach and SawyerDoor: a robot hand that is moved within a box.

The hand is welded to a mocap body. An action displaces that body by up to 0.02 m along each axis,
within a box, and the simulation moves the arm along. In SawyerReach the goal is a position of the
hand, in SawyerDoor an angle of a door that a hook on the hand can pull open.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float, Float32, Float64, UInt8

from merlin.io import extras

extras.check("sawyer", "a Sawyer task")

import mujoco  # noqa: E402

from merlin.envs import sawyer_scene  # noqa: E402
from merlin.envs.sawyer_scene import Camera, Marker, View, shared_camera  # noqa: E402

Observation = dict[str, Float32[np.ndarray, "..."]]
Bounds = tuple[float, ...]

METADATA: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}

ACTION_SCALE = 0.02
"""Displacement of the hand's target along an axis for an action of 1, in metres."""
FRAME_SKIP = 50
"""Physics steps per action."""
SETTLING_FRAMES = 10
"""Frames for which the hand is held at its start before the first observation."""
HAND_MARGIN = 0.06
"""Margin of the observed hand around its box: it starts outside and lags its target."""
ARM_START = (1.7244448, -0.92036369, 0.10234232, 2.11178144, 2.97668632, -0.38664629, 0.54065733)


class SawyerEnv(gymnasium.Env[Observation, Float32[np.ndarray, "3"]], ABC):
    """Shared code of the two tasks: hand, control, episodes, reward and rendering.

    The environment never ends an episode; register it with a time limit. With `draw_goal`, frames
    show the goal as a translucent shape.
    """

    metadata = METADATA
    hand_low: ClassVar[Bounds]
    hand_high: ClassVar[Bounds]
    hand_start: ClassVar[Bounds]
    """Position of the hand after reset; it may lie outside the box."""
    goal_low: ClassVar[Bounds]
    goal_high: ClassVar[Bounds]
    achieved_low: ClassVar[Bounds]
    achieved_high: ClassVar[Bounds]
    tolerance: ClassVar[float]
    """Distance to the goal up to which the reward is 0 instead of -1."""
    success_tolerance: ClassVar[float]
    """Distance to the goal below which `info["is_success"]` is 1."""
    view: ClassVar[View]

    def __init__(
        self,
        render_mode: str | None = None,
        width: int = 480,
        height: int = 480,
        draw_goal: bool = True,
    ):
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode must be None or 'rgb_array', not {render_mode!r}")
        self.render_mode = render_mode
        self.draw_goal = draw_goal
        self.action_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        goal_conditioned: spaces.Space[Any] = spaces.Dict(
            observation=self._observation_box(),
            achieved_goal=_box(self.achieved_low, self.achieved_high),
            desired_goal=_box(self.goal_low, self.goal_high),
        )
        self.observation_space = goal_conditioned
        self._model = self._build_model(width, height)
        self._data = mujoco.MjData(self._model)
        self._camera: Camera | None = None
        self._goal = np.array(self.goal_low, np.float32)
        self._start = self._settled_state()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Restore the start state and draw a new goal."""
        super().reset(seed=seed)
        self._goal = self.np_random.uniform(self.goal_low, self.goal_high).astype(np.float32)
        mujoco.mj_setState(self._model, self._data, self._start, _STATE)
        mujoco.mj_forward(self._model, self._data)
        observation = self._observe()
        return observation, self._info(observation)

    def step(
        self, action: Float[np.ndarray, "3"]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Displace the target of the hand and simulate one frame."""
        target = self._data.mocap_pos[0]
        target += ACTION_SCALE * np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        np.clip(target, self.hand_low, self.hand_high, out=target)
        mujoco.mj_step(self._model, self._data, FRAME_SKIP)
        # The last physics step updated the joints, but not yet the observed bodies.
        mujoco.mj_kinematics(self._model, self._data)
        observation = self._observe()
        info = self._info(observation)
        reward = self.compute_reward(
            observation["achieved_goal"], observation["desired_goal"], info
        )
        return observation, float(reward), False, False, info

    def compute_reward(
        self,
        achieved_goal: Float[np.ndarray, "*batch goal"],
        desired_goal: Float[np.ndarray, "*batch goal"],
        info: Any,
    ) -> Float32[np.ndarray, "*batch"] | np.float32:
        """Return 0 within `tolerance` of the goal and -1 elsewhere; `info` is ignored.

        Single goals give a scalar, arrays of goals an array.
        """
        reached = _distance(achieved_goal, desired_goal) <= self.tolerance
        return reached.astype(np.float32) - np.float32(1.0)

    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:
        """Return the current frame if the render mode is "rgb_array"."""
        if self.render_mode is None:
            return None
        return self._film(self._data, [self._goal_marker()] if self.draw_goal else [])

    def goal_frame(self) -> UInt8[np.ndarray, "height width 3"]:
        """The frame with the goal reached."""
        data = mujoco.MjData(self._model)
        mujoco.mj_setState(self._model, data, self._start, _STATE)
        self._reach_goal(data)
        mujoco.mj_forward(self._model, data)
        return self._film(data, [])

    def _film(
        self, data: mujoco.MjData, markers: list[Marker]
    ) -> UInt8[np.ndarray, "height width 3"]:
        if self._camera is None:
            self._camera = shared_camera(type(self), self._model, self.view)
        return self._camera.frame(data, markers)

    def close(self) -> None:
        """Free the rendering resources; the environment itself stays usable."""
        if self._camera is not None:
            self._camera = None  # the camera is shared; its last user frees it

    def __getstate__(self) -> dict[str, Any]:
        """All state except the camera, whose OpenGL context belongs to this process."""
        return self.__dict__ | {"_camera": None}

    @abstractmethod
    def _build_model(self, width: int, height: int) -> mujoco.MjModel: ...

    @abstractmethod
    def _observation_box(self) -> spaces.Box: ...

    @abstractmethod
    def _observe(self) -> Observation: ...

    @abstractmethod
    def _goal_marker(self) -> Marker: ...

    @abstractmethod
    def _reach_goal(self, data: mujoco.MjData) -> None:
        """Change the start state into one at the goal."""

    def _hand(self) -> Float64[np.ndarray, "3"]:
        position: Float64[np.ndarray, "3"] = self._data.body("hand").xpos
        return position

    def _info(self, observation: Observation) -> dict[str, Any]:
        distance = _distance(observation["achieved_goal"], observation["desired_goal"])
        return {"is_success": float(distance < self.success_tolerance)}

    def _settled_state(self) -> Float64[np.ndarray, "state"]:
        """Hold the hand at its start until it rests, and return that start state."""
        model, data = self._model, self._data
        for name, angle in zip(sawyer_scene.ARM_JOINTS, ARM_START, strict=True):
            data.joint(name).qpos = angle
        data.mocap_pos[0] = self.hand_start
        data.mocap_quat[0] = sawyer_scene.HAND_ORIENTATION
        mujoco.mj_step(model, data, SETTLING_FRAMES * FRAME_SKIP)
        self._close_door()
        state = np.empty(mujoco.mj_stateSize(model, _STATE))
        mujoco.mj_getState(model, data, state, _STATE)
        return state

    def _close_door(self) -> None:
        """Undo the effect of the settling hand on the scene."""


class SawyerReachEnv(SawyerEnv):
    """Move the hand to a position in a box of 0.4 x 0.2 x 0.25 m."""

    hand_low = goal_low = (-0.2, 0.55, 0.05)
    hand_high = goal_high = (0.2, 0.75, 0.3)
    achieved_low = tuple(x - HAND_MARGIN for x in hand_low)
    achieved_high = tuple(x + HAND_MARGIN for x in hand_high)
    hand_start = (0.0, 0.5, 0.02)
    tolerance = success_tolerance = 0.06
    view = View(lookat=(0.0, 0.6, 0.17), distance=1.05, azimuth=215.0, elevation=-35.0)

    def _build_model(self, width: int, height: int) -> mujoco.MjModel:
        return sawyer_scene.reach_model(width, height)

    def _observation_box(self) -> spaces.Box:
        return _box(self.achieved_low, self.achieved_high)

    def _observe(self) -> Observation:
        hand = self._hand().astype(np.float32)
        return {
            "observation": hand,
            "achieved_goal": hand.copy(),
            "desired_goal": self._goal.copy(),
        }

    def _goal_marker(self) -> Marker:
        return Marker(
            mujoco.mjtGeom.mjGEOM_SPHERE,
            size=(0.02, 0.02, 0.02),
            position=self._goal.astype(np.float64),
            rotation=np.eye(3),
        )

    def _reach_goal(self, data: mujoco.MjData) -> None:
        data.mocap_pos[0] = self._goal
        mujoco.mj_step(self._model, data, SETTLING_FRAMES * FRAME_SKIP)


class SawyerDoorEnv(SawyerEnv):
    """Open a cabinet door to an angle by hooking its handle from above and pulling.

    The reward tolerates 0.06 rad, success only 0.02 rad.
    """

    metadata = METADATA | {"render_fps": 7}
    hand_low = (-0.1, 0.45, 0.1)
    hand_high = (0.05, 0.65, 0.25)
    hand_start = (-0.05, 0.635, 0.225)
    goal_low = (0.0,)
    goal_high = (0.83,)
    # The hinge stops at 0 and 1.0472, but softly.
    achieved_low = (-0.1,)
    achieved_high = (1.2,)
    tolerance = 0.06
    success_tolerance = 0.02
    view = View(lookat=(-0.05, 0.6, 0.17), distance=0.85, azimuth=25.0, elevation=-35.0)

    def _build_model(self, width: int, height: int) -> mujoco.MjModel:
        return sawyer_scene.door_model(width, height)

    def _observation_box(self) -> spaces.Box:
        low = (*(x - HAND_MARGIN for x in self.hand_low), *self.achieved_low)
        high = (*(x + HAND_MARGIN for x in self.hand_high), *self.achieved_high)
        return _box(low, high)

    def _observe(self) -> Observation:
        angle = self._data.joint("door").qpos
        return {
            "observation": np.concatenate((self._hand(), angle)).astype(np.float32),
            "achieved_goal": angle.astype(np.float32),
            "desired_goal": self._goal.copy(),
        }

    def _goal_marker(self) -> Marker:
        angle = float(self._goal[0])
        return Marker(
            mujoco.mjtGeom.mjGEOM_BOX,
            size=sawyer_scene.HANDLE_HALF_SIZE,
            position=sawyer_scene.handle_position(angle),
            rotation=sawyer_scene.door_rotation(angle),
        )

    def _reach_goal(self, data: mujoco.MjData) -> None:
        data.joint("door").qpos = self._goal  # the goal does not specify the hand, so it stays

    def _close_door(self) -> None:
        hinge = self._data.joint("door")
        hinge.qpos = hinge.qvel = 0.0


# Everything the next step depends on, including the solver's warm start.
_STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)


def _box(low: Bounds, high: Bounds) -> spaces.Box:
    return spaces.Box(np.array(low, np.float32), np.array(high, np.float32), dtype=np.float32)


def _distance(
    a: Float[np.ndarray, "*batch goal"], b: Float[np.ndarray, "*batch goal"]
) -> Float64[np.ndarray, "*batch"] | np.float64:
    difference = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    distance: Float64[np.ndarray, "*batch"] | np.float64 = np.linalg.norm(difference, axis=-1)
    return distance
