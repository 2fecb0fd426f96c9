"""Zarr v2 replay buffers in the layout of Diffusion Policy: data/NAME and meta/episode_ends.

The reader is our own. It supports plain numbers in chunks that are uncompressed or compressed with
Blosc, zlib or gzip. Filters are rejected, since one of them is pickle.
"""

import json
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from merlin.data.archives import check_unpacked
from merlin.data.conversion import reading
from merlin.data.dataset import Dataset
from merlin.data.logs import Column, Fields, Log, Rows, regular_file, to_dataset
from merlin.errors import MerlinError
from merlin.io.extras import require
from merlin.io.files import read_json

ENDS = Path("meta") / "episode_ends"
MOST_DIMENSIONS = 4
_NUMBERS = re.compile(r"[<>|]([biu][1248]|f[248])")
_NAME = re.compile(r"[^.].*")


def recognises(folder: Path) -> bool:
    """Whether there is a Zarr group at a path."""
    return any((folder / name).is_file() for name in (".zgroup", "zarr.json"))


def read(name: str, fields: Fields) -> Dataset:
    """Read a replay buffer. State and action default to data/state and data/action."""
    folder = Path(name)
    if (folder / "zarr.json").exists():
        raise MerlinError(f"{folder}: is Zarr v3; write it with zarr_format=2.")
    if fields.episode is not None:
        raise MerlinError(f"episode: {folder / ENDS} defines the episodes; leave it out.")
    ends = _Array.open(folder / ENDS).read()
    if ends.ndim != 1 or not len(ends) or ends.dtype.kind not in "iu" or ends.dtype.itemsize < 2:
        raise MerlinError(f"{folder / ENDS}: is not a list of row numbers; write it again.")
    ends = ends.astype(np.int64)
    if ends[0] <= 0 or (ends[1:] <= ends[:-1]).any():  # a difference could overflow
        raise MerlinError(f"{folder / ENDS}: is not increasing from above 0; write it again.")
    arrays = {file.parent.name: _Array.open(file.parent) for file in _headers(folder / "data")}
    rows = {key: array.shape[0] for key, array in arrays.items()}
    for key, count in rows.items():
        if count != ends[-1]:
            raise MerlinError(
                f"{folder / 'data' / key}: has {count} rows, but the last episode ends at "
                f"{ends[-1]}; write it again."
            )
    log = Log(
        where=name,
        format="Zarr v2 replay buffer",
        columns={key: Column(array.shape[1:]) for key, array in arrays.items()},
        read=lambda names: Rows({key: arrays[key].read() for key in names}, ends),
        about=_about(folder),
    )
    return to_dataset(log, fields)


def _headers(folder: Path) -> Iterator[Path]:
    """The descriptions of the arrays in a group, ordered by name."""
    return (file for file in sorted(folder.glob("*/.zarray")) if _NAME.match(file.parent.name))


def _about(folder: Path) -> dict[str, Any]:
    """The numbers and strings among the attributes of the root group."""
    file = folder / ".zattrs"
    if not file.is_file():
        return {}
    told = read_json(file, "a Zarr group")
    words = {key: value[:200] for key, value in told.items() if isinstance(value, str)}
    numbers = {
        key: float(value)
        for key, value in told.items()
        if isinstance(value, int | float) and abs(value) < 2**53
    }
    return dict(list({**words, **numbers}.items())[:20])


@dataclass(frozen=True)
class _Array:
    """An array on disk whose description has been checked."""

    folder: Path
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype
    order: Literal["C", "F"]
    compressor: str | None
    separator: str

    @classmethod
    def open(cls, folder: Path) -> "_Array":
        file = folder / ".zarray"
        about = read_json(file, "a Zarr array")
        shape, chunks = (_sizes(about.get(key)) for key in ("shape", "chunks"))
        if shape is None or chunks is None or len(shape) != len(chunks):
            raise MerlinError(f"{file}: shape and chunks are not lists of sizes; write it again.")
        kind = about.get("dtype")
        if not isinstance(kind, str) or not _NUMBERS.fullmatch(kind):
            shown = json.dumps(kind)[:40]
            raise MerlinError(f"{file}: dtype is {shown}, not a number; convert it.")
        if about.get("filters"):
            raise MerlinError(f"{file}: has filters, which are not supported; write it without.")
        compressor = about.get("compressor")
        name = compressor.get("id") if isinstance(compressor, dict) else compressor
        if name not in (None, "blosc", "zlib", "gzip"):
            raise MerlinError(
                f"{file}: is compressed by {json.dumps(name)[:40]}, which is unsupported; write it "
                "with Blosc, zlib or gzip."
            )
        order, separator = about.get("order", "C"), about.get("dimension_separator", ".")
        if about.get("zarr_format") != 2 or order not in ("C", "F") or separator not in (".", "/"):
            raise MerlinError(f"{file}: is not valid Zarr v2; write it again.")
        return cls(folder, shape, chunks, np.dtype(kind), order, name, separator)

    def read(self) -> np.ndarray:
        """Read the whole array; every chunk must exist and match the description."""
        grid = [-(-size // chunk) for size, chunk in zip(self.shape, self.chunks, strict=True)]
        chunk_bytes = math.prod(self.chunks) * self.dtype.itemsize
        count = math.prod(grid)
        present = sum(1 for path in self.folder.rglob("*") if path.name[0] != ".")
        if count > present:
            raise MerlinError(
                f"{self.folder}: has {present} of its {count} chunks; copy the log again."
            )
        files = [self._file(index) for index in np.ndindex(*grid)]
        stored = sum(regular_file(file).stat().st_size for file in files)
        check_unpacked(self.folder, chunk_bytes * count, stored)
        result = np.empty(self.shape, self.dtype)
        for index, file in zip(np.ndindex(*grid), files, strict=True):
            with reading(file, "a Zarr chunk"):
                chunk = self._decode(file.read_bytes(), chunk_bytes)
            numbers = np.frombuffer(chunk, self.dtype).reshape(self.chunks, order=self.order)
            place = tuple(
                slice(i * c, (i + 1) * c) for i, c in zip(index, self.chunks, strict=True)
            )
            target = result[place]
            target[...] = numbers[tuple(slice(size) for size in target.shape)]
        return result

    def _file(self, index: Sequence[int]) -> Path:
        return self.folder / self.separator.join(map(str, index))

    def _decode(self, content: bytes, size: int) -> Any:
        """Decompress a chunk to exactly `size` bytes."""
        if self.compressor == "blosc":
            blosc = require("numcodecs.blosc", "formats", "Zarr with Blosc")
            header = np.frombuffer(content[4:16].ljust(12, b"\0"), "<u4")
            if header[0] != size or header[2] != len(content):
                raise ValueError(f"its header declares {header[0]} bytes, not {size}")
            return blosc.decompress(content)
        if self.compressor is not None:
            opened = zlib.decompressobj(wbits=47)  # detects zlib or gzip
            content = opened.decompress(content, size + 1)
        if len(content) != size:
            raise ValueError(f"it holds {len(content)} bytes, not {size}")
        return content


def _sizes(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list) or not 0 < len(value) <= MOST_DIMENSIONS:
        return None
    return tuple(value) if all(type(n) is int and 0 < n < 2**40 for n in value) else None
