"""Estimate how long a grid will take, from measured speeds."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from merlin.augment.base import MOST_TRAJECTORIES
from merlin.bench.grids import Cell
from merlin.bench.rows import Row
from merlin.envs.registry import Task, find
from merlin.learners.registry import preset_names, split_name

START_SECONDS = 8.0
"""Overhead of a cell: opening the data, compiling, opening environments."""


AUGMENTED_EPISODES = 2_000
"""Number of episodes on which the shipped times of augmentations were measured."""


class Speeds:
    """Seconds per cell on one core; None if a required speed was never measured.

    Shipped measurements (from `benchmarks/speeds.py`) are overridden by those in the available
    rows.
    """

    def __init__(self, rows: Iterable[Row] = ()):
        self._shipped = json.loads((files("merlin.bench") / "speeds.json").read_text())
        measured: dict[tuple, list[float]] = {}
        for row in rows:
            cost = (row.timing or {}).get("update_ms")
            if row.done and cost is not None and not row.asked.get("timed"):
                key = _key(row.algo, row.preset, row.pixels, row.settings)
                measured.setdefault(key, []).append(cost)
        self._measured = {key: float(np.median(values)) for key, values in measured.items()}

    def seconds(self, cell: Cell) -> float | None:
        """Estimated seconds for one cell."""
        task = find(cell.task)
        # Encoding an image takes little time compared with rendering it.
        action = self._nearest("action_ms", task).get(_speed_name(cell.algo, cell.preset))
        update = self._update(cell, task)
        augmenting = self._augmenting(cell)
        if action is None or update is None or augmenting is None:
            return None
        if cell.timed:
            rounds = 4 * (cell.updates * update + 100 * action) / 1000.0
            return 4 * START_SECONDS + augmenting + rounds
        looks = -(-cell.updates // cell.eval_every)
        episodes = looks * cell.eval_episodes
        episodes += (1 + len(cell.horizons)) * cell.final_episodes
        known = self._shipped["episode_seconds"]
        each = known.get(task.name, max(known.values())) + task.episode_steps * action / 1000.0
        return START_SECONDS + augmenting + cell.updates * update / 1000.0 + episodes * each

    def _augmenting(self, cell: Cell) -> float | None:
        """Seconds to generate trajectories, which grow with the episodes, within limits."""
        augmentation = split_name(cell.algo)[1]
        if augmentation is None:
            return 0.0
        each = self._shipped["augment_seconds"].get(augmentation)
        size = min(cell.data_episodes, MOST_TRAJECTORIES) / AUGMENTED_EPISODES
        return None if each is None else each * max(size, 1.0)

    def _update(self, cell: Cell, task: Task) -> float | None:
        """Milliseconds per update; for images, only if measured at the same image size."""
        key = _key(cell.algo, cell.preset, cell.pixels, dict(cell.settings))
        if key in self._measured:
            return self._measured[key]
        if not cell.pixels:
            return self._nearest("update_ms", task).get(_speed_name(cell.algo, cell.preset))
        if "latent_updates" in dict(cell.settings) or cell.preset:
            return None
        known = self._shipped["image_update_ms"]
        alike = [name for name in known if find(name).image_size == task.image_size]
        own = task.name if task.name in alike else next(iter(alike), "")
        return known.get(own, {}).get(cell.algo)

    def _nearest(self, speed: str, task: Task) -> dict[str, float]:
        """The speeds of the measured task with the most similar observation size."""
        known = self._shipped[speed]
        sizes = {name: find(name).observation_dim for name in known}
        return known[min(sizes, key=lambda name: abs(math.log(sizes[name] / task.observation_dim)))]


def _key(algo: str, preset: str | None, pixels: bool, settings: Mapping[str, str]) -> tuple:
    """Rows with the same key have the same speed."""
    return algo, preset, pixels, "latent_updates" in settings


def _speed_name(algo: str, preset: str | None) -> str:
    """The name of a speed: the learner, since augmentations do not affect it, and its preset."""
    learner = split_name(algo)[0]
    return f"{learner}/{preset}" if preset in preset_names(learner) else learner


@dataclass(frozen=True)
class Total:
    """The estimate for several cells."""

    seconds: float
    unknown: tuple[Cell, ...]  # not in `seconds`

    def __str__(self) -> str:
        if not self.unknown:
            return f"about {in_words(self.seconds)}"
        methods = sorted({cell.algo for cell in self.unknown})
        cells = "1 cell" if len(self.unknown) == 1 else f"{len(self.unknown)} cells"
        rest = f"{cells} of {', '.join(methods)} for an unknown time"
        return f"about {in_words(self.seconds)}, and {rest}" if self.seconds else rest


def total(cells: Sequence[Cell], speeds: Speeds, workers: int) -> Total:
    """The estimate for all cells in parallel; at least that of the longest cell."""
    times = {cell: speeds.seconds(cell) for cell in cells}
    known = [times[cell] or 0.0 for cell in cells]
    unknown = tuple(cell for cell in cells if times[cell] is None)
    return Total(max(sum(known) / workers, *known) if known else 0.0, unknown)


def in_words(seconds: float | None) -> str:
    """An approximate duration in words."""
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 72 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"
