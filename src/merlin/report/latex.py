"""The tables of scores for a paper; they need the package booktabs."""

from collections.abc import Sequence

from merlin.report.content import Report
from merlin.report.flat import MINUS, NONE, FlatTable, Group, Text, flatten

_SIGNS = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    MINUS: r"$-$",
    NONE: "--",
    "▲": r"$\uparrow$",
    "▼": r"$\downarrow$",
    "=": r"$=$",
    "µ": r"$\mu$",
    "τ": r"$\tau$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}


def render(report: Report) -> str:
    """One `table` environment per table of scores, final and best apart."""
    parts = ["% Made by `merlin report`; needs \\usepackage{booktabs}."]
    parts += [table(part) for whole in report.tables for part in flatten(whole)]
    return "\n\n".join(parts) + "\n"


def table(flat: FlatTable) -> str:
    columns = "l" * flat.labels + "r" * (len(flat.header) - flat.labels)
    lines = [
        r"\begin{table}",
        r"\centering\small",
        rf"\caption{{{escape(flat.title)}}}",
        rf"\label{{tab:{flat.key}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _line([Text(name) for name in flat.header]),
    ]
    for group in flat.groups:
        lines += [r"\midrule", *_group(group, len(flat.header))]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def escape(text: str) -> str:
    """Text in which no sign has a meaning for TeX."""
    return "".join(_SIGNS.get(sign, sign) for sign in " ".join(text.split()))


def _group(group: Group, width: int) -> list[str]:
    lines = []
    if group.name:
        lines.append(rf"\multicolumn{{{width}}}{{l}}{{\emph{{{escape(group.name)}}}}} \\")
    first_summary = len(group.rows) - group.summaries
    for i, row in enumerate(group.rows):
        if group.summaries and i == first_summary:
            lines.append(rf"\cmidrule{{1-{width}}}")
        lines.append(_line(row))
    return lines


def _line(cells: Sequence[Text]) -> str:
    return " & ".join(_cell(cell) for cell in cells) + r" \\"


def _cell(cell: Text) -> str:
    text = escape(cell.text)
    return rf"\textbf{{{text}}}" if cell.bold else text
