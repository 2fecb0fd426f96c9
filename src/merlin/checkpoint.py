"""Pytrees of arrays to safetensors files and back: nothing in them can execute."""

import json
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from merlin.errors import MerlinError
from merlin.files import write_bytes

Tree = TypeVar("Tree")
_HEADER = "merlin"


def to_bytes(tree: Any, metadata: dict[str, Any]) -> bytes:
    """Serialise; equal trees and metadata give equal bytes.

    The metadata is one JSON string because safetensors does not keep the order of several. Keys
    stay in their order, so that what is written again after a resume is the same to the byte.
    """
    header = {_HEADER: json.dumps(metadata)}
    return safetensors.numpy.save(_named(tree), metadata=header)


def save_tree(path: Path, tree: Any, metadata: dict[str, Any]) -> None:
    """Write arrays and metadata as one file, atomically: the two can never disagree."""
    write_bytes(path, to_bytes(tree, metadata))


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata alone, without reading the arrays."""
    with _open(path) as file:
        return _metadata(file, path)


def load_tree(path: Path, like: Tree) -> tuple[Tree, dict[str, Any]]:
    """Read arrays into a tree of the same structure as `like` (arrays or shapes)."""
    expected = {name: (leaf.shape, leaf.dtype) for name, leaf in _flatten(like)}
    with _open(path) as file:
        metadata = _metadata(file, path)
        if set(file.keys()) != set(expected):
            odd = sorted(set(file.keys()) ^ set(expected))[0]
            raise MerlinError(f"{path}: {odd} does not fit the run's settings; train anew.")
        arrays = {name: file.get_tensor(name) for name in expected}
    for name, (shape, dtype) in expected.items():
        found = arrays[name]
        if found.shape != shape or found.dtype != dtype:
            raise MerlinError(
                f"{path}: {name} is {found.dtype}{list(found.shape)}, "
                f"not {dtype}{list(shape)}; it belongs to another run, train anew."
            )
    leaves = [jnp.asarray(arrays[name]) for name in expected]
    return jax.tree.unflatten(jax.tree.structure(like), leaves), metadata


def _flatten(tree: Any) -> list[tuple[str, Any]]:
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(p, simple=True, separator="."), leaf) for p, leaf in paths]


def _named(tree: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf, order="C") for name, leaf in _flatten(tree)}


def _open(path: Path) -> Any:
    try:
        return safetensors.safe_open(path, framework="numpy")
    except FileNotFoundError:
        raise MerlinError(f"{path}: no such file; the run has not come so far.") from None
    except (safetensors.SafetensorError, OSError) as error:
        raise MerlinError(
            f"{path}: is damaged ({error}); train anew or restore it from a copy."
        ) from None


def _metadata(file: Any, path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((file.metadata() or {})[_HEADER]))
    except (KeyError, ValueError, TypeError):
        raise MerlinError(f"{path}: was not written by merlin.") from None
