"""Read numbers from parquet files. pyarrow is imported on first use."""

import functools
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from merlin.data.archives import check_unpacked
from merlin.data.conversion import reading
from merlin.data.logs import Column, regular_file
from merlin.data.parquet_pages import Chunks, find_chunks, unpacked_bytes
from merlin.errors import MerlinError
from merlin.io.extras import require

BATCH, MOST_THREADS = 1 << 15, 4


class _File:
    """One of the files of a table, and how much it claims to hold."""

    def __init__(self, path: Path):
        self.path = path
        self.size = regular_file(path).stat().st_size
        with reading(path, "parquet"):
            opened = _open(path)
            self.rows = opened.metadata.num_rows
            if self.rows < 0:
                raise ValueError("it claims a negative number of rows")
            check_unpacked(path, 8 * self.rows, self.size)
            self._leaves = [opened.schema.column(k).path for k in range(len(opened.schema))]

    @functools.cached_property
    def _chunks(self) -> Chunks:
        return find_chunks(self.path, len(self._leaves))

    def unpacked(self, names: Sequence[str]) -> int:
        """The unpacked size of columns in bytes, including nested columns."""
        begin = tuple(f"{name}." for name in names)
        chosen = [k for k, leaf in enumerate(self._leaves) if f"{leaf}.".startswith(begin)]
        with reading(self.path, "parquet"):
            return unpacked_bytes(self.path, self._chunks[:, chosen])


class Table:
    """The rows of several parquet files with the same columns, back to back.

    `columns` are those of the first file that hold numbers or vectors of numbers.
    """

    def __init__(self, paths: Sequence[Path]):
        self._files = [_File(path) for path in paths]
        self.columns, self._dtypes = dict[str, Column](), dict[str, np.dtype]()
        for first in self._files[:1]:
            with reading(first.path, "parquet"):
                self._find_columns(first)

    def _find_columns(self, file: _File) -> None:
        opened = _open(file.path)
        for field in opened.schema_arrow:
            kind, shape = field.type, tuple[int, ...]()
            if _is_list(kind):
                kind, shape = kind.value_type, (_width(file, opened, field),)
            if _is_number(kind) and 0 not in shape:
                self.columns[field.name] = Column(shape)
                self._dtypes[field.name] = np.dtype(kind.to_pandas_dtype())

    def read(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Read columns of all files, a few files at a time."""
        _check(self._files, names)
        ends = list(itertools.accumulate(file.rows for file in self._files))
        found = {}
        for name in names:
            shape, dtype = (ends[-1], *self.columns[name].shape), self._dtypes[name]
            size = sum(file.size for file in self._files)
            check_unpacked(self._files[0].path, math.prod(shape) * dtype.itemsize, size)
            found[name] = np.empty(shape, dtype)
        fill = functools.partial(_fill, found, use_threads=len(self._files) == 1)
        with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
            list(pool.map(fill, self._files, ends))  # raises what a file raised
        return found


def _fill(found: Mapping[str, np.ndarray], file: _File, end: int, *, use_threads: bool) -> None:
    """Read the rows of a file to their place, which ends at row `end`."""
    row = end - file.rows
    with reading(file.path, "parquet"):
        # In batches, so that rows a damaged file claims to have are never unpacked.
        for batch in _open(file.path).iter_batches(BATCH, None, list(found), use_threads):
            if row + len(batch) > end:
                raise ValueError("it has more rows than it says")
            for name, places in found.items():
                _copy(batch.column(name), places[row : row + len(batch)], f"{file.path}: {name}")
            row += len(batch)
        if row != end:
            raise ValueError("it has fewer rows than it says")


def _check(files: Sequence[_File], names: Sequence[str]) -> None:
    """Refuse files whose columns together unpack to far more than the size of the files."""
    size, unpacked = sum(file.size for file in files), 0
    for file in files:
        unpacked += file.unpacked(names)
        check_unpacked(file.path, unpacked, size)


def _open(path: Path) -> Any:
    # Since version 14.0.1, pyarrow creates no Python objects from a schema. Only the sizes in the
    # metadata are used here: inspecting a damaged row group aborts the process.
    return _arrow("parquet").ParquetFile(path)


def _copy(array: Any, place: np.ndarray, where: str) -> None:
    """Copy the rows of an arrow array to their place."""
    if array.null_count:
        raise MerlinError(f"{where} has empty rows; fill or drop them.")
    if place.ndim == 1:
        place[:] = array.to_numpy(zero_copy_only=False)
        return
    rows, width = place.shape
    values = array.flatten()
    uneven = len(values) != rows * width
    if not uneven and not _is_fixed(array.type):
        uneven = bool((np.diff(array.offsets.to_numpy()) != width).any())
    if uneven or values.null_count:
        raise MerlinError(f"{where} does not hold {width} numbers in every row; repair it.")
    place[:] = values.to_numpy(zero_copy_only=False).reshape(rows, width)


def _width(file: _File, opened: Any, field: Any) -> int:
    """The length of the vectors in a column, taken from the first row."""
    if _is_fixed(field.type):
        return field.type.list_size
    _check([file], [field.name])
    for batch in opened.iter_batches(batch_size=1, columns=[field.name]):
        return len(batch.column(0).flatten())
    return 0


def _is_list(kind: Any) -> bool:
    types = _arrow("types")
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _is_fixed(kind: Any) -> bool:
    return _arrow("types").is_fixed_size_list(kind)


def _is_number(kind: Any) -> bool:
    types = _arrow("types")
    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)


def _arrow(module: str) -> Any:
    return require(f"pyarrow.{module}", "formats", "parquet")
