"""Collecting datasets by playing a task."""

import os
from pathlib import Path

import numpy as np

import merlin
from merlin.data import native
from merlin.data.dataset import Dataset
from merlin.errors import MerlinError
from merlin.experts.behaviour import Behaviour, Uniform, play_episodes
from merlin.progress import Progress
from merlin.tasks.batch import default_workers
from merlin.tasks.registry import Task, find
from merlin.tasks.rollout import Rollout, concatenate
from merlin.tasks.workers import Pool

EPISODES_PER_JOB = 20


def collect(
    task: Task | str,
    variant: str,
    *,
    episodes: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    quiet: bool = True,
) -> Dataset:
    """Play as many episodes as the paper's data has, or as given.

    The same seed gives the same data, whatever the number of workers.
    """
    task = find(task)
    episodes = task.episodes if episodes is None else episodes
    if episodes < 1:
        raise MerlinError(f"--episodes: {episodes} is not a number of episodes; give 1 or more.")
    if seed < 0:
        raise MerlinError(f"--seed: {seed} is negative; give 0 or more.")
    if workers is not None and workers < 1:
        raise MerlinError(f"--workers: {workers} is not 1 or more.")
    played = _play(task, _behaviour(variant), episodes, seed, workers, quiet)
    low, high = task.bounds()
    return Dataset(
        observations=played.observations.reshape(-1, task.observation_dim),
        actions=played.actions.reshape(-1, task.action_dim),
        achieved_goals=played.achieved_goals.reshape(-1, task.goal_dim),
        desired_goals=played.desired_goals,
        starts=np.arange(episodes + 1, dtype=np.int64) * task.episode_steps,
        action_low=low,
        action_high=high,
        task=task.name,
        variant=variant,
        provenance={
            "made_by": f"merlin {merlin.__version__}",
            "command": f"merlin collect {task.name} --variant {variant} "
            f"--episodes {episodes} --seed {seed}",
        },
    )


def _behaviour(variant: str) -> Behaviour:
    if variant == "random":
        return Uniform()
    raise MerlinError(f"--variant: {variant!r} cannot be collected yet; choose random.")


def _play(
    task: Task, behaviour: Behaviour, episodes: int, seed: int, workers: int | None, quiet: bool
) -> Rollout:
    # As many states as an evaluation has steps and one action fewer: the benchmark's layout.
    steps = task.episode_steps - 1
    if task.vector_entry_point:
        return play_episodes({}, task, behaviour, seed, range(episodes), steps)
    jobs = [
        (task, behaviour, seed, range(begin, min(begin + EPISODES_PER_JOB, episodes)), steps)
        for begin in range(0, episodes, EPISODES_PER_JOB)
    ]
    count = min(len(jobs), default_workers() if workers is None else workers)
    parts: list[Rollout] = []
    with (
        Pool(count) as pool,
        Progress(f"collecting {task.name}", episodes, "episodes", quiet=quiet) as bar,
    ):
        for job, part in zip(jobs, pool.map(play_episodes, jobs), strict=True):
            parts.append(part)
            bar.update(job[3][-1] + 1)
    return concatenate(parts)


def cache_folder() -> Path:
    """Where collected data is kept: `MERLIN_DATA`, or the user's data folder."""
    if configured := os.environ.get("MERLIN_DATA"):
        return Path(configured)
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "merlin"


def cached_path(task: Task, variant: str, *, episodes: int, seed: int = 0) -> Path:
    """Where `train` looks for a task's data and puts what it collects."""
    name = task.name.replace("/", "_").replace(":", "_")
    return cache_folder() / f"{name}-{variant}-{episodes}-seed{seed}"


def collect_cached(
    task: Task, variant: str, *, episodes: int, seed: int = 0, quiet: bool = True
) -> Path:
    """The task's dataset in the cache, collected now if it is not there."""
    path = cached_path(task, variant, episodes=episodes, seed=seed)
    if not path.exists():
        data = collect(task, variant, episodes=episodes, seed=seed, quiet=quiet)
        native.save(data, path)
    return path
