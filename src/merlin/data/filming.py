"""From data with states to the same data with images."""

import contextlib
import io
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from merlin.data.dataset import Dataset
from merlin.data.images import BYTES_AT_ONCE, Stream
from merlin.engines import Engine
from merlin.errors import MerlinError
from merlin.files import write_bytes
from merlin.progress import Progress
from merlin.tasks import gl
from merlin.tasks.batch import default_workers
from merlin.tasks.filming import draw, replay
from merlin.tasks.registry import Task
from merlin.tasks.workers import Pool

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
    """The same episodes as a camera saw them; frames are made when the dataset is saved.

    With a folder for `parts`, frames that took long to make and were made before a kill are not
    made again.
    """
    if data.has_images:
        raise MerlinError("--pixels: the data has images already; leave the option away.")
    task = task if task.sees == "image" else task.from_pixels()
    if data.observations.shape[1] != task.observation_dim:
        raise MerlinError(
            f"--pixels: states of {task.name} are {task.observation_dim} numbers, those of the "
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
    """Frames of a few episodes at a time, in their order, made by worker processes."""
    gl.ready(task)
    starts = range(0, len(data), EPISODES_PER_JOB)
    kept = _Parts(parts, data, task)
    missing = [first for first in starts if not kept.has(first)]
    count = min(len(missing), default_workers() if workers is None else workers)
    jobs = [(task, first, _episodes(data, first)) for first in missing]
    with (
        contextlib.nullcontext(engine) if engine else Pool(count) as players,
        Progress(f"filming {task.name}", len(data), "episodes", quiet=quiet) as bar,
    ):
        filmed = iter(players.map(replay, jobs))
        for first in starts:
            if first in missing:
                frames = next(filmed)
                kept.keep(first, frames)
                yield frames
            else:
                yield kept.load(first)
            bar.update(min(first + EPISODES_PER_JOB, len(data)))


def _episodes(data: Dataset, first: int) -> list[tuple[np.ndarray, np.ndarray]]:
    some = (data.episode(e) for e in range(first, min(first + EPISODES_PER_JOB, len(data))))
    return [(np.asarray(e.observations), np.asarray(e.actions)) for e in some]


class _Parts:
    """Frames made so far, on disk where they survive a kill, or nowhere."""

    def __init__(self, folder: Path | None, data: Dataset, task: Task):
        self._folder = folder
        if folder is None:
            return
        of = {"data": data.fingerprint(), "size": task.image_size}
        about = folder / "of.json"
        if folder.exists() and (not about.exists() or json.loads(about.read_bytes()) != of):
            shutil.rmtree(folder)  # of other data for the same place
        write_bytes(about, json.dumps(of).encode())

    def _path(self, first: int) -> Path:
        assert self._folder is not None
        return self._folder / f"frames-{first:08d}.npy"

    def has(self, first: int) -> bool:
        return self._folder is not None and self._path(first).exists()

    def keep(self, first: int, frames: np.ndarray) -> None:
        if self._folder is not None:
            content = io.BytesIO()
            np.save(content, frames)
            write_bytes(self._path(first), content.getvalue())

    def load(self, first: int) -> np.ndarray:
        return np.load(self._path(first), allow_pickle=False)
