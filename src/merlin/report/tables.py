"""Tables of scores: one row per dataset and one column per method, with the paper's numbers.

`final` (the policy after the last update, on fixed episodes) and `best` (the evaluation with the
highest return during training) are separate throughout; no number mixes them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from merlin.bench.rows import Row
from merlin.evaluation.statistics import average_ranks, mean_and_deviation
from merlin.report import paper
from merlin.report.selection import anchor, dataset_order, method_order

PROTOCOLS = ("final", "best")
METRICS = ("return", "success")
DIGITS = 2

Ordered = TypeVar("Ordered", int, str)
Datasets = dict[tuple[str, str], dict[str, list[Row]]]
"""Maps (variant, task), then method, to the rows of its seeds."""


@dataclass(frozen=True)
class Score:
    """Mean over seeds, and the standard deviation if there are several."""

    mean: float
    deviation: float | None = None


@dataclass(frozen=True)
class Cell:
    """One method on one dataset, under both protocols, with the paper's number."""

    final: Score | None = None
    best: Score | None = None
    paper: Score | None = None
    updates: int | None = None  # of training; a summary has none
    data: str | None = None  # fingerprint of what it was trained on
    anchor: str | None = None  # of the rows that it averages
    about: str = ""

    def get(self, protocol: str) -> Score | None:
        return self.final if protocol == "final" else self.best

    def difference(self, protocol: str) -> float | None:
        """Our number minus the paper's, as printed: 0 means equal to the last digit."""
        ours = self.get(protocol)
        if ours is None or self.paper is None:
            return None
        return round(round(ours.mean, DIGITS) - round(self.paper.mean, DIGITS), DIGITS)


@dataclass(frozen=True)
class Line:
    """One dataset, or a summary over several."""

    name: str
    cells: tuple[Cell, ...]
    summary: bool = False
    lowest_wins: bool = False  # ranks

    def winners(self, protocol: str) -> set[int]:
        """Columns with the best mean, as printed; empty if there is nothing to compare."""
        scores = [None if self.on_other_data(c) else c.get(protocol) for c in self.cells]
        means = {i: round(s.mean, DIGITS) for i, s in enumerate(scores) if s is not None}
        if len(means) < 2:
            return set()
        top = (min if self.lowest_wins else max)(means.values())
        return {i for i, mean in means.items() if mean == top}

    @property
    def updates(self) -> int | None:
        """The most frequent number of updates among its cells; the larger one of a tie."""
        return usual(cell.updates for cell in self.cells if cell.updates)

    def on_other_data(self, cell: Cell) -> bool:
        """Whether a cell was trained on different data from most of its line."""
        data = usual(cell.data for cell in self.cells if cell.data)
        return cell.data not in (None, data)

    def unlike(self, cell: Cell) -> str:
        """The mark of a cell whose updates or data differ from the rest of its line."""
        marks = []
        if cell.updates not in (None, self.updates):
            marks.append(f"after {short_number(cell.updates or 0)} updates")
        if self.on_other_data(cell):
            marks.append("on other data")
        return ", ".join(marks)


def usual(values: Iterable[Ordered]) -> Ordered | None:
    """The most frequent value; the highest one of a tie."""
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], value), default=None)


def short_number(value: float) -> str:
    """Thousands as 20k, millions as 2M."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


@dataclass(frozen=True)
class Table:
    """All datasets of one grid, grouped by the kind of data."""

    key: str
    title: str
    metric: str
    methods: tuple[str, ...]
    groups: tuple[tuple[str, tuple[Line, ...]], ...]
    reference: paper.Reference = paper.PAPER


def by_dataset(rows: Sequence[Row]) -> Datasets:
    """Rows with scores, by dataset and method, in the order of the tables."""
    found: Datasets = {}
    for row in sorted((r for r in rows if r.final), key=lambda r: dataset_order(r.dataset)):
        found.setdefault(row.dataset, {}).setdefault(row.method, []).append(row)
    return found


def methods_of(datasets: Datasets) -> tuple[str, ...]:
    return tuple(sorted({m for methods in datasets.values() for m in methods}, key=method_order))


def comparable(datasets: Datasets) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Methods and datasets that can be averaged side by side: every method on every dataset.

    A method with fewer than half of the datasets is excluded, rather than most of the datasets. A
    method has a dataset if it was trained on the same data as most others.
    """
    data = {d: usual(map(fingerprint, methods.values())) for d, methods in datasets.items()}

    def has(method: str, dataset: tuple[str, str]) -> bool:
        rows = datasets[dataset].get(method)
        return rows is not None and fingerprint(rows) == data[dataset]

    covered = {m: [d for d in datasets if has(m, d)] for m in methods_of(datasets)}
    kept = tuple(m for m, found in covered.items() if 2 * len(found) >= len(datasets))
    return kept, [d for d in datasets if all(has(m, d) for m in kept)]


def fingerprint(rows: Sequence[Row]) -> str:
    """Fingerprint of the rows' training data; empty if unknown."""
    return rows[0].data.get("fingerprint", "")


def scores(rows: Sequence[Row], protocol: str, metric: str) -> np.ndarray:
    """One number per seed; empty if a row lacks that protocol."""
    found = [getattr(row, protocol) for row in rows]
    return np.array([score[metric] for score in found if score is not None], float)


def score(rows: Sequence[Row], protocol: str, metric: str) -> Score | None:
    values = scores(rows, protocol, metric)
    return Score(*mean_and_deviation(values)) if len(values) else None


def build(rows: Sequence[Row], *, grid: str, pixels: bool, metric: str) -> Table:
    """The table of one grid and metric, in the paper's layout."""
    datasets = by_dataset(rows)
    methods = methods_of(datasets)
    numbers = paper.table(grid, pixels=pixels, metric=metric)
    groups = []
    for variant in dict.fromkeys(variant for variant, _ in datasets):
        own = {dataset: cells for dataset, cells in datasets.items() if dataset[0] == variant}
        lines = [
            Line(task, tuple(_cell(cells.get(m, []), m, metric, numbers) for m in methods))
            for (_, task), cells in own.items()
        ]
        groups.append((variant, (*lines, *_summaries(lines, own, methods))))
    kind = {"return": "Discounted return", "success": "Success rate"}[metric]
    source = "pixels" if pixels else "states"
    return Table(
        key=f"{grid}-{source}-{metric}",
        title=f"{kind} from {source}",
        metric=metric,
        methods=methods,
        groups=tuple(groups),
        reference=paper.reference(grid),
    )


def _cell(rows: Sequence[Row], method: str, metric: str, numbers: paper.Numbers) -> Cell:
    if not rows:
        return Cell()
    first = rows[0]
    known = numbers.get(first.variant, {}).get(first.task, {}).get(first.algo)
    seeds = f"{len(rows)} seeds" if len(rows) > 1 else "1 seed"
    return Cell(
        final=score(rows, "final", metric),
        best=score(rows, "best", metric),
        paper=Score(*known) if known else None,
        updates=first.all_updates,
        data=fingerprint(rows) or None,
        anchor=anchor(first),
        about=f"{method} on {first.task} {first.variant}: {seeds}, {first.all_updates:,} updates",
    )


def _summaries(lines: Sequence[Line], own: Datasets, methods: tuple[str, ...]) -> list[Line]:
    """Average and average rank over the datasets shared by all compared methods."""
    kept, shared = comparable(own)
    if len(shared) < 2:
        return []
    tasks = {task for _, task in shared}
    columns = [methods.index(method) for method in kept]
    chosen = [[line.cells[c] for c in columns] for line in lines if line.name in tasks]
    some = "" if len(shared) == len(own) else f", {len(shared)} of {len(own)} datasets"

    def line(name: str, summarise: Callable[[np.ndarray], np.ndarray], **kind: bool) -> Line:
        def across(get: Callable[[Cell], Score | None]) -> dict[int, Score]:
            """Keyed by column; empty if any number is missing."""
            means = [[score.mean for c in cells if (score := get(c))] for cells in chosen]
            if any(len(row) < len(columns) for row in means):
                return {}
            summaries = map(float, summarise(np.array(means).T))
            return dict(zip(columns, map(Score, summaries), strict=True))

        final, best = across(lambda c: c.final), across(lambda c: c.best)
        known = across(lambda c: c.paper)
        cells = (Cell(final.get(i), best.get(i), known.get(i)) for i in range(len(methods)))
        return Line(name + some, tuple(cells), summary=True, **kind)

    found = [line("Average", lambda means: means.mean(1))]
    if len(kept) > 1:
        found.append(line("Average rank", average_ranks, lowest_wins=True))
    return found
