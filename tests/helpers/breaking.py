"""Ways to break a dataset folder."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from merlin.io import tensors


def plain_json(path: Path) -> dict:
    """A JSON object without its checksum, as somebody has it who changes it on purpose."""
    content = json.loads(path.read_text())
    content.pop("sha256", None)
    return content


def rewrite_meta(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def spoil(data: Path) -> None:
        meta = plain_json(data / "meta.json")
        change(meta)
        (data / "meta.json").write_text(json.dumps(meta))

    return spoil


def rewrite_array(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    """Change an array and its checksum, so that it is the content that is found wrong."""

    def spoil(data: Path) -> None:
        file = data / f"{name}.npy"
        np.save(file, change(np.load(file)))
        listed = {
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
            "bytes": file.stat().st_size,
        }
        rewrite_meta(lambda meta: meta["files"].update({name: listed}))(data)

    return spoil


def put(row: int, column: int, value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array[row, column] = value
        return array

    return change


def rewrite_file(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return spoil


def flip_last_byte(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def garble(name: str) -> Callable[[Path], None]:
    """Bytes that are no array, with a checksum that says they are meant."""

    def spoil(data: Path) -> None:
        file = data / f"{name}.npy"
        file.write_bytes(b"no array at all, " * 10)
        listed = {"sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "bytes": 170}
        rewrite_meta(lambda meta: meta["files"].update({name: listed}))(data)

    return spoil


def nothing_in_it(data: Path) -> None:
    for name in ("observations", "actions", "achieved_goals", "desired_goals"):
        rewrite_array(name, lambda array: array[:0])(data)
    rewrite_array("starts", lambda starts: starts[:1])(data)


def rewrite_policy(change: Callable[[dict, dict], object]) -> Callable[[Path], None]:
    """Change arrays or metadata of the policy of seed 0, and its checksum with them."""

    def spoil(run: Path) -> None:
        file = run / "seed-0" / "policy.safetensors"
        arrays, about = tensors.read(file)
        change(arrays, about)
        tensors.write(file, arrays, about)

    return spoil
