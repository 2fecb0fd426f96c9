"""Collecting datasets by playing a task."""

import contextlib
import io
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import merlin
from merlin.data import native
from merlin.data.dataset import Dataset
from merlin.data.filming import with_images
from merlin.data.images import Stream
from merlin.engines import Engine
from merlin.errors import MerlinError
from merlin.experts import library
from merlin.experts.behaviour import Behaviour, Expert, Uniform, play_episodes
from merlin.files import read_json, sha256, write_bytes, write_json
from merlin.progress import Progress
from merlin.tasks.batch import default_workers
from merlin.tasks.registry import VARIANTS, Task, find
from merlin.tasks.rollout import Rollout, concatenate
from merlin.tasks.workers import Pool

EPISODES_PER_JOB = 20


@dataclass(frozen=True)
class Recipe:
    """All that a dataset depends on: the same recipe gives the same data."""

    task: Task
    variant: str
    episodes: int
    seed: int = 0
    noise: float = 0.2  # of an expert's actions
    uniform: float = 0.3  # share of an expert's actions that are replaced by random ones

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise MerlinError(f"--variant: {self.variant!r} is not {' or '.join(VARIANTS)}.")
        if self.episodes < 1:
            raise MerlinError(f"--episodes: {self.episodes} is not 1 or more.")
        if self.seed < 0:
            raise MerlinError(f"--seed: {self.seed} is negative; give 0 or more.")
        if not (0.0 <= self.noise < np.inf):
            raise MerlinError(f"--noise: {self.noise} is not a number from 0 up.")
        if not (0.0 <= self.uniform <= 1.0):
            raise MerlinError(f"--uniform: {self.uniform} is not between 0 and 1.")

    def behaviour(self) -> Behaviour:
        if self.variant == "random":
            return Uniform()
        return Expert(library.shipped(self.task), self.noise, self.uniform)

    def provenance(self) -> dict[str, Any]:
        command = (
            f"merlin collect {self.task.name} --variant {self.variant} "
            f"--episodes {self.episodes} --seed {self.seed}"
        )
        about = {"made_by": f"merlin {merlin.__version__}", "command": command}
        if self.variant == "expert":
            about["command"] += f" --noise {self.noise:g} --uniform {self.uniform:g}"
            about["expert"] = sha256(library.folder() / f"{self.task.name}.safetensors")
        return about


def collect(
    task: Task | str,
    variant: str,
    *,
    episodes: int | None = None,
    seed: int = 0,
    noise: float = 0.2,
    uniform: float = 0.3,
    workers: int | None = None,
    engine: Engine | None = None,
    pixels: bool = False,
    quiet: bool = True,
    parts: Path | None = None,
) -> Dataset:
    """Play as many episodes as the paper's data has, or as given.

    The same seed gives the same data, whatever the number of workers, and whether these are
    processes of this machine or those of an `engine`. With a folder for `parts`, what was played
    before a kill is not played again. With `pixels` the observations are images, all in memory;
    `collect_to` writes them as they are made.
    """
    data = _collect(
        find(task), variant, episodes, seed, noise, uniform, workers, engine, quiet, parts
    )
    if not pixels:
        return data
    filmed = with_images(data, find(task), workers=workers, engine=engine, quiet=quiet)
    assert isinstance(filmed.observations, Stream)
    return replace(filmed, observations=filmed.observations.whole())


def _collect(
    task: Task,
    variant: str,
    episodes: int | None,
    seed: int,
    noise: float,
    uniform: float,
    workers: int | None,
    engine: Engine | None,
    quiet: bool,
    parts: Path | None,
) -> Dataset:
    count = task.episodes if episodes is None else episodes
    recipe = Recipe(task, variant, count, seed, noise, uniform)
    if workers is not None and workers < 1:
        raise MerlinError(f"--workers: {workers} is not 1 or more.")
    played = _play(recipe, recipe.behaviour(), workers, engine, quiet, parts)
    low, high = task.bounds()
    return Dataset(
        observations=played.observations.reshape(-1, task.observation_dim),
        actions=played.actions.reshape(-1, task.action_dim),
        achieved_goals=played.achieved_goals.reshape(-1, task.goal_dim),
        desired_goals=played.desired_goals,
        starts=np.arange(count + 1, dtype=np.int64) * task.episode_steps,
        action_low=low,
        action_high=high,
        task=task.name,
        variant=variant,
        provenance=recipe.provenance(),
    )


def collect_to(
    out: Path,
    task: Task,
    variant: str,
    *,
    overwrite: bool = False,
    pixels: bool = False,
    workers: int | None = None,
    engine: Engine | None = None,
    quiet: bool = True,
    **how: Any,
) -> Path:
    """Collect into a dataset folder; started again after a kill, it goes on where it was."""
    if pixels:
        task.from_pixels()  # says so now if it has no images
    parts = out.parent / f".{out.name}.parts"
    where: dict[str, Any] = {"workers": workers, "engine": engine, "quiet": quiet}
    data = collect(task, variant, parts=parts, **where, **how)
    if pixels:
        data = with_images(data, task, parts=parts / "frames", **where)
        command = f"{data.provenance['command']} --pixels"
        data = replace(data, provenance={**data.provenance, "command": command})
    native.save(data, out, overwrite=overwrite)
    shutil.rmtree(parts, ignore_errors=True)
    return out


def _play(
    recipe: Recipe,
    behaviour: Behaviour,
    workers: int | None,
    engine: Engine | None,
    quiet: bool,
    parts: Path | None,
) -> Rollout:
    task, episodes = recipe.task, recipe.episodes
    # As many states as an evaluation has steps and one action fewer: the benchmark's layout.
    steps = task.episode_steps - 1
    if task.vector_entry_point:
        return play_episodes({}, task, behaviour, recipe.seed, range(episodes), steps)
    kept = _Parts(parts, recipe.provenance())
    spans = [
        range(begin, min(begin + EPISODES_PER_JOB, episodes))
        for begin in range(0, episodes, EPISODES_PER_JOB)
    ]
    missing = [span for span in spans if not kept.has(span)]
    count = min(len(missing), default_workers() if workers is None else workers)
    jobs = [(task, behaviour, recipe.seed, span, steps) for span in missing]
    with (
        contextlib.nullcontext(engine) if engine else Pool(count) as players,
        Progress(f"collecting {task.name}", episodes, "episodes", quiet=quiet) as bar,
    ):
        done = episodes - sum(map(len, missing))
        for span, played in zip(missing, players.map(play_episodes, jobs), strict=True):
            kept.keep(span, played)
            done += len(span)
            bar.update(done)
    return concatenate(list(kept.all(spans)))


class _Parts:
    """Finished pieces of a collection: in memory, or on disk where they survive a kill."""

    def __init__(self, folder: Path | None, recipe: dict[str, Any]):
        self._folder = folder
        self._memory: dict[int, Rollout] = {}
        if folder is None:
            return
        about = folder / "recipe.json"
        if folder.exists() and (not about.exists() or read_json(about, "a recipe") != recipe):
            shutil.rmtree(folder)  # of another collection to the same place
        write_json(about, recipe)

    def _path(self, span: range) -> Path:
        assert self._folder is not None
        return self._folder / f"part-{span.start:08d}.npz"

    def has(self, span: range) -> bool:
        return self._folder is not None and self._path(span).exists()

    def keep(self, span: range, played: Rollout) -> None:
        if self._folder is None:
            self._memory[span.start] = played
            return
        content = io.BytesIO()
        np.savez(content, **played._asdict())
        write_bytes(self._path(span), content.getvalue())

    def all(self, spans: list[range]) -> Iterator[Rollout]:
        for span in spans:
            if self._folder is None:
                yield self._memory[span.start]
                continue
            with np.load(self._path(span), allow_pickle=False) as arrays:
                yield Rollout(**arrays)


def cache_folder() -> Path:
    """Where collected data is kept: `MERLIN_DATA`, or the user's data folder."""
    if configured := os.environ.get("MERLIN_DATA"):
        return Path(configured)
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "merlin"


def cached_path(
    task: Task, variant: str, *, episodes: int, seed: int = 0, pixels: bool = False
) -> Path:
    """Where `train` looks for a task's data and puts what it collects."""
    name = task.name.replace("/", "_").replace(":", "_")
    return cache_folder() / f"{name}-{variant}-{episodes}-seed{seed}{'-pixels' * pixels}"


def collect_cached(
    task: Task,
    variant: str,
    *,
    episodes: int,
    seed: int = 0,
    pixels: bool = False,
    engine: Engine | None = None,
    quiet: bool = True,
) -> Path:
    """The task's dataset in the cache, collected now if it is not there."""
    path = cached_path(task, variant, episodes=episodes, seed=seed, pixels=pixels)
    if not path.exists():
        collect_to(
            path,
            task,
            variant,
            episodes=episodes,
            seed=seed,
            pixels=pixels,
            engine=engine,
            quiet=quiet,
        )
    return path
