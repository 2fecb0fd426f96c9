"""How long a grid will take, from speeds that were measured."""

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from merlin.bench.grids import Cell
from merlin.tasks.registry import find

START_SECONDS = 8.0
"""Of a cell: opening the data, compiling, opening environments."""
IMAGES_MS = 125.0
"""Of an update on images, as measured for Merlin on PointReach, until rows say more."""


class Speeds:
    """Milliseconds per update by method and seconds per episode by task.

    Shipped figures from two cores, over which go those of the rows at hand.
    """

    def __init__(self, rows: Iterable[dict[str, Any]] = ()):
        shipped = json.loads((files("merlin.bench") / "speeds.json").read_text())
        self._updates: dict[str, float] = dict(shipped["update_ms"])
        self._episodes: dict[str, float] = shipped["episode_seconds"]
        measured: dict[str, list[float]] = {}
        for row in rows:
            if row["status"] == "done" and row["timing"] and not row["asked"]["timed"]:
                name = _method(row["algo"], row["preset"], bool(row.get("pixels")))
                measured.setdefault(name, []).append(row["timing"]["update_ms"])
        self._updates |= {name: float(np.median(values)) for name, values in measured.items()}

    def seconds(self, cell: Cell) -> float:
        """Of one cell on one core."""
        if cell.timed:
            return 4 * START_SECONDS
        # A method nobody has measured may be the slowest.
        unknown = IMAGES_MS if cell.pixels else max(self._updates.values())
        update = self._updates.get(_method(cell.algo, cell.preset, cell.pixels), unknown)
        looks = -(-cell.updates // cell.eval_every)
        episodes = looks * cell.eval_episodes
        episodes += (1 + len(cell.horizons)) * cell.final_episodes
        each = self._episodes.get(find(cell.task).name, max(self._episodes.values()))
        return START_SECONDS + cell.updates * update / 1000.0 + episodes * each


def _method(algo: str, preset: str | None, pixels: bool) -> str:
    return "/".join([algo, *([preset] if preset else []), *(["pixels"] if pixels else [])])


def total_seconds(cells: Sequence[Cell], speeds: Speeds, workers: int) -> float:
    """Of all cells, so many at a time; no less than the longest of them."""
    times = [speeds.seconds(cell) for cell in cells]
    return max(sum(times) / workers, *times) if times else 0.0


def in_words(seconds: float) -> str:
    """About how long, as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 72 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"
