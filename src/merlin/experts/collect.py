"""Collecting datasets by playing a task."""

import os
from pathlib import Path

import numpy as np

import merlin
from merlin.data import native
from merlin.data.dataset import Dataset
from merlin.errors import MerlinError
from merlin.tasks.registry import Task, find
from merlin.tasks.rollout import Observation, concatenate, make_batch, rollout, truncate, waves


def collect(
    task: Task | str, variant: str, *, episodes: int | None = None, seed: int = 0
) -> Dataset:
    """Play `episodes` episodes; the same seed gives the same data.

    An episode has as many states as an evaluation has steps and one action fewer, as in the
    benchmark's published data.
    """
    task = find(task)
    episodes = task.episodes if episodes is None else episodes
    if variant != "random":
        raise MerlinError(f"--variant: {variant!r} cannot be collected yet; choose random.")
    if episodes < 1:
        raise MerlinError(f"--episodes: {episodes} is not a number of episodes; give 1 or more.")
    if seed < 0:
        raise MerlinError(f"--seed: {seed} is negative; give 0 or more.")
    steps = task.episode_steps - 1
    parts = []
    env = make_batch(task, task.environments)
    try:
        for indices, count in waves(task, range(episodes)):
            streams = [np.random.SeedSequence((seed, index)) for index in indices]
            drawn = _uniform_actions(streams, steps, env.single_action_space)

            def act(_: Observation, t: int, drawn: np.ndarray = drawn) -> np.ndarray:
                return drawn[:, t]

            seeds = [int(stream.generate_state(1)[0]) for stream in streams]
            parts.append(truncate(rollout(env, act, seeds, steps), count))
    finally:
        env.close()
    played = concatenate(parts)
    return Dataset(
        observations=played.observations.reshape(-1, task.observation_dim),
        actions=played.actions.reshape(-1, task.action_dim),
        achieved_goals=played.achieved_goals.reshape(-1, task.goal_dim),
        desired_goals=played.desired_goals,
        starts=np.arange(episodes + 1, dtype=np.int64) * (steps + 1),
        action_low=np.full(task.action_dim, -1.0, np.float32),
        action_high=np.full(task.action_dim, 1.0, np.float32),
        task=task.name,
        variant=variant,
        provenance={
            "made_by": f"merlin {merlin.__version__}",
            "command": f"merlin collect {task.name} --variant {variant} "
            f"--episodes {episodes} --seed {seed}",
        },
    )


def _uniform_actions(streams: list[np.random.SeedSequence], steps: int, space) -> np.ndarray:  # type: ignore[no-untyped-def]
    draws = [
        np.random.default_rng(stream.spawn(1)[0]).uniform(
            space.low, space.high, (steps, *space.shape)
        )
        for stream in streams
    ]
    return np.stack(draws).astype(np.float32)


def cache_folder() -> Path:
    """Where collected data is kept: `MERLIN_DATA`, or the user's data folder."""
    if configured := os.environ.get("MERLIN_DATA"):
        return Path(configured)
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "merlin"


def cached_path(task: Task, variant: str, *, episodes: int, seed: int = 0) -> Path:
    """Where `train` looks for a task's data and puts what it collects."""
    return cache_folder() / f"{task.name}-{variant}-{episodes}-seed{seed}"


def collect_cached(task: Task, variant: str, *, episodes: int, seed: int = 0) -> Path:
    """The task's dataset in the cache, collected now if it is not there."""
    path = cached_path(task, variant, episodes=episodes, seed=seed)
    if not path.exists():
        native.save(collect(task, variant, episodes=episodes, seed=seed), path)
    return path
