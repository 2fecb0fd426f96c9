"""Collection of datasets: playing episodes, resuming, and the cache."""

import contextlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import merlin
from merlin.collection.behaviour import Behaviour, Expert, Uniform, play_episodes
from merlin.collection.ogbench import STEPS_PER_JOB, Steps, regenerate
from merlin.data.dataset import ORIGIN, SUCCESS, Dataset
from merlin.data.formats import native, ogbench
from merlin.data.images import Stream
from merlin.data.partial_results import PartialResults
from merlin.data.rendering import with_images
from merlin.envs.ogbench import DOWNLOADED, REGENERATED, SIZES
from merlin.envs.registry import Task, check_variant, find, own
from merlin.envs.rollout import Rollout, concatenate
from merlin.errors import MerlinError
from merlin.experts import library
from merlin.io.files import sha256, sweep
from merlin.io.locks import lock
from merlin.io.progress import Progress
from merlin.io.schema import check_episodes
from merlin.parallel.engine import Engine
from merlin.parallel.workers import Pool, default_workers

NOISE, UNIFORM = 0.2, 0.3
"""How expert data deviates from the expert, unless told."""
EPISODES_PER_JOB = 20
DUST = 1e-12
"""Smaller numbers in a state are treated as rounding errors and set to zero."""


@dataclass(frozen=True)
class Recipe:
    """Everything a dataset depends on: the same recipe gives the same data."""

    task: Task
    variant: str
    episodes: int
    seed: int = 0
    noise: float = NOISE  # standard deviation of the noise on expert actions
    uniform: float = UNIFORM  # fraction of expert actions replaced by random ones

    def __post_init__(self) -> None:
        check_variant(self.variant, self.task)
        if self.variant == DOWNLOADED:
            raise MerlinError(
                f"{self.task.name}: downloaded data cannot be collected; copy it with "
                f"`merlin convert {self.task.name} DIR`."
            )
        check_episodes("episodes", self.episodes)
        if self.seed < 0:
            raise MerlinError(f"seed: {self.seed} is negative; give 0 or more.")
        if not (0.0 <= self.noise < np.inf):
            raise MerlinError(f"noise: {self.noise} is not a finite number; give 0 or more.")
        if not (0.0 <= self.uniform <= 1.0):
            raise MerlinError(f"uniform: {self.uniform} is not between 0 and 1.")
        if self.variant != "expert" and (self.noise, self.uniform) != (NOISE, UNIFORM):
            name = "uniform" if self.noise == NOISE else "noise"
            raise MerlinError(f"{name}: {self.variant} data has none; leave it out.")

    def behaviour(self) -> Behaviour:
        if self.variant == "random":
            return Uniform()
        return Expert(library.shipped(self.task), self.noise, self.uniform)

    def provenance(self) -> dict[str, Any]:
        command = (
            f"merlin collect {shlex.quote(self.task.name)} --variant {self.variant} "
            f"--episodes {self.episodes} --seed {self.seed}"
        )
        about = {"made_by": f"merlin {merlin.__version__}", "command": command}
        if self.variant == "expert":
            about["command"] += f" --noise {self.noise:g} --uniform {self.uniform:g}"
            about["expert"] = sha256(library.folder() / f"{self.task.name}.safetensors")
        if self.variant == REGENERATED:
            self.task.check_installed()
            about |= {ORIGIN: REGENERATED, "ogbench": version("ogbench")}
        return about


def collect(
    task: Task | str,
    variant: str,
    *,
    episodes: int | None = None,
    seed: int = 0,
    noise: float = NOISE,
    uniform: float = UNIFORM,
    workers: int | None = None,
    engine: Engine | None = None,
    pixels: bool = False,
    quiet: bool = True,
    parts: Path | None = None,
) -> Dataset:
    """Collect a dataset in memory.

    By default there are as many episodes as in the paper's data. The same seed gives the same data,
    for any number of workers and on any `engine`. With a folder for `parts`, an interrupted
    collection is resumed. With `pixels` the observations are images, all in memory; `collect_to`
    writes them to disk while they are rendered.
    """
    task = find(task)
    task.check_installed()
    count = task.episodes if episodes is None else episodes
    recipe = Recipe(task, variant, count, seed, noise, uniform)
    if workers is not None and workers < 1:
        raise MerlinError(f"workers: {workers} is below 1; give 1 or more.")
    make = _regenerated if variant == REGENERATED else _played
    data = make(recipe, workers, engine, quiet, parts)
    if not pixels:
        return data
    filmed = with_images(data, task, workers=workers, engine=engine, quiet=quiet)
    assert isinstance(filmed.observations, Stream)
    return replace(filmed, observations=filmed.observations.whole())


def _played(recipe: Recipe, *where: Any) -> Dataset:
    """Episodes of the recipe's behaviour in its task."""
    task, seed, behaviour = recipe.task, recipe.seed, recipe.behaviour()
    # The benchmark's layout: as many states as an evaluation has steps, and one action fewer.
    steps = task.episode_steps - 1
    if task.vector_entry_point:
        played = play_episodes({}, task, behaviour, seed, range(recipe.episodes), steps)
    else:
        work = Work(
            play_episodes,
            lambda span: (task, behaviour, seed, span, steps),
            Rollout,
            EPISODES_PER_JOB,
        )
        played = _spread(recipe, work, *where)
    low, high = task.bounds()
    # Drop the padding after the end of an episode.
    step = np.arange(task.episode_steps)
    states, actions = step <= played.lengths[:, None], step[:-1] < played.lengths[:, None]
    return Dataset(
        observations=without_dust(played.observations[states]),
        actions=played.actions[actions],
        achieved_goals=without_dust(played.achieved_goals[states]),
        desired_goals=played.desired_goals,
        starts=np.concatenate([[0], np.cumsum(played.lengths + 1)]),
        action_low=low,
        action_high=high,
        task=task.name,
        variant=recipe.variant,
        provenance={**recipe.provenance(), **_successes(task, played)},
    )


def _successes(task: Task, played: Rollout) -> dict[str, Any]:
    """Success as reported by a user's environment, recorded because its tolerance is unknown."""
    if own(task.name) is not None:
        return {}
    counted = np.arange(played.success.shape[1]) < played.lengths[:, None]
    shares = {
        "ever": float(np.mean((played.success & counted).any(1))),
        "at_the_end": float(np.mean(played.success[:, -1])),
    }
    return {SUCCESS: {**shares, "told_by": task.scoring.in_words()["success"]}}


def without_dust(values: np.ndarray) -> np.ndarray:
    """Set rounding errors to zero, since their digits depend on the processor."""
    return np.where(np.abs(values) < DUST, np.zeros((), values.dtype), values)


def collect_to(
    out: Path,
    task: Task,
    variant: str,
    *,
    overwrite: bool = False,
    wait: bool = False,
    pixels: bool = False,
    workers: int | None = None,
    engine: Engine | None = None,
    quiet: bool = True,
    **how: Any,
) -> Path:
    """Collect a dataset folder; call it again to resume an interrupted collection.

    If another process is collecting the same folder, raise, or `wait` and use its result.
    """
    if pixels:
        task.from_pixels()  # raises now if the task has no images
    parts = out.parent / f".{out.name}.parts"
    where: dict[str, Any] = {"workers": workers, "engine": engine, "quiet": quiet}
    with lock(out.with_name(f".{out.name}.lock"), str(out), wait=wait):
        if wait and out.exists():
            return out
        data = collect(task, variant, parts=parts, **where, **how)
        if pixels:
            data = with_images(data, task, parts=parts / "frames", **where)
            command = f"{data.provenance['command']} --pixels"
            data = replace(data, provenance={**data.provenance, "command": command})
        native.save(data, out, overwrite=overwrite)
        shutil.rmtree(parts, ignore_errors=True)
    return out


def _regenerated(recipe: Recipe, *where: Any) -> Dataset:
    """OGBench's data, generated here: goals are whole states, without desired goals."""
    name = recipe.task.arguments["dataset"]
    states = SIZES[name].states
    work = Work(
        regenerate,
        lambda span: (name, recipe.seed, span),
        Steps,
        max(1, STEPS_PER_JOB // states),
    )
    played: Steps = _spread(recipe, work, *where)
    observations = played.observations.reshape(-1, recipe.task.observation_dim)
    low, high = recipe.task.bounds()
    return Dataset(
        observations=observations,
        actions=played.actions.reshape(-1, recipe.task.action_dim),
        achieved_goals=observations,
        desired_goals=None,
        starts=states * np.arange(recipe.episodes + 1),
        action_low=low,
        action_high=high,
        task=recipe.task.name,
        variant=REGENERATED,
        provenance=recipe.provenance(),
    )


class Work(NamedTuple):
    """The work of a collection, as jobs for workers."""

    function: Callable[..., Any]  # plays a span of episodes
    arguments: Callable[[range], tuple]  # arguments of the function for a span
    result: Any  # class of its result: a named tuple of arrays, one row per episode
    episodes_per_job: int


def _spread(
    recipe: Recipe,
    work: Work,
    workers: int | None,
    engine: Engine | None,
    quiet: bool,
    parts: Path | None,
) -> Any:
    """Play all episodes on workers, except those that are already in `parts`."""
    episodes = recipe.episodes
    names = work.result._fields
    disk = None if parts is None else PartialResults(parts, recipe.provenance(), names)
    spans = [
        range(begin, min(begin + work.episodes_per_job, episodes))
        for begin in range(0, episodes, work.episodes_per_job)
    ]
    kept: dict[int, Any] = {}
    for span in spans if disk else ():
        if disk and (found := disk.load(span.start)):
            kept[span.start] = work.result(**found)
    missing = [span for span in spans if span.start not in kept]
    count = min(len(missing), default_workers() if workers is None else workers)
    jobs = [work.arguments(span) for span in missing]
    with (
        contextlib.nullcontext(engine) if engine else Pool(count) as players,
        Progress(f"collecting {recipe.task.name}", episodes, "episodes", quiet=quiet) as bar,
    ):
        done = episodes - sum(map(len, missing))
        bar.update(done)  # the rate counts from here, since jobs may end at the same time
        for span, played in zip(missing, players.map(work.function, jobs), strict=True):
            kept[span.start] = played
            if disk:
                disk.keep(span.start, played._asdict())
            done += len(span)
            bar.update(done)
    return concatenate([kept[span.start] for span in spans])


def cache_folder() -> Path:
    """The cache of collected data: `MERLIN_DATA`, or the user's data folder."""
    if configured := os.environ.get("MERLIN_DATA"):
        return Path(configured)
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "merlin"


def cached_path(
    task: Task, variant: str, *, episodes: int, seed: int = 0, pixels: bool = False
) -> Path:
    """The path of a dataset in the cache, which may not exist yet."""
    name = re.sub(r"[^-\w.]", "_", task.name)
    return cache_folder() / f"{name}-{variant}-{episodes}-seed{seed}{'-pixels' * pixels}"


def default_variant(task: Task) -> str | None:
    """The default kind of data for training on a task, if it has one.

    For OGBench this is the downloaded file if it exists, else regenerated data. Raises if the data
    can only be downloaded and the file is missing.
    """
    if DOWNLOADED not in task.variants:
        return None
    return DOWNLOADED if ogbench.is_downloaded(task.name) else made_variant(task)


def made_variant(task: Task) -> str:
    """The default kind of data for `merlin collect`."""
    if DOWNLOADED not in task.variants:
        return "random"
    if REGENERATED not in task.variants:
        raise MerlinError(
            f"{task.name}: its data was recorded with experts that OGBench does not ship, so it "
            f"cannot be generated; download {ogbench.file_of(task.name).name} into "
            f"{ogbench.folder()}."
        )
    return REGENERATED


def collect_cached(
    task: Task,
    variant: str,
    *,
    episodes: int,
    seed: int = 0,
    pixels: bool = False,
    engine: Engine | None = None,
    quiet: bool = True,
) -> str | Path:
    """The task's dataset: a download, or the one in the cache, collected if it is missing."""
    if variant == DOWNLOADED:
        if episodes != task.episodes:
            raise MerlinError(
                f"episodes: {task.name} is downloaded and has a fixed number; omit `episodes`, or "
                f"use `variant={REGENERATED!r}`."
            )
        return task.name
    path = cached_path(task, variant, episodes=episodes, seed=seed, pixels=pixels)
    if not path.exists():
        # What cannot be collected must not be announced.
        task.check_installed()
        Recipe(task, variant, episodes, seed)
        if pixels:
            task.from_pixels()
        if not quiet:
            print(f"collecting {episodes} episodes into {path}", file=sys.stderr)
        collect_to(
            path,
            task,
            variant,
            wait=True,
            episodes=episodes,
            seed=seed,
            pixels=pixels,
            engine=engine,
            quiet=quiet,
        )
    sweep(path.parent)  # what a kill left behind may have been too young when the data was written
    return path.absolute()
