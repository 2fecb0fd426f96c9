"""Scripted controllers whose episodes help an expert to explore. They see what the expert sees."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

Controller = Callable[
    [Float[np.ndarray, "batch observation"], Float[np.ndarray, "batch goal"]],
    Float[np.ndarray, "batch action"],
]
FETCH_STEP = 0.05
"""Metres that a Fetch gripper moves under an action of 1."""


def fetch_push(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Go behind the box, seen from the goal, and push it there."""
    return np.stack([_push_one(o, g) for o, g in zip(observation, goal, strict=True)])


def _push_one(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
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
        # Push: keep the line, and slow down as the box arrives.
        push = direction * min(1.0, 0.25 + 4.0 * distance) - 8.0 * beside
        action[:2] = push
        action[2] = (box[2] - gripper[2]) / FETCH_STEP
    elif np.linalg.norm(gripper[:2] - behind[:2]) < 0.02:
        action[:2] = (behind - gripper)[:2] / FETCH_STEP
        action[2] = (box[2] - gripper[2]) / FETCH_STEP
    else:
        # Over the box's height, so as not to knock it on the way round.
        high = box[2] + 0.08
        action[2] = (high - gripper[2]) / FETCH_STEP
        if gripper[2] > box[2] + 0.05 or np.linalg.norm(offset) > 0.12:
            action[:2] = (behind - gripper)[:2] / FETCH_STEP
    return np.clip(action, -1.0, 1.0)


def fetch_pick(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Lower open fingers over the box, close them, carry it."""
    return np.stack([_pick_one(o, g) for o, g in zip(observation, goal, strict=True)])


def _pick_one(observation: np.ndarray, goal: np.ndarray) -> np.ndarray:
    gripper, box = observation[:3], observation[3:6]
    opening = observation[9] + observation[10]
    offset = box - gripper
    action = np.zeros(4)
    flat = np.linalg.norm(offset[:2])
    if flat < 0.015 and abs(offset[2]) < 0.015:
        action[3] = -1.0
        if opening < 0.055:  # the box is 0.05 wide: held
            action[:3] = (goal - box) / FETCH_STEP
    else:
        action[3] = 1.0
        if flat < 0.02:
            action[:3] = offset / FETCH_STEP
        else:
            action[:2] = offset[:2] / FETCH_STEP
            action[2] = (box[2] + 0.07 - gripper[2]) / FETCH_STEP
    return np.clip(action, -1.0, 1.0)


CONTROLLERS: dict[str, Controller] = {"fetch_push": fetch_push, "fetch_pick": fetch_pick}
