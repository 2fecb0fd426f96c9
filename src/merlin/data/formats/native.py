"""The native format: a folder of memory-mappable .npy files and a meta.json."""

import contextlib
import os
import struct
import tokenize
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from merlin.data.conversion import reason
from merlin.data.dataset import Dataset, validate
from merlin.data.images import pieces
from merlin.errors import MerlinError
from merlin.io import files
from merlin.io.files import new_folder, read_json, sha256, write_json

SCHEMA = 1
META = "meta.json"
REQUIRED = ("observations", "actions", "achieved_goals", "starts")
OPTIONAL = ("desired_goals",)
SAME = "goals_are_observations"
"""Key in meta.json: whether states are their own goals, which are then not stored again."""
_GARBLED = (
    *(ValueError, OSError, EOFError, SyntaxError, TypeError, ArithmeticError, LookupError),
    *(RecursionError, MemoryError, struct.error, tokenize.TokenError),
)
"""Exceptions that NumPy raises for invalid headers."""


def check_free(target: Path, overwrite: bool = False) -> None:
    """Raise an error if the target exists; to overwrite, it must be a dataset folder or empty.

    The whole folder is replaced, so one that also holds other datasets, or anything else, is not.
    """
    files.check_free(target, overwrite)
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise MerlinError(
            f"{target}: is not a dataset folder and is not overwritten; choose another name."
        )
    held = sorted(path.name for path in target.iterdir() if not files.is_temporary(path))
    other = [name for name in held if name != META and not name.endswith(".npy")]
    if held and (other or META not in held):
        what = f"holds {other[0]}" if other else f"has no {META}"
        raise MerlinError(
            f"{target}: {what}, so it is more than a dataset and is not overwritten; choose "
            "another name, or delete it yourself."
        )


def save(data: Dataset, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a dataset as a folder, atomically."""
    target = Path(path)
    check_free(target, overwrite)
    with new_folder(target, overwrite) as folder:
        sums: dict[str, Any] = {}
        same = data.achieved_goals is data.observations
        for name, array in data.arrays().items():
            if same and name == "achieved_goals":
                continue
            file = folder / f"{name}.npy"
            _write(file, array)
            sums[name] = {"sha256": sha256(file), "bytes": file.stat().st_size}
        meta = {
            "format": "merlin-dataset",
            "schema": SCHEMA,
            "task": data.task,
            "variant": data.variant,
            **({} if data.phi is None else {"phi": list(data.phi)}),
            **({} if data.drawn_steps is None else {"drawn_steps": data.drawn_steps}),
            **({SAME: True} if same else {}),
            "episodes": len(data),
            "states": len(data.observations),
            "action_low": [float(x) for x in data.action_low],
            "action_high": [float(x) for x in data.action_high],
            "provenance": dict(data.provenance),
            "files": sums,
        }
        write_json(folder / META, meta)
    return target


def _write(file: Path, array: Any) -> None:
    """Like np.save, but in chunks."""
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": tuple(array.shape)}
    with file.open("wb") as out:
        np.lib.format.write_array_header_1_0(out, header)
        for _, piece in pieces(array):
            out.write(np.ascontiguousarray(piece).data)


def load(path: str | Path) -> Dataset:
    """Open a dataset folder as memory maps, after checking every file and every number."""
    folder = Path(path)
    if not folder.exists():
        raise MerlinError(f"{folder}: no such dataset; give a folder or the name of a task.")
    if not folder.is_dir():
        raise MerlinError(
            f"{folder}: is a file, not a dataset folder, and of no known format; give a folder, or "
            "a file named .csv, .tsv, .parquet, .hdf5, .npz, .pkl or .txt."
        )
    meta = read_json(folder / META, "a dataset folder")
    _check_meta(meta, folder)
    arrays: dict[str, Any] = {name: _open(folder, name, meta["files"]) for name in _required(meta)}
    arrays.setdefault("achieved_goals", arrays["observations"])
    for name in OPTIONAL:
        arrays[name] = _open(folder, name, meta["files"]) if name in meta["files"] else None
    data = Dataset(
        **arrays,
        action_low=_vector(meta, "action_low", folder),
        action_high=_vector(meta, "action_high", folder),
        task=meta.get("task"),
        variant=meta.get("variant"),
        provenance=meta.get("provenance") or {},
        source=str(folder.resolve()),
        phi=None if meta.get("phi") is None else tuple(meta["phi"]),
        drawn_steps=meta.get("drawn_steps"),
    )
    return validate(data, str(folder))


def _required(meta: dict[str, Any]) -> list[str]:
    """The names of the required files."""
    return [name for name in REQUIRED if name != "achieved_goals" or meta.get(SAME) is not True]


def _check_meta(meta: dict[str, Any], folder: Path) -> None:
    where = folder / META
    if meta.get("format") != "merlin-dataset":
        raise MerlinError(f"{where}: format is not 'merlin-dataset'; convert the data first.")
    if meta.get("schema") != SCHEMA:
        raise MerlinError(
            f"{where}: schema {meta.get('schema')!r} is not the {SCHEMA} that this version "
            "reads; use the version of merlin that wrote it."
        )
    if not isinstance(meta.get("provenance"), dict | None):
        raise MerlinError(f"{where}: provenance is not an object; write the dataset again.")
    files = meta.get("files")
    if not isinstance(files, dict):
        raise MerlinError(f"{where}: lists no files; write the dataset again.")
    for name in _required(meta):
        if name not in files:
            raise MerlinError(f"{where}: does not list {name}.npy; write the dataset again.")
    for key in ("task", "variant"):
        if not isinstance(meta.get(key), str | None):
            raise MerlinError(f"{where}: {key} is not a name; write the dataset again.")
    phi = meta.get("phi", [])
    if not isinstance(phi, list) or not all(type(i) is int and i >= 0 for i in phi):
        raise MerlinError(f"{where}: phi is not a list of indices; write the dataset again.")
    if type(meta.get("drawn_steps", 1)) is not int:
        raise MerlinError(f"{where}: drawn_steps is not a number; write the dataset again.")


def _vector(meta: dict[str, Any], key: str, folder: Path) -> np.ndarray:
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return np.asarray(meta.get(key), np.float32).reshape(-1)
    raise MerlinError(f"{folder / META}: {key} is not a list of numbers; write it again.")


def _open(folder: Path, name: str, files: dict[str, Any]) -> np.ndarray:
    path = folder / f"{name}.npy"
    listed = files[name]
    if not isinstance(listed, dict) or not {"sha256", "bytes"} <= listed.keys():
        raise MerlinError(f"{folder / META}: has no checksum of {path.name}; write it again.")
    if not path.is_file():
        raise MerlinError(f"{path}: is missing; copy the dataset again.")
    size = path.stat().st_size
    if size != listed["bytes"]:
        raise MerlinError(
            f"{path}: has {size} bytes, not {listed['bytes']}; it was cut short or changed, "
            "copy the dataset again."
        )
    if sha256(path) != listed["sha256"]:
        raise MerlinError(f"{path}: its checksum is wrong; copy the dataset again.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a corrupt header may warn before it fails
            return np.load(path, mmap_mode="r", allow_pickle=False)
    except _GARBLED as error:
        raise MerlinError(f"{path}: is not a readable .npy array ({reason(error)}).") from None
