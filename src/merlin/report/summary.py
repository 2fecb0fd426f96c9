"""The whole benchmark in one small table: averages and ranks per method and kind of data."""

from collections.abc import Sequence

import numpy as np

from merlin.bench.rows import Row
from merlin.envs.registry import TASKS, VARIANTS
from merlin.evaluation.statistics import average_ranks
from merlin.report import selection, tables
from merlin.report.text_tables import NONE, TextCell, TextTable, heading, plain_table

GRID = "paper"
COLUMNS = ("return", "success", "rank")


def summary(rows: Sequence[Row]) -> TextTable:
    """Average return, success and rank of final policies, over the datasets that all methods have.

    Methods that have fewer than half of the datasets are left out, as in the averages of the large
    tables; the header says how many datasets are averaged.
    """
    same = selection.alike([row for row in selection.select(rows) if row.grid == GRID])
    header, numbers = ["method"], {}
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
            numbers[variant] = dict(
                zip(kept, np.stack([*means, average_ranks(scores["return"])], 1), strict=True)
            )
        size = f", {len(shared)} of {len(TASKS)} tasks"
        header += [f"{heading(variant)}{size}: return", "success", "rank"]
    methods = sorted({m for found in numbers.values() for m in found}, key=selection.method_order)
    lines = [
        [TextCell(m), *(c for v in VARIANTS for c in _cells(m, numbers.get(v, {})))]
        for m in methods
    ]
    return plain_table("summary", "Averages of final policies from states", header, lines)


def _cells(method: str, numbers: dict[str, np.ndarray]) -> list[TextCell]:
    """Three numbers, the best of each column bold."""
    if method not in numbers:
        return [TextCell(NONE)] * len(COLUMNS)
    every = np.stack(list(numbers.values())).round(tables.DIGITS)
    best = every.max(0)
    best[-1] = every[:, -1].min()
    mine = numbers[method].round(tables.DIGITS)
    several = len(every) > 1
    return [
        TextCell(f"{value:.{tables.DIGITS}f}", bold=bool(several and value == top))
        for value, top in zip(mine, best, strict=True)
    ]
