"""Many environments stepped together: in this process, or spread over worker processes."""

import itertools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium
import numpy as np
from jaxtyping import Bool, Float

from merlin.errors import MerlinError
from merlin.tasks import gl
from merlin.tasks.registry import Task
from merlin.tasks.workers import Pool

Observation = dict[str, np.ndarray]
GOAL_IMAGE = "goal_image"
"""Of an observation: the goal as an image, for policies that are told it so."""


class Step(NamedTuple):
    """What a batch of environments answers to a batch of actions."""

    observation: Observation
    reward: Float[np.ndarray, " batch"]  # 1 where the state reached is at the goal, else 0
    success: Bool[np.ndarray, " batch"]


@runtime_checkable
class Batch(Protocol):
    """A fixed number of environments of one task."""

    def reset(self, seeds: Sequence[int]) -> Observation: ...

    def step(self, actions: np.ndarray) -> Step: ...

    def close(self) -> None: ...


def make_batch(task: Task, n: int, workers: int | None = None) -> Batch:
    """`n` environments; results are the same for any number of workers.

    Tasks that move all points at once need no workers; for the others there is one per core
    unless told otherwise.
    """
    if task.vector_entry_point:
        return VectorBatch(task, n)
    workers = min(n, default_workers() if workers is None else workers)
    return LocalBatch(task, n) if workers <= 1 else ParallelBatch(task, n, workers)


def default_workers() -> int:
    """The cores that this process may use: `MERLIN_CORES`, or all that it is allowed."""
    if given := os.environ.get("MERLIN_CORES"):
        if not given.isdecimal() or int(given) < 1:
            raise MerlinError(f"MERLIN_CORES: {given!r} is not a number of cores; give 1 or more.")
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class VectorBatch:
    """A task that has a vectorised implementation of its own."""

    def __init__(self, task: Task, n: int):
        self._task = task
        self._env = gymnasium.make_vec(
            task.env_id,
            num_envs=n,
            vectorization_mode="vector_entry_point",
            **task.image_arguments(),
        )
        self._goals: np.ndarray | None = None

    def reset(self, seeds: Sequence[int]) -> Observation:
        observation = self._env.reset(seed=list(seeds))[0]  # type: ignore[arg-type]
        if self._task.goal == "image":
            self._goals = self._env.unwrapped.goal_frames()  # type: ignore[attr-defined]
        return self._seen(observation)

    def step(self, actions: np.ndarray) -> Step:
        observation, reward, _, _, info = self._env.step(actions)
        success = np.asarray(info["is_success"]) > 0.5
        return Step(self._seen(observation), np.asarray(reward) + 1.0, success)

    def _seen(self, observation: Observation) -> Observation:
        if self._task.sees == "state":
            return observation
        frames = np.stack(self._env.render())  # type: ignore[arg-type]
        goals = {} if self._goals is None else {GOAL_IMAGE: self._goals}
        return {**observation, "observation": frames, **goals}

    def close(self) -> None:
        self._env.close()


class LocalBatch:
    """Single environments one after the other."""

    def __init__(self, task: Task, n: int):
        self._task = task
        # Unwrapped: episodes end when the caller says so, and the wrappers cost time per step.
        arguments = task.image_arguments()
        self._envs = [make_single(task, **arguments).unwrapped for _ in range(n)]
        self._goals: list[np.ndarray] = []

    def reset(self, seeds: Sequence[int]) -> Observation:
        pairs = zip(self._envs, seeds, strict=True)
        observations = [env.reset(seed=int(seed))[0] for env, seed in pairs]
        if self._task.goal == "image":
            self._goals = [env.goal_frame() for env in self._envs]  # type: ignore[attr-defined]
        return self._seen(observations)

    def step(self, actions: np.ndarray) -> Step:
        answers = [env.step(a) for env, a in zip(self._envs, actions, strict=True)]
        scores = [_score(self._task, float(reward), info) for _, reward, _, _, info in answers]
        return Step(
            self._seen([answer[0] for answer in answers]),
            np.array([reward for reward, _ in scores]),
            np.array([success for _, success in scores]),
        )

    def _seen(self, observations: list[Observation]) -> Observation:
        stacked = _stack(observations)
        if self._task.sees == "image":
            frames: list[Any] = [env.render() for env in self._envs]
            stacked["observation"] = np.stack(frames)
        if self._goals:
            stacked[GOAL_IMAGE] = np.stack(self._goals)
        return stacked

    def close(self) -> None:
        for env in self._envs:
            env.close()


class ParallelBatch:
    """Environments spread over processes; every step waits for the slowest."""

    def __init__(self, task: Task, n: int, workers: int):
        gl.ready(task)
        bounds = np.linspace(0, n, workers + 1).astype(int)
        self._slices = [slice(a, b) for a, b in itertools.pairwise(bounds)]
        self._pool = Pool(workers)
        self._pool.each(_open_batch, [(task, s.stop - s.start) for s in self._slices])

    def reset(self, seeds: Sequence[int]) -> Observation:
        parts = self._pool.each(_reset_batch, [(list(seeds[s]),) for s in self._slices])
        return _join(parts)

    def step(self, actions: np.ndarray) -> Step:
        parts = self._pool.each(_step_batch, [(actions[s],) for s in self._slices])
        return Step(
            _join([part.observation for part in parts]),
            np.concatenate([part.reward for part in parts]),
            np.concatenate([part.success for part in parts]),
        )

    def close(self) -> None:
        self._pool.close()


def make_single(task: Task, **arguments: Any) -> gymnasium.Env:
    """One environment of the task, with Gymnasium's wrappers."""
    name = f"{task.module}:{task.env_id}" if task.module else task.env_id
    return gymnasium.make(name, disable_env_checker=True, **arguments)


def _open_batch(memory: dict[str, Any], task: Task, n: int) -> None:
    memory["batch"] = LocalBatch(task, n)


def _reset_batch(memory: dict[str, Any], seeds: list[int]) -> Observation:
    return memory["batch"].reset(seeds)


def _step_batch(memory: dict[str, Any], actions: np.ndarray) -> Step:
    return memory["batch"].step(actions)


def _score(task: Task, reward: float, info: dict[str, Any]) -> tuple[float, bool]:
    """Whether the goal is reached, for the return and for the success at the end."""
    sparse = reward in (-1.0, 0.0)
    if "is_success" not in info and not sparse:
        raise MerlinError(
            f"task {task.name}: gives neither info['is_success'] nor a reward of -1 or 0, "
            "so it cannot be told when a goal is reached."
        )
    success = bool(info["is_success"]) if "is_success" in info else reward == 0.0
    return (reward + 1.0 if sparse else float(success)), success


def _stack(observations: list[Observation]) -> Observation:
    return {key: np.stack([o[key] for o in observations]) for key in observations[0]}


def _join(parts: list[Observation]) -> Observation:
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
