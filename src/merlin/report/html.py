"""The report as one page that needs nothing but itself."""

from collections.abc import Sequence

from merlin.report.content import Block, Report, Section
from merlin.report.flat import NONE, FlatTable, Group, Text, heading, mark, number
from merlin.report.markup import Markup, join, tag
from merlin.report.svg import Figure, asset, styles, swatch
from merlin.report.tables import DIGITS, PROTOCOLS, Cell, Line, Score, Table

# The browser itself keeps the promise that nothing is fetched.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

ABOUT = Markup(
    "<b>Final</b> is the policy after the last update, scored on fixed seeded episodes: the honest "
    "number. <b>Best</b> is the evaluation with the highest return during training. The paper does "
    "not say which it reports; its numbers fit a best of many evaluations, so compare that one. "
    "± is the deviation over seeds, bold the best method of a row; ▲ and ▼ say by how much ours is "
    "above or below the paper. Every number leads to the rows that it averages."
)


def render(report: Report) -> str:
    """The whole page."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        Markup('<link rel="icon" href="data:,">'),
        tag("title", f"{report.title}, merlin"),
        tag("style", Markup(asset("chart.css") + asset("page.css"))),
    )
    body = tag(
        "body",
        tag("header", tag("p", "merlin report", class_="kicker"), tag("h1", report.title)),
        _facts(report.facts),
        tag("p", ABOUT, class_="about"),
        _bar(report.sections),
        tag("main", *(_section(section) for section in report.sections)),
        tag("script", Markup(asset("page.js"))),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _facts(facts: Sequence[tuple[str, str]]) -> Markup:
    return tag(
        "dl",
        *(tag("div", tag("dt", name), tag("dd", text)) for name, text in facts),
        class_="facts",
    )


def _bar(sections: Sequence[Section]) -> Markup:
    """Links to the sections, and the switch between the two protocols."""
    links = (tag("li", tag("a", s.title, href=f"#{s.key}")) for s in sections)
    choices = (
        tag(
            "label",
            tag(
                "input",
                type="radio",
                name="protocol",
                id=f"protocol-{protocol}",
                value=protocol,
                checked=protocol == "final",
            ),
            tag("span", protocol),
        )
        for protocol in PROTOCOLS
    )
    switch = tag("fieldset", tag("legend", "Scores"), *choices, class_="switch")
    nav = tag("nav", tag("ul", *links), aria_label="Sections")
    return tag("div", nav, switch, class_="bar")


def _section(section: Section) -> Markup:
    title = tag("h2", section.title, id=f"{section.key}-title")
    return tag(
        "section",
        title,
        *(_block(block) for block in section.blocks),
        id=section.key,
        aria_labelledby=f"{section.key}-title",
    )


def _block(block: Block) -> Markup:
    if isinstance(block, Table):
        return _scores(block)
    if isinstance(block, FlatTable):
        shown = _flat(block)
        if block.collapsed:
            return tag("details", tag("summary", block.title), shown)
        return shown
    if isinstance(block, Figure):
        return _figure(block)
    return tag("p", block)


def _only(protocol: str | None, *others: str) -> str | None:
    names = ([f"only-{protocol}"] if protocol else []) + [name for name in others if name]
    return " ".join(names) or None


def _table(
    key: str,
    title: str,
    header: Sequence[str],
    bodies: Sequence[Markup],
    *,
    kind: str | None = None,
    labels: int = 1,
) -> Markup:
    """A table that scrolls in a box of its own and sorts by any column."""
    heads = (
        tag(
            "th",
            tag("button", name, type="button"),
            scope="col",
            aria_sort="none",
            class_="words" if i < labels else None,
        )
        for i, name in enumerate(header)
    )
    caption = tag("caption", title, id=f"{key}-caption")
    table = tag("table", caption, tag("thead", tag("tr", *heads)), *bodies, class_=kind)
    label = f"{key}-caption"
    return tag(
        "div", table, class_="scroll", id=key, tabindex=0, role="region", aria_labelledby=label
    )


def _scores(table: Table) -> Markup:
    bodies = []
    for variant, lines in table.groups:
        name = tag("th", heading(variant), scope="rowgroup", colspan=len(table.methods) + 1)
        rows = (_line(line) for line in lines)
        bodies.append(tag("tbody", tag("tr", name, class_="group"), *rows))
    kind = "scores wide" if len(table.methods) == 1 else "scores"
    return _table(table.key, table.title, ("task", *table.methods), bodies, kind=kind)


def _line(line: Line) -> Markup:
    winners = {protocol: line.winners(protocol) for protocol in PROTOCOLS}
    cells = (
        _cell(cell, {p for p in PROTOCOLS if i in winners[p]}, line.lowest_wins)
        for i, cell in enumerate(line.cells)
    )
    kind = "summary" if line.summary else None
    return tag("tr", tag("th", line.name, scope="row"), *cells, class_=kind)


def _cell(cell: Cell, wins: set[str], lowest_wins: bool) -> Markup:
    if cell.final is None and cell.best is None:
        return tag("td", NONE, class_="none")
    pieces = []
    for protocol in PROTOCOLS:
        ours = number(cell.get(protocol))
        text = tag("b", ours) if protocol in wins else ours
        if cell.anchor:
            text = tag("a", text, href=f"#{cell.anchor}", title=cell.about)
        pieces.append(tag("span", text, class_=f"score only-{protocol}"))
    for shown, other in (PROTOCOLS, PROTOCOLS[::-1]):
        pieces.append(tag("span", *_named(other, cell.get(other)), class_=f"other only-{shown}"))
    if cell.paper:
        beside = [tag("span", *_named("paper", cell.paper), class_="paper")]
        for protocol in PROTOCOLS:
            difference = cell.difference(protocol)
            good = difference if not lowest_wins or difference is None else -difference
            way = "" if not good else "up" if good > 0 else "down"
            kind = _only(protocol, "difference", way)
            beside.append(tag("span", mark(difference), class_=kind))
        pieces.append(tag("span", *beside, class_="beside"))
    values = {f"data_{p}": _sort_value(cell, p) for p in PROTOCOLS}
    return tag("td", tag("div", *pieces, class_="cell"), **values)


def _named(name: str, score: Score | None) -> list[Markup]:
    """A lesser number with its name; a narrow table leaves its deviation away."""
    mean, *deviation = number(score).partition(" ±")
    return [tag("i", name), join(f" {mean}"), tag("span", *deviation, class_="deviation")]


def _sort_value(cell: Cell, protocol: str) -> str | None:
    score = cell.get(protocol)
    return None if score is None else f"{score.mean:.{DIGITS + 2}f}"


def _flat(table: FlatTable) -> Markup:
    bodies = [_group(group, table) for group in table.groups]
    shown = _table(table.key, table.title, table.header, bodies, labels=table.labels)
    return tag("div", shown, class_=_only(table.protocol)) if table.protocol else shown


def _group(group: Group, table: FlatTable) -> Markup:
    rows = []
    if group.name:
        name = tag("th", group.name, scope="rowgroup", colspan=len(table.header))
        rows.append(tag("tr", name, class_="group"))
    for row in group.rows:
        first = tag("th", _text(row[0]), scope="row")
        rest = (
            tag("td", _text(cell), class_="words" if i < table.labels else None)
            for i, cell in enumerate(row[1:], 1)
        )
        rows.append(tag("tr", first, *rest))
    return tag("tbody", *rows, id=group.anchor)


def _text(cell: Text) -> Markup:
    shown = tag("code", cell.text) if cell.code else join(cell.text)
    return tag("b", shown) if cell.bold else shown


def _figure(figure: Figure) -> Markup:
    colours = styles(figure.legend)
    entries = (tag("li", swatch(colours[name]), name) for name in figure.legend)
    protocol = f" ({figure.protocol})" if figure.protocol else ""
    return tag(
        "figure",
        tag("figcaption", tag("strong", figure.title + protocol), " ", figure.caption),
        tag("ul", *entries, class_="legend") if figure.legend else None,
        tag("div", *(panel.svg() for panel in figure.panels), class_="panels"),
        id=f"figure-{figure.name}",
        class_=_only(figure.protocol),
    )
