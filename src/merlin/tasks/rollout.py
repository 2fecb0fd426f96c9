"""Playing seeded episodes, many at a time."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import gymnasium
import numpy as np
from jaxtyping import Bool, Float

from merlin.tasks.registry import Task

Observation = dict[str, np.ndarray]
Act = Callable[[Observation, int], np.ndarray]
"""From the batch's observations and the step to the batch's actions."""


class Rollout(NamedTuple):
    """Episodes of equal length, stacked: one state more than actions."""

    observations: Float[np.ndarray, "episodes steps+1 observation"]
    actions: Float[np.ndarray, "episodes steps action"]
    achieved_goals: Float[np.ndarray, "episodes steps+1 goal"]
    desired_goals: Float[np.ndarray, "episodes goal"]
    rewards: Float[np.ndarray, "episodes steps"]  # 1 where the state reached is at the goal
    success: Bool[np.ndarray, "episodes steps"]


def make_batch(task: Task, n: int) -> gymnasium.vector.VectorEnv:
    """`n` environments that step together."""
    mode = "vector_entry_point" if task.vector_entry_point else "sync"
    return gymnasium.make_vec(task.env_id, num_envs=n, vectorization_mode=mode)


def rollout(env: gymnasium.vector.VectorEnv, act: Act, seeds: Sequence[int], steps: int) -> Rollout:
    """Play one episode per seed; `env` has as many environments as there are seeds."""
    observation, _ = env.reset(seed=[int(seed) for seed in seeds])  # type: ignore[arg-type]
    states, actions, rewards, success = [observation], [], [], []
    for t in range(steps):
        action = act(observation, t)
        observation, reward, _, _, info = env.step(action)
        states.append(observation)
        actions.append(np.asarray(action, np.float32))
        rewards.append(np.asarray(reward) + 1.0)  # environments give -1 and 0
        success.append(np.asarray(info["is_success"]) > 0.5)
    return Rollout(
        observations=np.stack([s["observation"] for s in states], 1).astype(np.float32),
        actions=np.stack(actions, 1),
        achieved_goals=np.stack([s["achieved_goal"] for s in states], 1).astype(np.float32),
        desired_goals=np.array(states[0]["desired_goal"], np.float32),
        rewards=np.stack(rewards, 1),
        success=np.stack(success, 1),
    )


def waves(task: Task, seeds: Sequence[int]) -> Iterator[tuple[Sequence[int], int]]:
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
