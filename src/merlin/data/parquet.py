"""Read numbers from parquet files. pyarrow is imported on first use."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from merlin.data.archives import check_unpacked
from merlin.data.conversion import reading
from merlin.data.logs import Column, regular_file
from merlin.data.parquet_pages import check_pages
from merlin.errors import MerlinError
from merlin.io.extras import require

BATCH = 1 << 16


def columns(file: Path) -> dict[str, Column]:
    """The columns of a file that hold numbers or vectors of numbers."""
    opened = _open(file)
    found = {}
    with reading(file, "parquet"):
        for field in opened.schema_arrow:
            kind, shape = field.type, tuple[int, ...]()
            if _is_list(kind):
                kind, shape = kind.value_type, (_width(opened, field.name, file),)
            if _is_number(kind) and 0 not in shape:
                found[field.name] = Column(shape)
    return found


def count_rows(file: Path) -> int:
    return _open(file).metadata.num_rows


def read(files: Sequence[Path], known: dict[str, Column], names: Sequence[str]) -> dict[str, Any]:
    """Read columns of several files, back to back."""
    rows = sum(count_rows(file) for file in files)
    found: dict[str, np.ndarray] = {}
    row = 0
    for file in files:
        opened = _open(file)
        with reading(file, "parquet"):
            check_pages(file, names)
            for name in names if not found else ():
                dtype = np.dtype(_value_type(opened, name).to_pandas_dtype())
                shape = (rows, *known[name].shape)
                size = sum(other.stat().st_size for other in files)
                check_unpacked(file, math.prod(shape) * dtype.itemsize, size)
                found[name] = np.empty(shape, dtype)
            end = row + opened.metadata.num_rows
            # In batches, so that rows a damaged file claims to have are never unpacked.
            for batch in opened.iter_batches(batch_size=BATCH, columns=list(names)):
                if row + len(batch) > end:
                    raise ValueError("it has more rows than it says")
                for name in names:
                    place = found[name][row : row + len(batch)]
                    _copy(batch.column(name), place, f"{file}: {name}")
                row += len(batch)
            if row != end:
                raise ValueError("it has fewer rows than it says")
    return found


def _open(file: Path) -> Any:
    parquet = _arrow("parquet")
    size = regular_file(file).stat().st_size
    with reading(file, "parquet"):
        # Since version 14.0.1, pyarrow creates no Python objects from a schema. Only the sizes in
        # the metadata are used here: inspecting a damaged row group aborts the process.
        opened = parquet.ParquetFile(file)
        if opened.metadata.num_rows < 0:
            raise ValueError("it claims a negative number of rows")
        check_unpacked(file, 8 * opened.metadata.num_rows, size)
        return opened


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


def _width(opened: Any, name: str, file: Path) -> int:
    """The length of the vectors in a column, taken from the first row."""
    kind = opened.schema_arrow.field(name).type
    if _is_fixed(kind):
        return kind.list_size
    check_pages(file, [name])
    for batch in opened.iter_batches(batch_size=1, columns=[name]):
        return len(batch.column(0).flatten())
    return 0


def _value_type(opened: Any, name: str) -> Any:
    kind = opened.schema_arrow.field(name).type
    return kind.value_type if _is_list(kind) else kind


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
