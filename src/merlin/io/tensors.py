"""Safetensors files with NumPy alone: a JSON object, arrays, and a checksum of both."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from merlin.errors import MerlinError
from merlin.io.files import check_regular, new_file, parse_json, write_to

HEADER, CHECKSUM = "merlin", "sha256"
"""Metadata keys: a JSON object as text, and the digest of that object and the arrays."""
KINDS = {
    **{"bool": "BOOL", "uint8": "U8", "int16": "I16"},
    **{"int32": "I32", "uint32": "U32", "float32": "F32"},
}
"""Names of the dtypes in safetensors, in its order."""
SMALL_BYTES = 1 << 20
"""Up to this size a checksum takes less time than a thread takes to start on a busy machine."""


def write(
    path: Path, arrays: Mapping[str, np.ndarray], about: Any, *, keep: Path | None = None
) -> None:
    """Write arrays and metadata to one file atomically, so that the two always match.

    Equal content gives equal bytes. Arrays are written one at a time, while another thread computes
    the checksum. The safetensors library would first join them in memory, which takes seconds per
    gigabyte without releasing the GIL, so that no signal is handled meanwhile. The previous file is
    renamed to `keep`.
    """
    from concurrent.futures import ThreadPoolExecutor  # reading, as on a robot, needs no threads

    order = list(KINDS.values())
    named = [(KINDS[array.dtype.name], name, array) for name, array in arrays.items()]
    named.sort(key=lambda entry: (-order.index(entry[0]), entry[1]))
    # The metadata is one JSON string because safetensors does not keep the order of several.
    text = json.dumps(about)
    spans: dict[str, Any] = {}
    end = 0
    for kind, name, array in named:
        begin, end = end, end + array.nbytes
        spans[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [begin, end]}

    def head(digest: str) -> bytes:
        header = {"__metadata__": {HEADER: text, CHECKSUM: digest}, **spans}
        told = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        told += b" " * (-len(told) % 8)
        return len(told).to_bytes(8, "little") + told

    pieces = (_bytes(array) for _, _, array in named)
    with new_file(path, keep=keep) as (file, _):
        if end <= SMALL_BYTES:
            write_to(file, [head(_digest(text, arrays)), *pieces])
            return
        with ThreadPoolExecutor(1) as thread:
            digest = thread.submit(_digest, text, arrays)
            file.write(head("0" * 64))
            write_to(file, pieces)
            file.seek(0)
            file.write(head(digest.result()))


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the metadata of a file; refuses damaged files and NaN."""
    with open_file(path) as file:
        about, kept = metadata(file, path), file.metadata()
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    # Files from earlier versions have no checksum.
    if CHECKSUM in kept and kept[CHECKSUM] != _digest(kept[HEADER], arrays):
        raise MerlinError(f"{path}: is damaged (its checksum is wrong); restore it from a copy.")
    for name, array in arrays.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise MerlinError(f"{path}: {name} contains NaN; train again.")
    return arrays, about


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata alone; the arrays are not read and the checksum is not verified."""
    with open_file(path) as file:
        return metadata(file, path)


def open_file(path: Path) -> Any:
    """Open a file with `keys` and `get_tensor`; use it in a with statement."""
    try:
        check_regular(path)
        return safetensors.safe_open(path, framework="numpy")
    except FileNotFoundError:
        raise MerlinError(
            f"{path}: no such file; the run may not have reached this point yet."
        ) from None
    except (safetensors.SafetensorError, OSError) as error:
        raise MerlinError(
            f"{path}: is damaged ({error}); train again or restore it from a copy."
        ) from None


def metadata(file: Any, path: Path) -> dict[str, Any]:
    """The metadata of an open file."""
    try:
        told = parse_json((file.metadata() or {})[HEADER])
        return (
            told if isinstance(told, dict) else {"kind": told}
        )  # experts of earlier versions have a plain string
    except (KeyError, ValueError, TypeError):
        raise MerlinError(f"{path}: was not written by merlin; check the path.") from None


def _digest(text: str, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the metadata and of every array with its name, dtype and shape."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.name} {array.shape}".encode())
        digest.update(_bytes(array))
    return digest.hexdigest()


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
