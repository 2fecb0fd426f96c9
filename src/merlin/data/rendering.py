"""Convert data with states to the same data with images."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from merlin.data.dataset import Dataset
from merlin.data.images import BYTES_AT_ONCE, Stream
from merlin.data.partial_results import PartialResults
from merlin.envs import gl
from merlin.envs.frames import draw, replay
from merlin.envs.registry import Task
from merlin.errors import MerlinError
from merlin.io.progress import Progress
from merlin.parallel.engine import Engine
from merlin.parallel.workers import Pool, default_workers

EPISODES_PER_JOB = 10


def with_images(
    data: Dataset,
    task: Task,
    *,
    workers: int | None = None,
    engine: Engine | None = None,
    parts: Path | None = None,
    quiet: bool = True,
) -> Dataset:
    """Render the same episodes as images; frames are made when the dataset is saved.

    With a folder for `parts`, frames from slow simulators that were finished before a kill are
    reused.
    """
    if workers is not None and workers < 1:
        raise MerlinError(f"workers: {workers} is below 1; give 1 or more.")
    if data.has_images:
        raise MerlinError("pixels: the data has images already; leave it out.")
    task = task if task.sees == "image" else task.from_pixels()
    if data.observations.shape[1] != task.observation_dim:
        raise MerlinError(
            f"pixels: states of {task.name} are {task.observation_dim} numbers, those of the "
            f"data are {data.observations.shape[1]}; name the task that it is from."
        )
    shape = (len(data.observations), *task.observation_shape)
    if task.film is not None:
        make = lambda: _drawn(data, task)  # noqa: E731
    else:
        make = lambda: _replayed(data, task, workers, engine, parts, quiet)  # noqa: E731
    images = Stream(shape, np.dtype(np.uint8), make)
    provenance = {**data.provenance, "images": f"{task.image_size}x{task.image_size}"}
    return replace(data, observations=images, provenance=provenance, task=task.name, source=None)


def _drawn(data: Dataset, task: Task) -> Iterator[np.ndarray]:
    step = max(1, BYTES_AT_ONCE // int(np.prod(task.observation_shape)))
    for begin in range(0, len(data.observations), step):
        yield draw(task, np.asarray(data.observations[begin : begin + step]))


def _replayed(
    data: Dataset,
    task: Task,
    workers: int | None,
    engine: Engine | None,
    parts: Path | None,
    quiet: bool,
) -> Iterator[np.ndarray]:
    """Frames of a few episodes at a time, in order, rendered by worker processes."""
    gl.ready(task)
    starts = range(0, len(data), EPISODES_PER_JOB)
    kept = None
    if parts is not None:
        recipe = {"data": data.fingerprint(), "size": task.image_size}
        kept = PartialResults(parts, recipe, ("frames",))
    missing = [first for first in starts if kept is None or kept.load(first) is None]
    count = min(len(missing), default_workers() if workers is None else workers)
    jobs = [(task, first, _episodes(data, first)) for first in missing]
    with (
        contextlib.nullcontext(engine) if engine else Pool(count) as players,
        Progress(f"rendering {task.name}", len(data), "episodes", quiet=quiet) as bar,
    ):
        filmed = iter(players.map(replay, jobs))
        for first in starts:
            known = kept.load(first) if kept and first not in missing else None
            frames = next(filmed) if known is None else known["frames"]
            if kept and known is None:
                kept.keep(first, {"frames": frames})
            yield frames
            bar.update(min(first + EPISODES_PER_JOB, len(data)))


def _episodes(data: Dataset, first: int) -> list[tuple[np.ndarray, np.ndarray]]:
    some = (data.episode(e) for e in range(first, min(first + EPISODES_PER_JOB, len(data))))
    return [(np.asarray(e.observations), np.asarray(e.actions)) for e in some]
