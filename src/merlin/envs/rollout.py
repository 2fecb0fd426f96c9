"""Batched rollouts of seeded episodes."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from merlin.envs.batch import EnvBatch, Observation
from merlin.envs.registry import Task

Act = Callable[[Observation, int], np.ndarray]
"""Maps the observations of a batch and the time step to actions."""


class Rollout(NamedTuple):
    """Stacked episodes, each with one state more than actions.

    Episodes that end early are padded by repeating their last state; see `EnvBatch`.
    """

    observations: np.ndarray  # (episodes, steps + 1, *observation): float32, or uint8 images
    actions: Float[np.ndarray, "episodes steps action"]
    achieved_goals: Float[np.ndarray, "episodes steps+1 goal"]
    desired_goals: Float[np.ndarray, "episodes goal"]
    rewards: Float[np.ndarray, "episodes steps"]  # 1 if the next state is at the goal
    success: Bool[np.ndarray, "episodes steps"]
    lengths: Int[np.ndarray, " episodes"]  # steps of each episode


def rollout(batch: EnvBatch, act: Act, seeds: Sequence[int], steps: int) -> Rollout:
    """Play one episode per seed; the batch must have one environment per seed."""
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
    rest = steps - len(actions)  # all episodes have ended
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


def discounted(
    rewards: Float[np.ndarray, "episodes steps"], discount: float
) -> Float[np.ndarray, " episodes"]:
    """The return of each episode, added up step by step.

    A matrix product would add in an order that depends on the processor, and so would NumPy's power
    round: they differ from a plain loop in the last digits.
    """
    weights = [discount**t for t in range(rewards.shape[1])]
    return np.add.accumulate(rewards * weights, axis=1)[:, -1]


def float32_or_images(array: np.ndarray) -> np.ndarray:
    """Convert to float32, except images, which stay uint8 to save memory."""
    return array.copy() if array.dtype == np.uint8 else np.array(array, np.float32)


def waves(task: Task, seeds: Sequence[int]) -> Iterator[tuple[list[int], int]]:
    """Split seeds into batches of equal size, padding the last; yields seeds and valid count.

    Matrix products round differently for different batch sizes. With a fixed size, the result of
    an episode does not depend on the number of episodes.
    """
    size = task.environments
    for begin in range(0, len(seeds), size):
        part = list(seeds[begin : begin + size])
        yield part + [part[-1]] * (size - len(part)), len(part)


Fields = TypeVar("Fields", bound=tuple)


def concatenate(parts: Sequence[Fields]) -> Fields:
    """Concatenate named tuples of arrays, field by field."""
    return type(parts[0])(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def truncate(played: Rollout, episodes: int) -> Rollout:
    return Rollout(*(field[:episodes] for field in played))
