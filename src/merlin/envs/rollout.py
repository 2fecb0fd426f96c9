"""Playing seeded episodes, many at a time."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from merlin.envs.batch import EnvBatch, Observation
from merlin.envs.registry import Task

Act = Callable[[Observation, int], np.ndarray]
"""From the batch's observations and the step to the batch's actions."""


class Rollout(NamedTuple):
    """Episodes stacked: one state more than actions.

    One that ended early stands still until the others have ended, see `EnvBatch`.
    """

    observations: np.ndarray  # (episodes, steps + 1, *observation): float32, or uint8 images
    actions: Float[np.ndarray, "episodes steps action"]
    achieved_goals: Float[np.ndarray, "episodes steps+1 goal"]
    desired_goals: Float[np.ndarray, "episodes goal"]
    rewards: Float[np.ndarray, "episodes steps"]  # 1 where the state reached is at the goal
    success: Bool[np.ndarray, "episodes steps"]
    lengths: Int[np.ndarray, " episodes"]  # steps until the end of each


def rollout(batch: EnvBatch, act: Act, seeds: Sequence[int], steps: int) -> Rollout:
    """Play one episode per seed; the batch has as many environments as there are seeds."""
    observation = batch.reset(seeds)
    states, actions, rewards, success = [observation], [], [], []
    lengths = np.zeros(len(seeds), np.int64)
    going = np.ones(len(seeds), bool)
    for t in range(steps):
        action = np.asarray(act(observation, t), np.float32)
        answer = batch.step(action)
        observation = answer.observation
        states.append(observation)
        actions.append(action)
        rewards.append(answer.reward)
        success.append(answer.success)
        lengths += going
        going = ~answer.ended
        if not going.any():
            break
    rest = steps - len(actions)  # all have ended: nothing changes any more
    states += [observation] * rest
    actions += [np.zeros_like(action)] * rest
    rewards += [np.zeros_like(answer.reward)] * rest
    success += [answer.success] * rest
    return Rollout(
        observations=float32_or_images(np.stack([s["observation"] for s in states], 1)),
        actions=np.stack(actions, 1),
        achieved_goals=np.stack([s["achieved_goal"] for s in states], 1).astype(np.float32),
        desired_goals=np.array(states[0]["desired_goal"], np.float32),
        rewards=np.stack(rewards, 1),
        success=np.stack(success, 1),
        lengths=lengths,
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


Fields = TypeVar("Fields", bound=tuple)


def concatenate(parts: Sequence[Fields]) -> Fields:
    """Join named tuples of arrays, field by field."""
    return type(parts[0])(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def truncate(played: Rollout, episodes: int) -> Rollout:
    return Rollout(*(field[:episodes] for field in played))
