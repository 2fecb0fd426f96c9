"""One .npy or .npz per episode, in a folder or listed in a .txt with one path per line.

An .npz holds named arrays with one row per step. An .npy is a single such array, whose columns are
identified by their index.
"""

import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from merlin.data.archives import Header, check_unpacked, read_header
from merlin.data.conversion import reading
from merlin.data.dataset import Dataset
from merlin.data.logs import Column, Fields, Log, Rows, regular_file, to_dataset
from merlin.errors import MerlinError

SUFFIXES = (".npy", ".npz")
ONLY = "data"
"""The name given to the array of an .npy."""
MOST_LIST_BYTES = 1 << 26


def recognises(folder: Path) -> bool:
    """Whether a folder holds arrays and is not a native dataset, intact or damaged."""
    native = any((folder / name).exists() for name in ("meta.json", "starts.npy"))
    return not native and bool(_files(folder))


def read(name: str, fields: Fields) -> Dataset:
    """Read the files in the order of their names, or of the list."""
    if fields.episode is not None:
        raise MerlinError(f"episode: each file of {name} is an episode; leave it out.")
    path = Path(name)
    files = _files(path) if path.is_dir() else _listed(path)
    if not files or len({file.suffix for file in files}) != 1 or files[0].suffix not in SUFFIXES:
        raise MerlinError(f"{name}: does not name files that are all .npy or all .npz; give some.")
    headers = [_headers(file) for file in files]
    first = headers[0]
    shared = [key for key in first if all(key in others for others in headers)]
    steps = [_rows(one, file) for one, file in zip(headers, files, strict=True)]
    columns = {
        key: Column(first[key].shape[1:])
        for key in shared
        if all(_is_column(one[key], first[key], n) for one, n in zip(headers, steps, strict=True))
    }

    odd: dict[str, str] = {}
    for key in shared:
        for one, file in zip(headers, files, strict=True):
            if one[key].shape[1:] != first[key].shape[1:]:
                shapes = (
                    f"{first[key].shape} in {files[0].name} and {one[key].shape} in {file.name}"
                )
                odd.setdefault(key, f"{key} has the shape {shapes}")
        for one, n, file in zip(headers, steps, files, strict=True):
            if one[key].shape[:1] not in ((), (n,)):
                odd.setdefault(
                    key, f"{key} has {one[key].shape[0]} rows in {file.name}, others {n}"
                )

    def load(names: Sequence[str]) -> Rows:
        claimed = sum(one[key].size for one in headers for key in names)
        check_unpacked(name, claimed, sum(file.stat().st_size for file in files))
        found = {key: np.concatenate([_numbers(file, key) for file in files]) for key in names}
        return Rows(found, np.cumsum(steps, dtype=np.int64))

    return to_dataset(Log(name, "arrays per episode", columns, load, odd=odd), fields)


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.np[yz]") if not file.name.startswith("."))


def _listed(path: Path) -> list[Path]:
    """The files named in a list, relative to it."""
    if regular_file(path).stat().st_size > MOST_LIST_BYTES:
        raise MerlinError(f"{path}: is not a list of files; give one path per line.")
    with reading(path, "a list of files"):
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        return [regular_file(path.parent / line.strip()) for line in lines if line.strip()]


def _rows(headers: dict[str, Header], file: Path) -> int:
    """The number of steps of an episode: the length of most of its arrays."""
    counts = [one.shape[0] for one in headers.values() if one.shape]
    if not counts or min(counts) < 1:
        raise MerlinError(f"{file}: holds no array with one row per step; drop it.")
    return max(set(counts), key=counts.count)


def _is_column(one: Header, first: Header, steps: int) -> bool:
    alike = one.shape[1:] == first.shape[1:] and one.shape[:1] == (steps,)
    return alike and one.dtype.kind in "biuf" and 0 not in one.shape


def _headers(file: Path) -> dict[str, Header]:
    """Shape and type of every array in a file, checked against its bytes."""
    size = regular_file(file).stat().st_size
    with reading(file, "arrays"), file.open("rb") as opened:
        if file.suffix == ".npy":
            return {ONLY: read_header(opened, size)}
        with zipfile.ZipFile(opened) as archive:
            entries = [e for e in archive.infolist() if e.filename.endswith(".npy")]
            check_unpacked(file, sum(entry.file_size for entry in entries), size)
            found = {}
            for entry in entries:
                with archive.open(entry) as member:
                    header = read_header(member, entry.file_size)
                found[entry.filename.removesuffix(".npy")] = header
            return found


def _numbers(file: Path, key: str) -> np.ndarray:
    with reading(file, "arrays"), file.open("rb") as opened, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if file.suffix == ".npy":
            return np.load(opened, allow_pickle=False)
        with np.load(opened, allow_pickle=False) as archive:
            return archive[key]
