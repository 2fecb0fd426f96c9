"""Many environments stepped together: in this process, or spread over worker processes."""

import itertools
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium
import numpy as np
from jaxtyping import Bool, Float

from merlin.envs import checked, gl, user_environment
from merlin.envs.names import EnvName
from merlin.envs.registry import Task, own
from merlin.errors import MerlinError
from merlin.parallel.workers import Pool, default_workers

Observation = dict[str, np.ndarray]
GOAL_IMAGE = "goal_image"
"""Key of the goal image in an observation, for policies with image goals."""


class Step(NamedTuple):
    """The result of one step of a batch of environments."""

    observation: Observation
    reward: Float[np.ndarray, " batch"]  # 1 where the state reached is at the goal, else 0
    success: Bool[np.ndarray, " batch"]
    ended: Bool[np.ndarray, " batch"]  # the episode ended with this step or before it


@runtime_checkable
class EnvBatch(Protocol):
    """A fixed number of environments of one task.

    If the environment can end an episode, a finished environment stays as it is until the next
    reset: its last observation and success are repeated, and its reward is 0.
    """

    def reset(self, seeds: Sequence[int]) -> Observation: ...

    def step(self, actions: np.ndarray) -> Step: ...

    def close(self) -> None: ...


def make_batch(task: Task, n: int, workers: int | None = None) -> EnvBatch:
    """`n` environments; results are the same for any number of workers.

    Vectorised tasks need no workers. Other tasks use one worker process per core by default.
    """
    task.check_installed()
    if task.vector_entry_point:
        return VectorBatch(task, n)
    workers = min(n, default_workers() if workers is None else workers)
    return LocalBatch(task, n) if workers <= 1 else ParallelBatch(task, n, workers)


class VectorBatch:
    """Environments of a task with its own vectorised implementation."""

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
        goes_on = np.zeros(len(success), bool)
        return Step(self._seen(observation), np.asarray(reward) + 1.0, success, goes_on)

    def _seen(self, observation: Observation) -> Observation:
        if self._task.sees == "state":
            return observation
        frames = np.stack(self._env.render())  # type: ignore[arg-type]
        goals = {} if self._goals is None else {GOAL_IMAGE: self._goals}
        return {**observation, "observation": frames, **goals}

    def close(self) -> None:
        self._env.close()


class LocalBatch:
    """Single environments, stepped one after another in this process."""

    def __init__(self, task: Task, n: int):
        self._task = task
        self._foreign = own(task.name) is None
        self._envs: list[Any] = [self._make() for _ in range(n)]
        self._goals: list[np.ndarray] = []
        self._last: list[tuple[Observation, bool, bool, bool]] = []

    def _make(self) -> gymnasium.Env:
        if not self._foreign:
            return make_single(self._task, **self._task.image_arguments())
        advice = "check the environment and `env_args`"
        with checked.explained(self._task.name, "cannot be made", advice):
            return make_single(self._task)

    def reset(self, seeds: Sequence[int]) -> Observation:
        pairs = zip(self._envs, seeds, strict=True)
        observations = [self._reset(env, int(seed)) for env, seed in pairs]
        self._last = [(observation, False, False, False) for observation in observations]
        if self._task.goal == "image":
            self._goals = [env.goal_frame() for env in self._envs]
        return self._seen(observations)

    def step(self, actions: np.ndarray) -> Step:
        self._last = [self._step(index, action) for index, action in enumerate(actions)]
        observations, reached, success, ended = zip(*self._last, strict=True)
        return Step(
            self._seen(list(observations)),
            np.array(reached, float),
            np.array(success),
            np.array(ended),
        )

    def _reset(self, env: gymnasium.Env, seed: int) -> Observation:
        if self._foreign:
            return checked.reset(env, self._task.name, seed)
        return env.reset(seed=seed)[0]

    def _step(self, index: int, action: np.ndarray) -> tuple[Observation, bool, bool, bool]:
        """Step one environment: observation, reached (for the return), success, ended."""
        before, _, success, ended = self._last[index]
        if ended:
            return before, False, success, True
        env = self._envs[index]
        answer = checked.step(env, self._task.name, action) if self._foreign else env.step(action)
        observation, reward, terminated, truncated, info = answer
        reached, success = self._task.scoring(self._task.name, float(reward), info)
        ended = self._task.ends and bool(terminated or truncated)
        if not np.array_equal(observation["desired_goal"], before["desired_goal"]):
            raise MerlinError(
                f"task {self._task.name}: its goal changes within an episode, but data and scores "
                "need one goal per episode; make the environment keep it (see `env_args`)."
            )
        return observation, reached, success, ended

    def _seen(self, observations: list[Observation]) -> Observation:
        stacked = _stack(observations)
        if self._task.sees == "image":
            frames = [env.render() for env in self._envs]
            stacked["observation"] = np.stack(frames)
        if self._goals:
            stacked[GOAL_IMAGE] = np.stack(self._goals)
        return stacked

    def close(self) -> None:
        for env in self._envs:
            env.close()


class ParallelBatch:
    """Environments spread over worker processes; every step waits for the slowest."""

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
            np.concatenate([part.ended for part in parts]),
        )

    def close(self) -> None:
        self._pool.close()


def make_single(task: Task, **arguments: Any) -> gymnasium.Env:
    """One environment of the task, without time limit: the caller ends its episodes."""
    if "render_mode" in arguments and "mujoco" in sys.modules:
        gl.pick_gl()  # sets MUJOCO_GL, which Gymnasium's renderer reads
    name = EnvName(task.env_id, task.module, arguments=task.arguments if task.ends else {})
    return user_environment.make(name, **arguments)[0]


def _open_batch(memory: dict[str, Any], task: Task, n: int) -> None:
    memory["batch"] = LocalBatch(task, n)


def _reset_batch(memory: dict[str, Any], seeds: list[int]) -> Observation:
    return memory["batch"].reset(seeds)


def _step_batch(memory: dict[str, Any], actions: np.ndarray) -> Step:
    return memory["batch"].step(actions)


def _stack(observations: list[Observation]) -> Observation:
    return {key: np.stack([o[key] for o in observations]) for key in checked.KEYS}


def _join(parts: list[Observation]) -> Observation:
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
