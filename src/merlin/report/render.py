"""Render a report as HTML, Markdown and LaTeX with the templates in `templates/`.

All template output is escaped for its language: by Jinja in HTML, and by the two functions below
otherwise.
"""

import re
from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from merlin.errors import MerlinError
from merlin.report import text_tables
from merlin.report.content import Report
from merlin.report.figures import Figure, line_styles
from merlin.report.tables import PROTOCOLS, Table
from merlin.report.text_tables import MINUS, NONE, TextTable

START, END = "<!-- results -->", "<!-- /results -->"

_TEX = {
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


class Escaped(str):
    """Text that is already markup."""

    __slots__ = ()


def escape_tex(text: object) -> str:
    """Escape all characters that are special in TeX."""
    return "".join(_TEX.get(sign, sign) for sign in _one_line(text))


def escape_markdown(text: object) -> str:
    """Escape all characters that are markup in Markdown or HTML."""
    if isinstance(text, Escaped):
        return text
    escaped = _one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for sign in "\\`*_[]|":
        escaped = escaped.replace(sign, "\\" + sign)
    return escaped


def _markdown_code(text: str) -> Escaped:
    """Text as inline code, where backticks cannot be escaped and a bar still ends a table cell."""
    return Escaped(_one_line(text).replace("`", "'").replace("|", "\\|"))


def _one_line(text: object) -> str:
    """The text with every run of white space as one space; no-break spaces stay."""
    return re.sub(r"[^\S\xa0]+", " ", str(text)).strip()


def _unbroken(text: str) -> str:
    """Scores with no-break spaces, so that each stays on a line with its deviation and mark."""
    return re.sub(r" (?=[±▲▼=])|(?<=[±▲▼=,]) ", "\N{NO-BREAK SPACE}", text)


def _environment(escape: Callable[[object], str] | None = None, **syntax: Any) -> Environment:
    made = Environment(
        loader=PackageLoader("merlin.report"),
        autoescape=escape is None,
        finalize=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **syntax,
    )
    made.filters |= {
        "number": text_tables.number,
        "mark": text_tables.mark,
        "heading": text_tables.heading,
        "as_text": text_tables.as_text,
        "code": _markdown_code,
        "unbroken": _unbroken,
        "label": lambda key: re.sub(r"[^-\w]", "-", key, flags=re.ASCII).replace("_", "-"),
    }
    made.tests |= {
        "figure": lambda block: isinstance(block, Figure),
        "scores": lambda block: isinstance(block, Table),
    }
    made.globals |= {"protocols": PROTOCOLS, "none_sign": NONE, "line_styles": line_styles}
    return made


_HTML = _environment()
_MARKDOWN = _environment(escape_markdown)
_LATEX = _environment(
    escape_tex,
    variable_start_string="<<",
    variable_end_string=">>",
    block_start_string="<%",
    block_end_string="%>",
    comment_start_string="<#",
    comment_end_string="#>",
)


def html(report: Report) -> str:
    """A self-contained page."""
    return _HTML.get_template("page.html").render(report=report)


def page(template: str, **content: Any) -> str:
    """A self-contained page about a single run, policy or dataset."""
    return _HTML.get_template(template).render(content)


def markdown(report: Report) -> str:
    """The same tables and figures as the page, in the same order."""
    return _MARKDOWN.get_template("report.md").render(report=report)


def headline(report: Report) -> str:
    """The main tables for a README, generated from rows."""
    return _MARKDOWN.get_template("headline.md").render(report=report)


def markdown_table(table: TextTable) -> str:
    """One table by itself."""
    return _MARKDOWN.get_template("table.md").render(table=table)


def latex(report: Report) -> str:
    """One `table` environment per table and protocol; requires booktabs."""
    return _LATEX.get_template("tables.tex").render(report=report)


def svg(figure: Figure) -> str:
    """A figure as a standalone file that follows the reader's colour scheme."""
    sheet = _HTML.get_template("chart.css").render() + "svg.chart { background: var(--paper); }\n"
    return figure.standalone(sheet)


def with_headline(page: str, block: str) -> str:
    """Replace the part of a page between the two markers."""
    if page.count(START) != 1 or page.count(END) != 1 or page.index(START) > page.index(END):
        raise MerlinError(f"The page needs {START} and after it {END}, each once.")
    before, rest = page.split(START)
    return f"{before}{START}\n\n{block.strip()}\n\n{END}{rest.split(END)[1]}"
