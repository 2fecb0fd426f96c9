"""Image arrays that do not fit in memory and are made, written and read in chunks.

A `Stream` is an array that is generated on demand, and a `Selection` is rows of another array in
any order. A dataset can hold either as its observations. `Images` gathers rows for training. It
reads memory-mapped rows from the file directly, because touching a row of the map loads up to 2 MB
around it into the process's memory.
"""

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int, UInt8

from merlin.data.statistics import MomentAccumulator
from merlin.errors import MerlinError
from merlin.types import Moments

Item = TypeVar("Item")

BYTES_AT_ONCE = 1 << 26
MOMENT_ROWS, MOMENT_ROWS_AT_ONCE = 1000, 100
AHEAD = 2
"""Number of minibatches that are prepared in advance."""


@dataclass(frozen=True)
class Stream:
    """An array whose chunks, consecutive rows, are generated on demand."""

    shape: tuple[int, ...]
    dtype: np.dtype
    make: Callable[[], Iterator[np.ndarray]]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def whole(self) -> np.ndarray:
        """The whole array, if it fits in memory."""
        array = np.empty(self.shape, self.dtype)
        for begin, piece in pieces(self):
            array[begin : begin + len(piece)] = piece
        return array


@dataclass(frozen=True)
class Selection:
    """Rows of an array, in any order and with repetitions, read on demand."""

    source: Any
    rows: Int[np.ndarray, " rows"]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.rows), *self.source.shape[1:])

    @property
    def dtype(self) -> np.dtype:
        return self.source.dtype

    @property
    def ndim(self) -> int:
        return self.source.ndim

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, wanted: Any) -> np.ndarray:
        return reader(self.source)(self.rows[wanted])


Reader = Callable[[Int[np.ndarray, " *n"]], np.ndarray]
"""Maps row numbers to rows."""


def reader(array: Any) -> Reader:
    """A function that reads rows of an array in any order."""
    if isinstance(array, Selection):
        within = reader(array.source)
        return lambda rows: within(array.rows[rows])
    # A view of a memory map does not expose its offset in the file.
    whole = isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap)
    if whole and array.flags.c_contiguous:
        return FileReader(array)
    return lambda rows: np.asarray(array[rows])


class FileReader:
    """Reads rows from the file behind a memory map, and detects if it is replaced."""

    def __init__(self, mapped: np.memmap):
        assert mapped.filename is not None
        self._path, self._first = Path(mapped.filename), mapped.offset
        self._shape, self._dtype = mapped.shape, mapped.dtype
        self._file = identity(self._path.stat())

    def __call__(self, rows: Int[np.ndarray, " *n"]) -> np.ndarray:
        flat = np.ravel(rows)
        flat = np.where(flat < 0, flat + self._shape[0], flat)
        if np.any((flat < 0) | (flat >= self._shape[0])):
            raise IndexError(f"rows beyond the {self._shape[0]} of {self._path}")
        found = np.empty((len(flat), *self._shape[1:]), self._dtype)
        size = found[:1].nbytes
        target = found.reshape(-1).view(np.uint8).data
        changed = MerlinError(f"{self._path}: was changed while it was read; load it again.")
        try:
            file = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            raise changed from None
        with file:
            if identity(os.fstat(file.fileno())) != self._file:
                raise changed
            for index, row in enumerate(flat.tolist()):
                file.seek(self._first + row * size)
                if file.readinto(target[index * size : (index + 1) * size]) != size:
                    raise changed
        return found.reshape(*np.shape(rows), *self._shape[1:])


def identity(status: os.stat_result) -> tuple[int, int]:
    """Distinguishes a file from another that has replaced it under the same name."""
    return status.st_dev, status.st_ino


def pieces(array: Any, rows_at_once: int | None = None) -> Iterator[tuple[int, np.ndarray]]:
    """Split an array into chunks that fit in memory, each with the number of its first row."""
    begin = 0
    if isinstance(array, Stream):
        for piece in array.make():
            yield begin, piece
            begin += len(piece)
        return
    row = max(1, array.dtype.itemsize * int(np.prod(array.shape[1:])))
    step = max(1, min(rows_at_once or len(array), BYTES_AT_ONCE // row))
    for begin in range(0, len(array), step):
        yield begin, np.asarray(array[begin : begin + step])
        release(array)


def release(array: Any) -> None:
    """Release the pages of a memory map; the data stays in the system's cache."""
    mapped = getattr(array, "_mmap", None)
    if isinstance(mapped, mmap.mmap) and getattr(array, "mode", None) == "r":
        mapped.madvise(mmap.MADV_DONTNEED)


def image_moments(images: Any) -> Moments:
    """The mean image and a single deviation for all pixels, from evenly spaced rows."""
    rows = np.unique(np.linspace(0, len(images) - 1, MOMENT_ROWS).astype(np.int64))
    read, seen = reader(images), MomentAccumulator(images.shape[1:])
    for some in np.array_split(rows, -(-len(rows) // MOMENT_ROWS_AT_ONCE)):
        seen.add(read(some))
    mean, std, _ = seen.moments()
    return Moments(mean.astype(np.float32), np.sqrt(np.mean(std**2)).astype(np.float32).reshape(1))


class Images:
    """Images of one or more datasets with consecutive row numbers. Not thread-safe."""

    def __init__(self, parts: Sequence[Any]):
        self._shape = tuple(parts[0].shape[1:])
        self._readers = [reader(part) for part in parts]
        self._ends = np.cumsum([len(part) for part in parts])

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def gather(self, rows: Int[np.ndarray, " *n"]) -> UInt8[np.ndarray, "*n height width channels"]:
        """The images with these row numbers."""
        if len(self._readers) == 1:
            return self._readers[0](rows)
        flat = rows.reshape(-1)
        found = np.empty((len(flat), *self.shape), np.uint8)
        which = np.searchsorted(self._ends, flat, side="right")
        first = 0
        for index, (read, end) in enumerate(zip(self._readers, self._ends, strict=True)):
            own = np.flatnonzero(which == index)
            if len(own):
                found[own] = read(flat[own] - first)
            first = end
        return found.reshape(*rows.shape, *self.shape)


def shift(
    images: UInt8[np.ndarray, "n height width channels"], offsets: Int[np.ndarray, "n 2"]
) -> UInt8[np.ndarray, "n height width channels"]:
    """Shift each image by rows and columns, repeating its edges."""
    n, height, width, _ = images.shape
    row = np.clip(np.arange(height) + offsets[:, :1], 0, height - 1)
    column = np.clip(np.arange(width) + offsets[:, 1:], 0, width - 1)
    return images[np.arange(n)[:, None, None], row[:, :, None], column[:, None, :]]


def ahead(make: Callable[[int], Item], steps: Sequence[int]) -> Iterator[Item]:
    """Yield `make(step)` for every step, in order, computed in advance by a thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="images") as thread:
        waiting: list[Future[Item]] = [thread.submit(make, step) for step in steps[:AHEAD]]
        for index in range(len(steps)):
            ready = waiting.pop(0).result()
            if index + AHEAD < len(steps):
                waiting.append(thread.submit(make, steps[index + AHEAD]))
            yield ready
