"""How much of the paper's tables and figures was measured.

A cell is one number of a table or one tile of a figure: at least one seed of a method or setting on
a dataset. It is filled if its row may be compared with others (`selection.alike`). Rows whose data
or number of updates differs from that of most methods on the dataset are set aside.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from merlin.bench.grids import HORIZONS, RATIOS
from merlin.bench.rows import Row
from merlin.envs.registry import TASKS, VARIANTS
from merlin.report import paper, selection
from merlin.report.ablations import NO_HORIZON
from merlin.report.selection import method_order
from merlin.report.text_tables import TextTable, plain_table

Cells = dict[str, set[str]]
"""Maps datasets to columns."""

METHODS = tuple(paper.tables()["state_return"]["expert"]["PointReach"])
"""The ten methods of the paper's main table."""
DATASETS = tuple(f"{task} {variant}" for variant in VARIANTS for task in TASKS)
TILES = (*(str(horizon) for horizon in HORIZONS), NO_HORIZON)


@dataclass(frozen=True)
class Coverage:
    """The cells of one table or figure, and those that are missing."""

    title: str
    cells: Cells  # that it has
    missing: Cells  # without the datasets that lack nothing
    aside: int = 0  # missing cells that have rows on other data or after other updates

    @property
    def asked(self) -> int:
        return sum(map(len, self.cells.values()))

    @property
    def there(self) -> int:
        return self.asked - sum(map(len, self.missing.values()))

    def in_words(self) -> str:
        """The missing cells as text; datasets that lack the same cells are named together."""
        alike: dict[tuple[str, ...], list[str]] = {}
        for dataset, columns in self.missing.items():
            whole = columns == self.cells[dataset]
            named = sorted(columns, key=lambda column: (_number(column), *method_order(column)))
            alike.setdefault(("all",) if whole else tuple(named), []).append(dataset)
        return "; ".join(f"{', '.join(lack)} on {_together(of)}" for lack, of in alike.items())


def coverage(rows: Sequence[Row]) -> list[Coverage]:
    """The coverage of every table and figure of the paper, and of our own methods."""
    counted = selection.select(rows)
    same = selection.alike([row for row in counted if row.grid != "timing"])

    def count(title: str, asked: Cells, grid: str, pixels: bool = False) -> Coverage:
        found, seen = (
            _cells([row for row in part if (row.grid, row.pixels) == (grid, pixels)])
            for part in (same, counted)
        )
        missing = {place: columns - found.get(place, set()) for place, columns in asked.items()}
        aside = sum(len(columns & seen.get(place, set())) for place, columns in missing.items())
        return Coverage(title, asked, {p: lack for p, lack in missing.items() if lack}, aside)

    def table(name: str) -> Cells:
        return {
            f"{task} {variant}": set(columns)
            for variant, tasks in paper.tables()[name].items()
            for task, columns in tasks.items()
        }

    def figure(columns: Sequence[str]) -> Cells:
        return {dataset: set(columns) for dataset in DATASETS}

    timed = [row for row in counted if row.grid == "timing"]
    return [
        count("Return and success from states", table("state_return"), "paper"),
        count("Merlin-plus from states", figure(["merlin-plus"]), "paper"),
        count("Merlin-map from states", figure(["merlin-map"]), "paper"),
        count("Return and success from pixels", table("pixel_return"), "paper", True),
        count("Forward and backward", table("forward_vs_backward_return"), "forward-backward"),
        count("GCSL with stitching", table("stitching_return"), "stitching"),
        count("Hindsight ratio", figure(RATIOS), "hindsight"),
        count("Horizon", figure(TILES), "horizon"),
        _timing("Time from states", [row for row in timed if not row.pixels]),
        _timing("Time from pixels", [row for row in timed if row.pixels]),
    ]


def _cells(rows: Sequence[Row]) -> Cells:
    """The cells that rows of one grid fill."""
    found: Cells = {}
    for row in rows:
        found.setdefault(f"{row.task} {row.variant}", set()).update(_columns(row))
    return found


def _columns(row: Row) -> list[str]:
    """The columns that a row fills: its method, or the settings that a figure is about."""
    if row.grid == "hindsight":
        return [f"{float(v):g}" for k, v in row.settings.items() if k == "hindsight_ratio"]
    if row.grid == "horizon":
        told_none = row.settings.get("horizon", "").lower() == "none"
        return [*(row.horizons or {}), *([NO_HORIZON] if told_none else [])]
    method = selection.column(row)
    return [method] if method else []


def _timing(title: str, rows: Sequence[Row]) -> Coverage:
    """The timing cells. Times cover one machine and few tasks, so one row per method suffices."""
    lacking = set(METHODS) - {selection.column(row) for row in rows if row.timing}
    anywhere = "any task"
    return Coverage(title, {anywhere: set(METHODS)}, {anywhere: lacking} if lacking else {})


def as_table(found: Sequence[Coverage]) -> TextTable:
    """One line per table or figure."""
    lines = [
        [one.title, str(one.there), str(one.asked), str(one.aside), one.in_words() or "nothing"]
        for one in found
    ]
    header = ["table or figure", "there", "of", "set aside", "missing"]
    return plain_table("coverage", "Cells that were measured", header, lines, remarks=1)


def _together(datasets: Sequence[str]) -> str:
    """Names of datasets; a task with every kind of data is named once."""
    names = []
    for dataset in datasets:
        task = dataset.rpartition(" ")[0]
        whole = {f"{task} {variant}" for variant in VARIANTS} <= set(datasets)
        names.append(task if whole else dataset)
    return ", ".join(dict.fromkeys(names))


def _number(column: str) -> float:
    """Sort key: columns that are numbers sort as numbers, so that 5 comes before 10."""
    return float(column) if column.replace(".", "").isdecimal() else math.inf
