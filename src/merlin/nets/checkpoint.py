"""Store pytrees of arrays in safetensors files, which cannot contain code."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from merlin.errors import MerlinError
from merlin.io import tensors

Tree = TypeVar("Tree")


def save_tree(path: Path, tree: Any, about: dict[str, Any], *, keep: Path | None = None) -> None:
    """Write arrays and metadata to one file atomically; a previous file is renamed to `keep`."""
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in _flatten(tree)}
    tensors.write(path, arrays, about, keep=keep)


ADDED: Mapping[str, Callable[[tuple[int, ...]], np.ndarray]] = {
    "normaliser.limit": lambda shape: np.full(shape, 5.0),
    "map.projection": lambda shape: np.eye(shape[0]),
}
"""Defaults of arrays missing from files of earlier versions, by name suffix, given a shape."""


def load_tree(path: Path, like: Tree) -> tuple[Tree, dict[str, Any]]:
    """Read arrays into a tree with the structure of `like` (arrays or shapes)."""
    arrays, about = tensors.read(path)
    return fit_tree(arrays, like, path), about


def fit_tree(arrays: Mapping[str, np.ndarray], like: Tree, path: Path) -> Tree:
    """Arrange arrays read from `path` into a tree with the structure of `like`."""
    expected = {name: (leaf.shape, leaf.dtype) for name, leaf in _flatten(like)}
    arrays = dict(arrays)
    for name in expected.keys() - arrays.keys():
        for end, former in ADDED.items():
            if name.endswith(end):
                arrays[name] = former(expected[name][0]).astype(expected[name][1])
    if odd := sorted(arrays.keys() ^ expected.keys()):
        raise MerlinError(f"{path}: {odd[0]} does not match the run's settings; train again.")
    for name, (shape, dtype) in expected.items():
        found = arrays[name]
        if found.shape != shape or found.dtype != dtype:
            raise MerlinError(
                f"{path}: {name} is {found.dtype}{list(found.shape)}, "
                f"not {dtype}{list(shape)}; it belongs to another run, train again."
            )
    leaves = [jnp.asarray(arrays[name]) for name in expected]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _flatten(tree: Any) -> list[tuple[str, Any]]:
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(p, simple=True, separator="."), leaf) for p, leaf in paths]
