"""Playing seeded episodes, many at a time."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from merlin.tasks.batch import Batch, Observation
from merlin.tasks.registry import Task

Act = Callable[[Observation, int], np.ndarray]
"""From the batch's observations and the step to the batch's actions."""


class Rollout(NamedTuple):
    """Episodes of equal length, stacked: one state more than actions."""

    observations: np.ndarray  # (episodes, steps + 1, *observation): float32, or uint8 images
    actions: Float[np.ndarray, "episodes steps action"]
    achieved_goals: Float[np.ndarray, "episodes steps+1 goal"]
    desired_goals: Float[np.ndarray, "episodes goal"]
    rewards: Float[np.ndarray, "episodes steps"]  # 1 where the state reached is at the goal
    success: Bool[np.ndarray, "episodes steps"]


def rollout(batch: Batch, act: Act, seeds: Sequence[int], steps: int) -> Rollout:
    """Play one episode per seed; the batch has as many environments as there are seeds."""
    observation = batch.reset(seeds)
    states, actions, rewards, success = [observation], [], [], []
    for t in range(steps):
        action = np.asarray(act(observation, t), np.float32)
        answer = batch.step(action)
        observation = answer.observation
        states.append(observation)
        actions.append(action)
        rewards.append(answer.reward)
        success.append(answer.success)
    return Rollout(
        observations=float32_or_images(np.stack([s["observation"] for s in states], 1)),
        actions=np.stack(actions, 1),
        achieved_goals=np.stack([s["achieved_goal"] for s in states], 1).astype(np.float32),
        desired_goals=np.array(states[0]["desired_goal"], np.float32),
        rewards=np.stack(rewards, 1),
        success=np.stack(success, 1),
    )


def float32_or_images(array: np.ndarray) -> np.ndarray:
    """Images stay bytes: as numbers they would take four times the memory."""
    return array.copy() if array.dtype == np.uint8 else np.array(array, np.float32)


def waves(task: Task, seeds: Sequence[int]) -> Iterator[tuple[list[int], int]]:
    """Cut seeds into batches of one size, the last filled up, with how many of each count.

    Matrix products round differently for different batch sizes: with one size, an episode's
    result does not depend on how many others were asked for.
    """
    size = task.environments
    for begin in range(0, len(seeds), size):
        part = list(seeds[begin : begin + size])
        yield part + [part[-1]] * (size - len(part)), len(part)


def concatenate(parts: Sequence[Rollout]) -> Rollout:
    return Rollout(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def truncate(played: Rollout, episodes: int) -> Rollout:
    return Rollout(*(field[:episodes] for field in played))
