"""The contents of a report, in order; `render` defines how it looks."""

from collections.abc import Sequence
from dataclasses import dataclass

from merlin.bench.rows import Row
from merlin.report import ablations, aggregates, charts, goals, selection, tables, text_tables
from merlin.report.figures import Figure
from merlin.report.provenance import provenance
from merlin.report.tables import METRICS, PROTOCOLS, Table
from merlin.report.text_tables import NONE, TextCell, TextTable

SPECIAL = {"hindsight", "horizon", "timing"}
"""Grids with figures of their own; all others have tables of scores."""
TITLES = {
    "paper": "Main results",
    "forward-backward": "Forward and backward augmentation",
    "stitching": "Trajectory stitching",
    "ogbench": "OGBench",
}
FIRST = ("paper", "smoke")
"""The grid shown in curves and aggregates: the first of these that is present."""

Block = str | Table | TextTable | Figure


@dataclass(frozen=True)
class Section:
    """A heading and its blocks; a plain string is a paragraph."""

    key: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Report:
    """Everything that a page shows."""

    title: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    main: tuple[Table, ...]  # what a README shows
    updates: str  # of what it shows

    @property
    def figures(self) -> list[Figure]:
        return [b for s in self.sections for b in s.blocks if isinstance(b, Figure)]

    @property
    def tables(self) -> list[Table]:
        return [b for s in self.sections for b in s.blocks if isinstance(b, Table)]


def build(everything: Sequence[Row]) -> Report:
    """Build all sections for which there are rows."""
    counted = selection.select(everything)
    scored = [row for row in counted if row.grid not in SPECIAL and row.final]
    grids = [row.grid for row in scored]
    main = next((grid for grid in (*FIRST, *grids) if grid in grids), None)
    parts: dict[tuple[str, bool], list[Row]] = {}
    for row in sorted(scored, key=lambda row: (row.grid != main, row.grid, row.pixels)):
        parts.setdefault((row.grid, row.pixels), []).append(row)
    sections: list[Section | None] = []
    for (grid, pixels), part in parts.items():
        sections.append(_scores(part, grid, pixels))
        if grid == main:
            sections += [_aggregates(part, pixels), _curves(part, pixels)]
    sections += [_ablations(counted), _timing(counted), _failures(everything)]
    sections.append(Section("provenance", "Provenance", tuple(provenance(everything, counted))))
    found = tuple(section for section in sections if section)
    shown = next(iter(parts.values()), [])  # of the main grid, from states if there are any
    return Report(
        title=_title(counted),
        facts=tuple(_facts(everything, counted)),
        sections=found,
        main=tuple(block for block in found[0].blocks if shown and isinstance(block, Table)),
        updates=_updates(shown) if shown else NONE,
    )


def _scores(part: Sequence[Row], grid: str, pixels: bool) -> Section:
    title = TITLES.get(grid, f"Grid {grid}") + (" from pixels" if pixels else "")
    metrics = ("success",) if grid == "ogbench" else METRICS
    blocks: list[Block] = [goals.ABOUT] if grid == "ogbench" else []
    blocks += [tables.build(part, grid=grid, pixels=pixels, metric=metric) for metric in metrics]
    blocks += goals.per_goal(part, grid)
    blocks += goals.sooner(part) if grid == "ogbench" else []
    blocks += _augmentation(part, grid)
    key = f"scores-{grid}" + "-pixels" * pixels
    return Section(key, title, tuple(blocks))


def _augmentation(part: Sequence[Row], grid: str) -> list[Block]:
    """Statistics about the augmented data."""
    made = [row for row in part if row.augmentation]
    names = dict.fromkeys(name for row in made for name in row.augmentation or {})
    if not made:
        return []

    def value(row: Row, name: str) -> str:
        found = (row.augmentation or {}).get(name)
        return f"{found:,.4g}" if isinstance(found, int | float) else str(found or NONE)

    lines = [
        [f"{row.task} {row.variant}", row.method, str(row.seed), *(value(row, n) for n in names)]
        for row in made
    ]
    header = ["dataset", "method", "seed", *(name.replace("_", " ") for name in names)]
    title = "What augmentation made"
    key = f"{grid}-augmentation"
    return [text_tables.plain_table(key, title, header, lines, labels=2, collapsed=True)]


def _aggregates(part: Sequence[Row], pixels: bool) -> Section | None:
    blocks: list[Block] = []
    for protocol in PROTOCOLS:
        found = aggregates.aggregate(part, protocol, source="pixels" if pixels else "states")
        if found is None or found.datasets < 2:
            continue
        if not blocks:
            left_out = f" Left out, with too few datasets: {', '.join(found.left_out)}."
            blocks.append(
                f"Over {found.datasets} datasets and {found.runs} runs. Returns are divided by the "
                f"highest possible one, {' or '.join(f'{r:.2f}' for r in found.highest)}"
                + (" by the length of a task's episodes." if len(found.highest) > 1 else ".")
                + (left_out if found.left_out else "")
                + ("" if any(e.interval for e in found.returns.values()) else _ONE_SEED)
            )
        iqm: dict = {"normalised return": found.returns, "success": found.success}
        if found.reference:
            iqm[f"P(better than {found.reference})"] = found.improvement
        blocks.append(charts.aggregates(found))
        blocks.append(charts.profiles(found))
        key = f"aggregates{'-pixels' * pixels}-{protocol}"
        title = f"Interquartile means with 95 % intervals, {protocol}"
        blocks.append(text_tables.estimates(key, title, iqm, protocol))
    title = "All datasets at once" + (", from pixels" if pixels else "")
    return Section(f"aggregates{'-pixels' * pixels}", title, tuple(blocks)) if blocks else None


_ONE_SEED = " There is one seed per dataset, so there are no intervals."


def _curves(part: Sequence[Row], pixels: bool) -> Section | None:
    source = "pixels" if pixels else "states"
    metric = "success" if all(row.goals for row in part) else "return"
    found = aggregates.curves(part, metric)
    if not found:
        return None
    title = "Learning curves" + (" from pixels" if pixels else "")
    figure = charts.learning_curves(found, metric, source=source)
    return Section(f"curves-{source}", title, (figure,))


def _ablations(counted: Sequence[Row]) -> Section | None:
    blocks: list[Block] = []
    for grid, build_map in (("hindsight", ablations.hindsight), ("horizon", ablations.horizon)):
        found = build_map([row for row in counted if row.grid == grid])
        if found:
            blocks.append(charts.heat_map(found))
            lines = [
                [name, *(NONE if v != v else f"{v:.2f}" for v in values)]
                for name, values in zip(found.names, found.values, strict=True)
            ]
            title = f"Final return by {found.title.lower()}"
            header = ["dataset", *found.columns]
            blocks.append(
                text_tables.plain_table(f"{grid}-numbers", title, header, lines, collapsed=True)
            )
    return Section("ablations", "Ablations", tuple(blocks)) if blocks else None


def _timing(counted: Sequence[Row]) -> Section | None:
    blocks: list[Block] = []
    for pixels in (False, True):
        part = [row for row in counted if row.grid == "timing" and row.pixels == pixels]
        found = ablations.timing(part)
        if found:
            source = "pixels" if pixels else "states"
            blocks.append(charts.timing(found, source=source))
            methods = dict.fromkeys(m for part in found for m in part.costs)
            lines = [
                [m, *(f"{p.costs[m]:.3g}" if m in p.costs else NONE for p in found)]
                for m in methods
            ]
            header = ["method", *(f"{p.name}, {p.unit}" for p in found)]
            title, key = f"Time from {source}", f"timing-{source}"
            blocks.append(text_tables.plain_table(key, title, header, lines, collapsed=True))
    return Section("timing", "Time", tuple(blocks)) if blocks else None


def _failures(everything: Sequence[Row]) -> Section | None:
    failed = selection.failures(everything)
    if not failed:
        return None
    lines = [
        (row.cell, row.error or "no reason was recorded", TextCell(row.command, code=True))
        for row in failed
    ]
    header = ("cell", "error", "command")
    table = text_tables.plain_table("failed-cells", "Cells that failed", header, lines, labels=3)
    return Section("failures", "Failed cells", ("They count in no table.", table))


def _title(counted: Sequence[Row]) -> str:
    methods, tasks = ({getattr(row, name) for row in counted} for name in ("algo", "task"))
    who = f"{len(methods)} methods" if len(methods) > 1 else "".join(methods) or "Benchmark"
    where = f"{len(tasks)} tasks" if len(tasks) > 1 else "".join(tasks)
    return f"{who} on {where}" if where else who


def _facts(everything: Sequence[Row], counted: Sequence[Row]) -> list[tuple[str, str]]:
    """A short summary of what was run."""
    scored = [row for row in counted if row.final]

    def span(values: Sequence[int]) -> str:
        low, high = min(values), max(values)
        return f"{low:,}" if low == high else f"{low:,} to {high:,}"

    methods = sorted({row.algo for row in counted}, key=selection.method_order)
    tasks = sorted(
        {row.task for row in counted}, key=lambda task: selection.dataset_order(("", task))
    )
    facts = [
        ("Grids", ", ".join(sorted({row.grid for row in everything}))),
        ("Methods", ", ".join(methods) or NONE),
        ("Tasks", ", ".join(dict.fromkeys(tasks)) or NONE),
    ]
    if counted:
        seeds: dict[str, set[int]] = {}
        for row in counted:
            seeds.setdefault(selection.anchor(row), set()).add(row.seed)
        facts.append(("Seeds per dataset", span([len(found) for found in seeds.values()])))
        facts += _all_updates(scored or counted)
    for protocol in PROTOCOLS:
        scores = [getattr(row, protocol) for row in scored]
        episodes = [s["episodes"] for s in scores if s and s.get("episodes")]
        if episodes:
            facts.append((f"Episodes, {protocol}", span(episodes)))
    failed = len(selection.failures(everything))
    facts.append(("Cells", f"{len(counted)} done, {failed} failed"))
    return facts


def _all_updates(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The updates of all grids, listed separately if they differ."""
    parts: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.grid not in FIRST):
        parts.setdefault(row.grid + " from pixels" * row.pixels, []).append(row)
    said: dict[str, list[str]] = {}
    for name, part in parts.items():
        said.setdefault(_updates(part), []).append(name)
    if len(said) == 1:
        return [("Updates", text) for text in said]
    return [(f"Updates, {_listed(names)}", text) for text, names in said.items()]


def _updates(part: Sequence[Row]) -> str:
    """The number of updates behind the policies of one table, with exceptions by task."""
    cells = {(row.dataset, row.method): row.all_updates for row in part}
    most = {
        dataset: tables.usual(n for (where, _), n in cells.items() if where == dataset) or 0
        for dataset, _ in cells
    }
    by_task: dict[str, set[int]] = {}
    for (_, task), updates in most.items():
        by_task.setdefault(task, set()).add(updates)
    names: dict[int, set[str]] = {}
    for (variant, task), updates in most.items():
        name = task if len(by_task[task]) == 1 else f"{task} {variant}"
        names.setdefault(updates, set()).add(name)
    first, *others = sorted(names, key=lambda updates: (-len(names[updates]), updates))
    said = [f"on {_listed(sorted(names[updates]))} {updates:,}" for updates in others]
    text = "; ".join([f"{first:,}", *said])
    marked = any(updates != most[dataset] for (dataset, _), updates in cells.items())
    return f"{text}; a cell with another number says so" if marked else text


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
