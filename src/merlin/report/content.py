"""What a report says, in order; `html` and `markdown` only say how it looks."""

from collections.abc import Sequence
from dataclasses import dataclass

from merlin.report import ablations, aggregates, charts, flat, rows, tables
from merlin.report.flat import FlatTable
from merlin.report.provenance import provenance
from merlin.report.rows import Row
from merlin.report.svg import Figure
from merlin.report.tables import METRICS, PROTOCOLS, Table

SPECIAL = {"hindsight", "horizon", "timing"}
"""Grids that are drawn in their own way; every other one has tables of scores."""
TITLES = {
    "paper": "Main results",
    "forward-backward": "Forward and backward augmentation",
    "stitching": "Trajectory stitching",
}
FIRST = ("paper", "smoke")
"""The grid that curves and aggregates are about: the first of these that is there."""

Block = str | Table | FlatTable | Figure


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it; a plain string is a paragraph."""

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

    @property
    def figures(self) -> list[Figure]:
        return [b for s in self.sections for b in s.blocks if isinstance(b, Figure)]

    @property
    def tables(self) -> list[Table]:
        return [b for s in self.sections for b in s.blocks if isinstance(b, Table)]


def build(everything: Sequence[Row]) -> Report:
    """All sections that the rows have something to say about."""
    counted = rows.select(everything)
    scored = [row for row in counted if row.grid not in SPECIAL and row.final]
    main = next((g for g in FIRST if any(r.grid == g for r in scored)), None)
    main = main or (scored[0].grid if scored else None)
    sections: list[Section | None] = []
    for grid in sorted({row.grid for row in scored}, key=lambda g: (g != main, g)):
        for pixels in (False, True):
            part = [r for r in scored if r.grid == grid and r.pixels == pixels]
            if part:
                sections.append(_scores(part, grid, pixels))
                if grid == main:
                    sections += [_aggregates(part, pixels), _curves(part, pixels)]
    sections.append(_ablations(counted))
    sections.append(_timing(counted))
    sections.append(_failures(everything))
    sections.append(Section("provenance", "Provenance", tuple(provenance(everything, counted))))
    found = tuple(section for section in sections if section)
    headline = [t for s in found for t in s.blocks if isinstance(t, Table)]
    states = any(r.grid == main and not r.pixels for r in scored)
    shown = f"{main}-{'states' if states else 'pixels'}"
    return Report(
        title=_title(counted),
        facts=tuple(_facts(everything, counted)),
        sections=found,
        main=tuple(t for t in headline if t.key.startswith(shown)),
    )


def _scores(part: Sequence[Row], grid: str, pixels: bool) -> Section:
    title = TITLES.get(grid, f"Grid {grid}") + (" from pixels" if pixels else "")
    blocks: list[Block] = [
        tables.build(part, grid=grid, pixels=pixels, metric=metric) for metric in METRICS
    ]
    blocks += _augmentation(part, grid)
    key = f"scores-{grid}" + "-pixels" * pixels
    return Section(key, title, tuple(blocks))


def _augmentation(part: Sequence[Row], grid: str) -> list[Block]:
    """What augmentation made of the data, in its own numbers."""
    made = [row for row in part if row.augmentation]
    names = dict.fromkeys(name for row in made for name in row.augmentation or {})
    if not made:
        return []

    def value(row: Row, name: str) -> str:
        found = (row.augmentation or {}).get(name)
        return f"{found:,.4g}" if isinstance(found, int | float) else str(found or flat.NONE)

    lines = [
        [f"{row.task} {row.variant}", row.method, str(row.seed), *(value(row, n) for n in names)]
        for row in made
    ]
    header = ["dataset", "method", "seed", *(name.replace("_", " ") for name in names)]
    title = "What augmentation made"
    key = f"{grid}-augmentation"
    return [flat.simple(key, title, header, lines, labels=2, collapsed=True)]


def _aggregates(part: Sequence[Row], pixels: bool) -> Section | None:
    blocks: list[Block] = []
    for protocol in PROTOCOLS:
        found = aggregates.aggregate(part, protocol, source="pixels" if pixels else "states")
        if found is None or found.datasets < 2:
            continue
        if not blocks:
            left_out = f" Left out, with too few datasets: {', '.join(found.left_out)}."
            blocks.append(
                f"Over {found.datasets} datasets and {found.runs} runs. Returns are divided by "
                "31.79, the highest possible one."
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
        blocks.append(flat.estimates(key, title, iqm, protocol))
    title = "All datasets at once" + (", from pixels" if pixels else "")
    return Section(f"aggregates{'-pixels' * pixels}", title, tuple(blocks)) if blocks else None


_ONE_SEED = " There is one seed per dataset, so there are no intervals."


def _curves(part: Sequence[Row], pixels: bool) -> Section | None:
    source = "pixels" if pixels else "states"
    found = aggregates.curves(part, "return")
    if not found:
        return None
    title = "Learning curves" + (" from pixels" if pixels else "")
    figure = charts.learning_curves(found, "return", source=source)
    return Section(f"curves-{source}", title, (figure,))


def _ablations(counted: Sequence[Row]) -> Section | None:
    blocks: list[Block] = []
    for grid, build_map in (("hindsight", ablations.hindsight), ("horizon", ablations.horizon)):
        found = build_map([row for row in counted if row.grid == grid])
        if found:
            blocks.append(charts.heat_map(found))
            lines = [
                [name, *(flat.NONE if v != v else f"{v:.2f}" for v in values)]
                for name, values in zip(found.names, found.values, strict=True)
            ]
            title = f"Final return by {found.title.lower()}"
            header = ["dataset", *found.columns]
            blocks.append(flat.simple(f"{grid}-numbers", title, header, lines, collapsed=True))
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
                [m, *(f"{p.costs[m]:.3g}" if m in p.costs else flat.NONE for p in found)]
                for m in methods
            ]
            header = ["method", *(f"{p.name}, {p.unit}" for p in found)]
            title, key = f"Time from {source}", f"timing-{source}"
            blocks.append(flat.simple(key, title, header, lines, collapsed=True))
    return Section("timing", "Time", tuple(blocks)) if blocks else None


def _failures(everything: Sequence[Row]) -> Section | None:
    failed = rows.failures(everything)
    if not failed:
        return None
    lines: list[list[str | flat.Text]] = [
        [row.cell, row.error or "no reason was recorded", flat.Text(row.command, code=True)]
        for row in failed
    ]
    table = flat.simple(
        "failed-cells", "Cells that failed", ["cell", "error", "command"], lines, labels=3
    )
    return Section("failures", "Failed cells", ("They count in no table.", table))


def _title(counted: Sequence[Row]) -> str:
    methods, tasks = ({getattr(row, name) for row in counted} for name in ("algo", "task"))
    who = f"{len(methods)} methods" if len(methods) > 1 else "".join(methods) or "Benchmark"
    where = f"{len(tasks)} tasks" if len(tasks) > 1 else "".join(tasks)
    return f"{who} on {where}" if where else who


def _facts(everything: Sequence[Row], counted: Sequence[Row]) -> list[tuple[str, str]]:
    """What was run, in a few words."""
    scored = [row for row in counted if row.final]

    def span(values: Sequence[int]) -> str:
        low, high = min(values), max(values)
        return f"{low:,}" if low == high else f"{low:,} to {high:,}"

    methods = sorted({row.algo for row in counted}, key=rows.method_order)
    tasks = sorted({row.task for row in counted}, key=lambda task: rows.dataset_order(("", task)))
    facts = [
        ("Grids", ", ".join(sorted({row.grid for row in everything}))),
        ("Methods", ", ".join(methods) or flat.NONE),
        ("Tasks", ", ".join(tasks) or flat.NONE),
    ]
    if counted:
        seeds: dict[str, set[int]] = {}
        for row in counted:
            seeds.setdefault(row.anchor, set()).add(row.seed)
        facts.append(("Seeds per dataset", span([len(found) for found in seeds.values()])))
        facts.append(("Updates", _updates(scored or counted)))
    for protocol in PROTOCOLS:
        scores = [getattr(row, protocol) for row in scored]
        episodes = [s["episodes"] for s in scores if s and s.get("episodes")]
        if episodes:
            facts.append((f"Episodes, {protocol}", span(episodes)))
    failed = len(rows.failures(everything))
    facts.append(("Cells", f"{len(counted)} done, {failed} failed"))
    return facts


def _updates(scored: Sequence[Row]) -> str:
    """After how many updates policies were scored, and on which tasks after others."""
    tasks: dict[int, set[str]] = {}
    for row in scored:
        tasks.setdefault(row.updates, set()).add(row.task)
    usual, *others = sorted(tasks, key=lambda updates: (-len(tasks[updates]), updates))
    named = [f"on {' and '.join(sorted(tasks[updates]))} {updates:,}" for updates in others]
    return "; ".join([f"{usual:,}", *named])
