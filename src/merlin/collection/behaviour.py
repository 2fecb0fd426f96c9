"""Behaviour policies for data collection. They run in worker processes, without JAX."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from merlin.envs.batch import EnvBatch, LocalBatch, Observation, VectorBatch
from merlin.envs.registry import Task
from merlin.envs.rollout import Act, Rollout, concatenate, rollout, truncate

EPISODES_AT_ONCE = 4
"""Episodes that one worker plays together, so that each policy call serves several."""
GRID = 2.0**-12
"""Expert actions are rounded to multiples of this, in units of half the action range. The last
digits of a matrix product depend on the processor, and rounding removes them from the data."""


@runtime_checkable
class Behaviour(Protocol):
    """Creates the action function of a batch of episodes, with one random stream per episode."""

    def __call__(self, task: Task, streams: Sequence[np.random.Generator], steps: int) -> Act: ...


@dataclass(frozen=True)
class Uniform:
    """Actions drawn uniformly within their bounds."""

    def __call__(self, task: Task, streams: Sequence[np.random.Generator], steps: int) -> Act:
        low, high = task.bounds()
        size = (steps, task.action_dim)
        drawn = np.stack([stream.uniform(low, high, size) for stream in streams])

        def act(_: Observation, t: int) -> Float[np.ndarray, "batch action"]:
            return drawn[:, t].astype(np.float32)

        return act


@dataclass(frozen=True)
class Expert:
    """Actions of an actor with Gaussian noise, some of them replaced by uniformly random ones.

    The defaults, noise 0.2 and 30 % uniform actions, match the benchmark's expert data.
    """

    actor: Callable[[np.ndarray, np.ndarray], np.ndarray]
    noise: float = 0.2  # in units of half the action range
    uniform: float = 0.3  # probability per step that the whole action is random

    def __call__(self, task: Task, streams: Sequence[np.random.Generator], steps: int) -> Act:
        low, high = task.bounds()
        centre, half = (high + low) / 2, (high - low) / 2
        size = (steps, task.action_dim)
        draws = [
            (s.standard_normal(size), s.uniform(-1.0, 1.0, size), s.random(steps)) for s in streams
        ]
        gauss, other, chance = (np.stack(parts) for parts in zip(*draws, strict=True))

        def act(observation: Observation, t: int) -> Float[np.ndarray, "batch action"]:
            action = self.actor(observation["observation"], observation["desired_goal"])
            action = np.clip(action + self.noise * gauss[:, t], -1.0, 1.0)
            action = GRID * np.round(action / GRID)
            action = np.where(chance[:, t, None] < self.uniform, other[:, t], action)
            return (centre + half * action).astype(np.float32)

        return act


def play_episodes(
    memory: dict[str, Any],
    task: Task,
    behaviour: Behaviour,
    seed: int,
    indices: Sequence[int],
    steps: int,
) -> Rollout:
    """Play the episodes `indices`; each depends only on the seed and its index."""
    if memory.get("collecting", (None,))[0] != task.name:
        # The batch size is fixed and the last batch is padded: the rounding of a behaviour's
        # matrix products must not depend on the number of episodes.
        size = task.environments if task.vector_entry_point else EPISODES_AT_ONCE
        batch: EnvBatch = (VectorBatch if task.vector_entry_point else LocalBatch)(task, size)
        memory["collecting"] = (task.name, batch, size)
    _, batch, size = memory["collecting"]
    parts = []
    for begin in range(0, len(indices), size):
        chosen = list(indices[begin : begin + size])
        filled = chosen + [chosen[-1]] * (size - len(chosen))
        seeds = [np.random.SeedSequence((seed, index)).spawn(2) for index in filled]
        starts = [int(start.generate_state(1)[0]) for start, _ in seeds]
        act = behaviour(task, [np.random.default_rng(stream) for _, stream in seeds], steps)
        parts.append(truncate(rollout(batch, act, starts, steps), len(chosen)))
    return concatenate(parts)
