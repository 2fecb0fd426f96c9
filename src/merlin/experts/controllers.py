"""Scripted controllers that demonstrate to an expert. They see only what the expert sees."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

Controller = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Maps observations (batch, observation) and goals (batch, goal) to actions (batch, action)."""
FETCH_STEP, FETCH_SECONDS = 0.05, 0.04
"""Displacement of a Fetch gripper for an action of 1, in metres, and the duration of a step."""
SLIDE_FINGERS, SLIDE_PUCK = np.array([0.0135, 0.0149]), 0.025
"""Half the side lengths of the closed fingers' rectangle, and the puck's radius, in metres."""
SLIDE_REACH = 1.1
"""Largest x of the puck for a strike. It starts below this, so that it is struck only once."""
SLIDE_STRIKES = (0.0, 0.10, 0.20, 0.30, 0.45, 0.50, 0.60, 0.70, 0.80, 1.00, 1.30)
SLIDE_ANGLES = (0.0, 0.15, 0.19, 0.22, 0.28, 0.37, 0.59, 0.69, 0.77, 0.93, 1.52)
SLIDE_GAINS = (0.73, 0.73, 0.73, 0.73, 0.68, 0.71, 0.77, 0.84, 0.85, 0.80, 0.68)
SLIDE_REST = 0.073
SLIDE_NEARER = 14.0
"""A model of where a strike sends the puck, fitted to 1,000 random strikes.

A strike in direction SLIDE_STRIKES (radians from the x axis) sends it in direction SLIDE_ANGLES:
the flat face of the fingers hardly deflects it, their corner does. The square root of the distance
is SLIDE_REST + SLIDE_GAINS * the action's length, with standard deviations of 0.025 m along the
path and 0.02 m across. Every metre beyond 4 mm from the puck adds SLIDE_NEARER to the action.
"""


def one_by_one(control: Controller) -> Controller:
    """Turn a controller for a single state into one for a batch."""

    @functools.wraps(control)
    def each(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
        return np.stack([control(o, g) for o, g in zip(observation, goal, strict=True)])

    return each


@one_by_one
def fetch_push(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Move behind the box, as seen from the goal, and push it to the goal."""
    gripper, box = observation[:3], observation[3:6]
    to_goal = (goal - box)[:2]
    distance = np.linalg.norm(to_goal)
    action = np.zeros(4)
    if distance < 0.01:
        return action
    direction = to_goal / distance
    behind = box.copy()
    behind[:2] -= 0.075 * direction
    offset = gripper[:2] - box[:2]
    along = offset @ direction
    beside = offset - along * direction
    if along < -0.02 and np.linalg.norm(beside) < 0.02 and gripper[2] < box[2] + 0.03:
        # Push along the line, and slow down as the box arrives.
        push = direction * min(1.0, 0.25 + 4.0 * distance) - 8.0 * beside
        action[:2] = push
        action[2] = (box[2] - gripper[2]) / FETCH_STEP
    elif np.linalg.norm(gripper[:2] - behind[:2]) < 0.02:
        action[:2] = (behind - gripper)[:2] / FETCH_STEP
        action[2] = (box[2] - gripper[2]) / FETCH_STEP
    else:
        # Stay above the box, to avoid knocking it on the way around.
        high = box[2] + 0.08
        action[2] = (high - gripper[2]) / FETCH_STEP
        if gripper[2] > box[2] + 0.05 or np.linalg.norm(offset) > 0.12:
            action[:2] = (behind - gripper)[:2] / FETCH_STEP
    return np.clip(action, -1.0, 1.0)


@one_by_one
def fetch_pick(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Lower the open fingers over the box, close them, and carry it to the goal."""
    gripper, box = observation[:3], observation[3:6]
    opening = observation[9] + observation[10]
    offset = box - gripper
    action = np.zeros(4)
    flat = np.linalg.norm(offset[:2])
    if flat < 0.015 and abs(offset[2]) < 0.015:
        action[3] = -1.0
        if opening < 0.055:  # the box is 0.05 wide, so it is held
            action[:3] = (goal - box) / FETCH_STEP
    else:
        action[3] = 1.0
        if flat < 0.02:
            action[:3] = offset / FETCH_STEP
        else:
            action[:2] = offset[:2] / FETCH_STEP
            action[2] = (box[2] + 0.07 - gripper[2]) / FETCH_STEP
    return np.clip(action, -1.0, 1.0)


@one_by_one
def fetch_slide(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Move behind the puck, as seen from the goal, and strike it according to the distance.

    Within a step the gripper is fastest at the beginning and then slows down. It therefore stops
    just short of the puck, and strikes it in the next step.
    """
    gripper, puck = observation[:3], observation[3:6]
    # Velocities are observed per step, the puck's relative to the gripper's.
    speed = np.linalg.norm(observation[14:16] + observation[20:22]) / FETCH_SECONDS
    to_goal = (goal - puck)[:2]
    action = np.zeros(4)
    if speed > 0.1 or puck[0] > SLIDE_REACH or np.linalg.norm(to_goal) < 0.04:
        return action  # it is sliding, has been struck, or is at the goal
    direction, strength = _strike(to_goal)
    gap = puck[:2] - gripper[:2] - _touching(direction) * direction
    along = gap @ direction
    beside = np.linalg.norm(gap - along * direction)
    height = gripper[2] - puck[2]
    low = height < 0.018
    level = 0.01
    if low and -0.01 < along < 0.01 and beside < 0.01:
        action[:2] = (strength + SLIDE_NEARER * (along - 0.004)) * direction
    elif low and 0.0 < along < 0.05 and beside < 0.012:
        # Move to 4 mm from the puck in one step: from rest, a step covers 0.6 of the command.
        action[:2] = (gap - 0.004 * direction) / (0.6 * FETCH_STEP)
        action /= max(1.0, float(np.abs(action).max()))
    else:
        error = gap - 0.032 * direction
        there = np.linalg.norm(error) < 0.012
        if there or height > 0.043 or np.linalg.norm(gap) > 0.09:
            action[:2] = 1.6 * error / FETCH_STEP
        if not there:
            level = 0.065  # above the puck, to avoid knocking it on the way around
    action[2] = 1.6 * (level - height) / FETCH_STEP
    return np.clip(action, -1.0, 1.0)


def _strike(to_goal: np.ndarray) -> tuple[np.ndarray, float]:
    """Direction and length of the action that sends the puck along a vector on the table."""
    distance = np.linalg.norm(to_goal)
    wanted = np.arctan2(to_goal[1], to_goal[0])
    turn = np.interp(abs(wanted), SLIDE_ANGLES, SLIDE_STRIKES)
    angle = np.sign(wanted) * turn
    direction = np.array([np.cos(angle), np.sin(angle)])
    gain = np.interp(turn, SLIDE_STRIKES, SLIDE_GAINS)
    most = 1.0 / np.abs(direction).max()
    return direction, float(np.clip((np.sqrt(distance) - SLIDE_REST) / gain, 0.15, most))


def _touching(direction: np.ndarray) -> float:
    """Distance between the centres of gripper and puck when they touch."""
    ahead = np.abs(direction)
    faces = (SLIDE_FINGERS + SLIDE_PUCK) / np.maximum(ahead, 1e-9)
    if faces[0] * ahead[1] <= SLIDE_FINGERS[1]:
        return float(faces[0])
    if faces[1] * ahead[0] <= SLIDE_FINGERS[0]:
        return float(faces[1])
    corner = ahead @ SLIDE_FINGERS
    return float(corner + np.sqrt(corner**2 - SLIDE_FINGERS @ SLIDE_FINGERS + SLIDE_PUCK**2))


def sawyer_door(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Lower the hook behind the bar, then pull until the door is open far enough.

    At the end of the workspace, wide angles are possible only close to the hinge, hence the motion
    along x.
    """
    y, z, angle = observation[:, 1], observation[:, 2], observation[:, 3]
    speed = np.clip(5.0 * (goal[:, 0] - angle), -1.0, 1.0)
    pull = np.stack([np.where(y < 0.5, speed, 0.0), -speed, np.zeros_like(z)], axis=1)
    # A goal of a closed door needs no hook.
    lower = np.array([0.0, 0.0, -1.0]) * (goal > 0.01)
    return np.where((z > 0.176)[:, None], lower, pull)


@one_by_one
def hand_reach(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Damped least squares on the Jacobians of the fingertips.

    The servos are weak and need commands of several times the remaining distance.
    """
    return _hand_model().control(observation, goal)


class _Hand:
    """Kinematics of the Shadow hand for observed joint angles."""

    GAIN, DAMPING = 6.0, 0.02
    COUPLED = ("FFJ1", "MFJ1", "RFJ1", "LFJ1")  # the joint after each of these moves with it

    def __init__(self) -> None:
        import mujoco

        from merlin.envs.batch import make_single
        from merlin.envs.registry import TASKS

        self._mujoco = mujoco
        env: Any = make_single(TASKS["HandReach"])
        self._model = env.model
        self._data = mujoco.MjData(self._model)
        names = ("ff", "mf", "rf", "lf", "th")
        self._tips = [self._model.site(f"robot0:S_{name}tip").id for name in names]
        self._joints = self._model.actuator_trnid[:, 0]
        self._coupled = [
            self._model.joint(int(joint)).name.removeprefix("robot0:") in self.COUPLED
            for joint in self._joints
        ]
        low, high = self._model.actuator_ctrlrange.T
        self._centre, self._half = (high + low) / 2, (high - low) / 2

    def control(self, observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
        count = self._model.nv
        self._data.qpos[:] = observation[:count]
        self._mujoco.mj_kinematics(self._model, self._data)
        self._mujoco.mj_comPos(self._model, self._data)
        jacobian = np.zeros((3 * len(self._tips), count))
        for index, tip in enumerate(self._tips):
            rows = jacobian[3 * index : 3 * index + 3]
            self._mujoco.mj_jacSite(self._model, self._data, rows, None, tip)
        driven = jacobian[:, self._joints] + jacobian[:, (self._joints + 1) % count] * np.array(
            self._coupled
        )
        error = self.GAIN * (goal - observation[2 * count :])
        square = driven @ driven.T + self.DAMPING**2 * np.eye(len(driven))
        change = driven.T @ np.linalg.solve(square, error)
        wanted = observation[:count][self._joints] + change
        return np.clip((wanted - self._centre) / self._half, -1.0, 1.0)


@functools.cache
def _hand_model() -> _Hand:
    return _Hand()


CONTROLLERS: dict[str, Controller] = {
    "fetch_push": fetch_push,
    "fetch_pick": fetch_pick,
    "fetch_slide": fetch_slide,
    "sawyer_door": sawyer_door,
    "hand_reach": hand_reach,
}
