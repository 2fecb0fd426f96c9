"""Tables of goals given by a user, one goal per row."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from merlin.data.archives import read_header
from merlin.errors import MerlinError
from merlin.io.files import read_limited

MOST_BYTES = 1 << 24
MOST_GOALS = 10_000


def read_goals(path: Path, dim: int) -> Float[np.ndarray, "goals goal"]:
    """Read a .csv (numbers, with an optional header) or a .npy."""
    if path.suffix not in (".csv", ".npy"):
        raise MerlinError(f"goals {path}: is neither .csv nor .npy; give one row per goal.")
    if not path.is_file():
        raise MerlinError(f"goals {path}: no such file; give one row of {dim} per goal in one.")
    content = read_limited(path, MOST_BYTES)
    try:
        table = _npy(content) if path.suffix == ".npy" else _csv(content)
    except Exception:  # whatever NumPy raises for a header that is none
        message = f"goals {path}: cannot be read as numbers; give one row of {dim} per goal."
        raise MerlinError(message) from None
    return check_goals(table, dim, f"goals {path}")


def check_goals(goals: Any, dim: int, where: str = "goals") -> Float[np.ndarray, "goals goal"]:
    """Goals as rows of finite numbers; a single goal needs no row of its own."""
    try:
        table = np.asarray(goals, np.float32)
    except (TypeError, ValueError):
        raise MerlinError(f"{where}: are not numbers; give one row of {dim} per goal.") from None
    if table.ndim == 1 and table.size == dim:
        table = table[None]
    if table.ndim != 2 or table.shape[1] != dim or not 1 <= len(table) <= MOST_GOALS:
        raise MerlinError(
            f"{where}: the shape is {table.shape}; give 1 to {MOST_GOALS} rows of {dim}."
        )
    if not np.isfinite(table).all():
        raise MerlinError(f"{where}: holds numbers that are not finite; correct them.")
    return table


def _npy(content: bytes) -> np.ndarray:
    file = io.BytesIO(content)
    read_header(file, len(content))
    file.seek(0)
    return np.asarray(np.load(file, allow_pickle=False), np.float32)


def _csv(content: bytes) -> np.ndarray:
    rows = [row for row in csv.reader(io.StringIO(content.decode("utf-8-sig"))) if row]
    if rows and not any(map(_is_number, rows[0])):  # a header, not a goal with a typing error
        rows = rows[1:]
    return np.array([[float(cell) for cell in row] for row in rows], np.float32)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
