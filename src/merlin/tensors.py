"""Opening safetensors files, with NumPy alone."""

import json
from pathlib import Path
from typing import Any

import safetensors

from merlin.errors import MerlinError

HEADER = "merlin"
"""The one metadata key of our files: a JSON object."""


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata alone, without reading the arrays."""
    with open_file(path) as file:
        return metadata(file, path)


def open_file(path: Path) -> Any:
    """An open file: `keys`, `get_tensor`; to be used in a with statement."""
    try:
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
        return dict(json.loads((file.metadata() or {})[HEADER]))
    except (KeyError, ValueError, TypeError):
        raise MerlinError(f"{path}: was not written by merlin.") from None
