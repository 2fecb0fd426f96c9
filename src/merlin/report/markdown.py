"""The report as Markdown, and the part of it that a README shows."""

from collections.abc import Sequence

from merlin.errors import MerlinError
from merlin.report.content import Block, Report
from merlin.report.flat import FlatTable, Text, flatten
from merlin.report.svg import Figure
from merlin.report.tables import Table

START, END = "<!-- results -->", "<!-- /results -->"

PROTOCOLS = (
    "`final` is the policy after the last update, on fixed seeded episodes; `best` is the "
    "evaluation with the highest return during training. The paper does not say which it reports; "
    "its numbers fit a best of many evaluations. ± is the deviation over "
    "seeds; ▲ and ▼ say whether ours is above or below the paper."
)


def render(report: Report) -> str:
    """The same tables and figures as the page, in the same order."""
    parts = [f"# {report.title}", "\n".join(f"- {name}: {text}" for name, text in _plain(report))]
    parts.append(PROTOCOLS)
    for section in report.sections:
        parts.append(f"## {_escape(section.title)}")
        parts += [_block(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def headline(report: Report) -> str:
    """The main tables, for a README; made from rows, never by hand."""
    parts = [table(part) for whole in report.main for part in flatten(whole) if _is_first(part)]
    facts = dict(_plain(report))
    said = " ".join(f"{name}: {facts[name]}." for name in ("Updates", "Seeds per dataset"))
    return "\n\n".join([f"{PROTOCOLS} {said}", *parts]) + "\n"


def with_headline(page: str, block: str) -> str:
    """A page whose part between the two markers is replaced."""
    if page.count(START) != 1 or page.count(END) != 1 or page.index(START) > page.index(END):
        raise MerlinError(f"The page needs {START} and after it {END}, each once.")
    before, rest = page.split(START)
    return f"{before}{START}\n\n{block.strip()}\n\n{END}{rest.split(END)[1]}"


def table(flat: FlatTable) -> str:
    """One table in GitHub's style, with its title as a line of bold text."""
    lines = [f"**{_escape(flat.title)}**", "", _line([Text(name) for name in flat.header])]
    rules = ["---" if i < flat.labels else "---:" for i in range(len(flat.header))]
    lines.append(f"|{'|'.join(rules)}|")
    for group in flat.groups:
        if group.name:
            rest = [Text("")] * (len(flat.header) - 1)
            lines.append(_line([Text(group.name, bold=True), *rest]))
        lines += [_line(row) for row in group.rows]
    return "\n".join(lines)


def _block(block: Block) -> str:
    if isinstance(block, Table):
        return "\n\n".join(table(part) for part in flatten(block))
    if isinstance(block, FlatTable):
        if not block.collapsed:
            return table(block)
        title = _escape(block.title)
        return f"<details><summary>{title}</summary>\n\n{table(block)}\n\n</details>"
    if isinstance(block, Figure):
        protocol = f" ({block.protocol})" if block.protocol else ""
        return f"![{_escape(block.title)}{protocol}](figures/{block.name}.svg)\n\n{block.caption}"
    return _escape(block)


def _is_first(part: FlatTable) -> bool:
    return part.protocol in (None, "final")


def _plain(report: Report) -> list[tuple[str, str]]:
    return [(name, _escape(text)) for name, text in report.facts]


def _line(cells: Sequence[Text]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(cell: Text) -> str:
    if cell.code:
        # A backtick cannot be escaped inside code, and a bar ends the cell even there.
        return "`" + " ".join(cell.text.split()).replace("`", "'").replace("|", "\\|") + "`"
    text = _escape(cell.text)
    return f"**{text}**" if cell.bold and text else text


def _escape(text: str) -> str:
    """Text in which nothing is markup, neither Markdown's nor HTML's."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for sign in "\\`*_[]|":
        text = text.replace(sign, "\\" + sign)
    return text
