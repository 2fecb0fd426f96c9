"""Finished parts of a long computation, stored on disk to survive a kill."""

import io
import shutil
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from merlin.data.archives import read_npz
from merlin.errors import MerlinError
from merlin.io.files import read_json, write_bytes, write_json

_DAMAGED = (
    *(MerlinError, OSError, EOFError, ValueError, LookupError, TypeError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError),
)


class PartialResults:
    """Numbered sets of arrays in a folder that belongs to a single recipe."""

    def __init__(self, folder: Path, recipe: dict[str, Any], names: Sequence[str]):
        self._folder, self._names = folder, names
        about = folder / "recipe.json"
        recipe = {**recipe, "arrays": list(names)}
        if folder.exists() and not _says(about, recipe):
            shutil.rmtree(folder)  # left by a different computation
        write_json(about, recipe)

    def keep(self, number: int, arrays: dict[str, np.ndarray]) -> None:
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **arrays)
        write_bytes(self._path(number), content.getvalue())

    def load(self, number: int) -> dict[str, np.ndarray] | None:
        """The arrays, or None if they are missing or damaged and must be recomputed."""
        try:
            found = read_npz(self._path(number), self._names)
        except _DAMAGED:
            return None
        return found if set(found) == set(self._names) else None

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:08d}.npz"


def _says(about: Path, recipe: dict[str, Any]) -> bool:
    try:
        return read_json(about, "a recipe") == recipe
    except MerlinError:
        return False
