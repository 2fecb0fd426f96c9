"""The whole benchmark in one small table: averages and ranks per method and kind of data."""

from collections.abc import Sequence

import numpy as np

from merlin.bench.rows import Row
from merlin.envs.registry import VARIANTS
from merlin.evaluation.statistics import average_ranks
from merlin.report import selection, tables
from merlin.report.text_tables import NONE, TextCell, TextTable, plain_table

GRID = "paper"
COLUMNS = ("return", "success", "rank")


def summary(rows: Sequence[Row]) -> TextTable:
    """Average return, success and rank of final policies, over the datasets that all methods have.

    Methods that have fewer than half of the datasets are left out, as in the averages of the large
    tables; the lines say how many datasets are averaged.
    """
    same = selection.alike([row for row in selection.select(rows) if row.grid == GRID])
    found = {}
    for variant in VARIANTS:
        own = tables.by_dataset([r for r in same if r.variant == variant and not r.pixels])
        kept, shared = tables.comparable(own)
        scores = {
            metric: np.array(
                [[tables.scores(own[d][m], "final", metric).mean() for d in shared] for m in kept]
            )
            for metric in tables.METRICS
        }
        if shared:
            means = [scores["return"].mean(1), scores["success"].mean(1)]
            numbers = np.stack([*means, average_ranks(scores["return"])], 1)
            found[variant, len(shared)] = dict(zip(kept, numbers, strict=True))
    methods = sorted({m for one in found.values() for m in one}, key=selection.method_order)
    lines: list[list[str | TextCell]] = [
        [f"{variant.capitalize()} ({size}): {name}" if not i else name, *cells]
        for (variant, size), numbers in found.items()
        for i, (name, cells) in enumerate(zip(COLUMNS, _cells(methods, numbers), strict=True))
    ]
    return plain_table("summary", "Averages of final policies from states", ["", *methods], lines)


def _cells(methods: Sequence[str], numbers: dict[str, np.ndarray]) -> list[list[TextCell]]:
    """One line for each statistic, with the best value in bold."""
    every = np.stack(list(numbers.values())).round(tables.DIGITS)
    best = every.max(0)
    best[-1] = every[:, -1].min()

    def cell(method: str, column: int) -> TextCell:
        if method not in numbers:
            return TextCell(NONE)
        value = numbers[method].round(tables.DIGITS)[column]
        bold = len(every) > 1 and value == best[column]
        return TextCell(f"{value:.{tables.DIGITS}f}", bold=bool(bold))

    return [[cell(method, column) for method in methods] for column in range(len(COLUMNS))]
