"""Tables as plain text in cells, the common form for HTML, Markdown and LaTeX."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from merlin.evaluation.statistics import Estimate
from merlin.report.tables import DIGITS, PROTOCOLS, Cell, Line, Score, Table

NONE = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
WIDE = 2
"""Up to this many methods, each has separate columns for final, best and published scores."""


@dataclass(frozen=True)
class TextCell:
    """The content of a cell."""

    text: str
    bold: bool = False
    code: bool = False


@dataclass(frozen=True)
class RowGroup:
    """Rows under a common name, or without one."""

    rows: tuple[tuple[TextCell, ...], ...]
    name: str | None = None
    anchor: str | None = None
    summaries: int = 0  # number of rows at the end that summarise the others


@dataclass(frozen=True)
class TextTable:
    """A table of numbers; the first `labels` and the last `remarks` columns are text."""

    key: str
    title: str
    header: tuple[str, ...]
    groups: tuple[RowGroup, ...]
    labels: int = 1
    remarks: int = 0
    protocol: str | None = None
    collapsed: bool = False

    @property
    def words(self) -> tuple[bool, ...]:
        """Which columns are text."""
        count = len(self.header)
        return tuple(n < self.labels or n >= count - self.remarks for n in range(count))


def plain_table(
    key: str,
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str | TextCell]],
    *,
    labels: int = 1,
    remarks: int = 0,
    protocol: str | None = None,
    collapsed: bool = False,
) -> TextTable:
    """A table without groups, from plain strings."""
    texts = tuple(tuple(c if isinstance(c, TextCell) else TextCell(c) for c in row) for row in rows)
    group = (RowGroup(texts),)
    return TextTable(key, title, tuple(header), group, labels, remarks, protocol, collapsed)


def number(score: Score | None) -> str:
    """Mean and standard deviation over seeds; only the mean for one seed and for summaries."""
    if score is None:
        return NONE
    text = f"{score.mean:.{DIGITS}f}"
    return text if score.deviation is None else f"{text} ± {score.deviation:.{DIGITS}f}"


def arrow(difference: float | None) -> str:
    """The direction in which our number differs from the paper's."""
    return "" if difference is None else "▲" if difference > 0 else "▼" if difference < 0 else "="


def mark(difference: float | None) -> str:
    """The difference from the paper's number, with sign and arrow."""
    if difference is None:
        return ""
    signed = f"{difference:+.{DIGITS}f}".replace("-", MINUS) if difference else f"{0:.{DIGITS}f}"
    return f"{arrow(difference)} {signed}"


def estimate(found: Estimate) -> str:
    text = f"{found.value:.3f}"
    return text + (" [{:.3f}, {:.3f}]".format(*found.interval) if found.interval else "")


def heading(variant: str) -> str:
    return f"{variant.capitalize()} data"


def as_text(table: Table) -> list[TextTable]:
    """Few methods: final, best and paper side by side. Many: one table for each protocol."""
    if len(table.methods) <= WIDE:
        header = ["task"]
        for method in table.methods:
            prefix = f"{method} " if len(table.methods) > 1 else ""
            header += [f"{prefix}final", f"{prefix}best", f"{prefix}{table.reference.label}"]
        groups = _groups(table, _wide)
        return [TextTable(table.key, table.title, tuple(header), groups)]
    return [
        TextTable(
            key=f"{table.key}-{protocol}",
            title=f"{table.title}, {protocol} (in brackets: {table.reference.words})",
            header=("task", *table.methods),
            groups=_groups(table, partial(_narrow, protocol=protocol)),
            protocol=protocol,
        )
        for protocol in PROTOCOLS
    ]


def _groups(table: Table, cells: Callable[[Line], list[TextCell]]) -> tuple[RowGroup, ...]:
    return tuple(
        RowGroup(
            rows=tuple((TextCell(line.name), *cells(line)) for line in lines),
            name=heading(variant),
            summaries=sum(line.summary for line in lines),
        )
        for variant, lines in table.groups
    )


def _wide(line: Line) -> list[TextCell]:
    found = []
    for i, cell in enumerate(line.cells):
        for protocol in PROTOCOLS:
            parts = number(cell.get(protocol)), mark(cell.difference(protocol))
            text = " ".join(filter(None, (*parts, line.unlike(cell))))
            found.append(TextCell(text, bold=i in line.winners(protocol)))
        found.append(TextCell(number(cell.paper)))
    return found


def _narrow(line: Line, protocol: str) -> list[TextCell]:
    def text(cell: Cell) -> str:
        parts = [number(cell.get(protocol))]
        if cell.paper is not None and cell.get(protocol) is not None:
            parts.append(f"({cell.paper.mean:.{DIGITS}f} {arrow(cell.difference(protocol))})")
        return " ".join(filter(None, (*parts, line.unlike(cell))))

    winners = line.winners(protocol)
    return [TextCell(text(cell), bold=i in winners) for i, cell in enumerate(line.cells)]


def estimates(
    key: str, title: str, columns: Mapping[str, Mapping[str, Estimate]], protocol: str
) -> TextTable:
    """One row per method, one column per statistic."""
    methods = list(dict.fromkeys(m for column in columns.values() for m in column))
    rows = [
        [m, *(estimate(column[m]) if m in column else NONE for column in columns.values())]
        for m in methods
    ]
    return plain_table(key, title, ["method", *columns], rows, protocol=protocol)
