"""Pytrees of arrays to safetensors files and back: nothing in them can execute."""

import json
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from merlin.errors import MerlinError
from merlin.files import write_bytes
from merlin.tensors import HEADER, metadata, open_file

Tree = TypeVar("Tree")


def to_bytes(tree: Any, about: dict[str, Any]) -> bytes:
    """Serialise; equal trees and metadata give equal bytes.

    The metadata is one JSON string because safetensors does not keep the order of several. Keys
    stay in their order, so that what is written again after a resume is the same to the byte.
    """
    header = {HEADER: json.dumps(about)}
    return safetensors.numpy.save(_named(tree), metadata=header)


def save_tree(path: Path, tree: Any, about: dict[str, Any]) -> None:
    """Write arrays and metadata as one file, atomically: the two can never disagree."""
    write_bytes(path, to_bytes(tree, about))


def load_tree(path: Path, like: Tree) -> tuple[Tree, dict[str, Any]]:
    """Read arrays into a tree of the same structure as `like` (arrays or shapes)."""
    expected = {name: (leaf.shape, leaf.dtype) for name, leaf in _flatten(like)}
    with open_file(path) as file:
        about = metadata(file, path)
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
    return jax.tree.unflatten(jax.tree.structure(like), leaves), about


def _flatten(tree: Any) -> list[tuple[str, Any]]:
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(p, simple=True, separator="."), leaf) for p, leaf in paths]


def _named(tree: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf, order="C") for name, leaf in _flatten(tree)}
