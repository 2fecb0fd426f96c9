"""Our safetensors files, with NumPy alone: a JSON object, arrays, and the checksum of both."""

import hashlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from merlin.errors import MerlinError
from merlin.io.files import check_regular, parse_json, write_pieces

HEADER, CHECKSUM = "merlin", "sha256"
"""The metadata keys of our files: a JSON object as text, and the digest of it and the arrays."""
KINDS = {
    **{"bool": "BOOL", "uint8": "U8", "int16": "I16"},
    **{"int32": "I32", "uint32": "U32", "float32": "F32"},
}
"""What safetensors calls the kinds of arrays that a state has, in its order."""


def write(
    path: Path, arrays: Mapping[str, np.ndarray], about: Any, *, keep: Path | None = None
) -> None:
    """Write arrays and metadata as one file, atomically: the two can never disagree.

    Equal content gives equal bytes. Arrays are written one after the other, where safetensors
    would join them in memory first: a gigabyte takes it seconds, in which no other thread runs
    and so no signal is obeyed. The file that was there becomes `keep`.
    """
    order = list(KINDS.values())
    named = [(KINDS[array.dtype.name], name, array) for name, array in arrays.items()]
    named.sort(key=lambda entry: (-order.index(entry[0]), entry[1]))
    # The metadata is one JSON string because safetensors does not keep the order of several.
    text = json.dumps(about)
    digest = _digest(text, arrays)
    header: dict[str, Any] = {"__metadata__": {HEADER: text, CHECKSUM: digest}}
    end = 0
    for kind, name, array in named:
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [begin, end]}
    head = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    content = (_bytes(array) for _, _, array in named)
    write_pieces(path, itertools.chain([len(head).to_bytes(8, "little"), head], content), keep=keep)


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the metadata of a file, if it is undamaged and none of its numbers is NaN."""
    with open_file(path) as file:
        about, kept = metadata(file, path), file.metadata()
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    # Files of earlier versions have no checksum.
    if CHECKSUM in kept and kept[CHECKSUM] != _digest(kept[HEADER], arrays):
        raise MerlinError(f"{path}: is damaged (its checksum is wrong); restore it from a copy.")
    for name, array in arrays.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise MerlinError(f"{path}: {name} holds NaN; train anew.")
    return arrays, about


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata alone, without reading the arrays and so without the checksum."""
    with open_file(path) as file:
        return metadata(file, path)


def open_file(path: Path) -> Any:
    """An open file: `keys`, `get_tensor`; to be used in a with statement."""
    try:
        check_regular(path)
        return safetensors.safe_open(path, framework="numpy")
    except FileNotFoundError:
        raise MerlinError(f"{path}: no such file; the run has not come so far.") from None
    except (safetensors.SafetensorError, OSError) as error:
        raise MerlinError(
            f"{path}: is damaged ({error}); train anew or restore it from a copy."
        ) from None


def metadata(file: Any, path: Path) -> dict[str, Any]:
    """What an open file says of itself."""
    try:
        told = parse_json((file.metadata() or {})[HEADER])
        return told if isinstance(told, dict) else {"kind": told}  # a word, in experts of old
    except (KeyError, ValueError, TypeError):
        raise MerlinError(f"{path}: was not written by merlin.") from None


def _digest(text: str, arrays: Mapping[str, np.ndarray]) -> str:
    """Of the metadata and of every array with its name, type and shape."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.name} {array.shape}".encode())
        digest.update(_bytes(array))
    return digest.hexdigest()


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
