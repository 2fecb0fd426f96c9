"""Matplotlib figures as SVG that follow the reader's colour scheme.

A figure is drawn in the colours of the light scheme. In the SVG each colour becomes a CSS variable,
for which `templates/chart.css` defines a second value in the dark scheme.
"""

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from merlin.report.selection import METHODS

INK, SOFT, RULE, ACCENT, ON_ACCENT = "#1b2128", "#56606b", "#dfe3e8", "#17498f", "#fffffe"
ON_TILE = "#1b2129"
"""Numbers on tiles of medium strength: dark in the light scheme, `ON_ACCENT` in the dark one."""
SERIES = (
    *("#1d5fc4", "#0b8585", "#6d3fc0", "#4b93c9", "#a4609a", "#c2571a", "#2b8a3e", "#8f7200"),
    *("#7a5c3e", "#c22f55", "#5f6873", "#cc3f94", "#8a1f1f", "#3d6b6b", "#55741d", "#33415c"),
)
VARIABLES = {
    **{INK: "ink", SOFT: "soft", RULE: "rule", ACCENT: "accent"},
    **{ON_ACCENT: "on-accent", ON_TILE: "on-tile"},
    **{colour: f"c{i}" for i, colour in enumerate(SERIES)},
}
"""Colours of the light scheme, with the names of their CSS variables."""
SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # measures the text; chart.css names the font that is shown
    "font.size": 11,
    "text.color": INK,
    "text.parse_math": False,  # names of tasks are not formulas
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": RULE,
    "grid.linewidth": 1.0,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "xtick.minor.width": 0,
    "lines.scale_dashes": False,
    "lines.solid_capstyle": "butt",
    "svg.fonttype": "none",  # text stays text
}
GAP, MARGIN, LEGEND_LINE, LEGEND_WIDTH = 16, 8, 18, 170
MOST_COLUMNS = 4
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
DRAWN, ON_TILES = "drawn ", "on-tile "
"""Prefixes of the ids of data elements and of numbers on tiles. They become classes, and the rest
of the id becomes the tooltip."""


@dataclass(frozen=True)
class LineStyle:
    """The line style of one method."""

    colour: str
    width: float
    dashes: tuple[float, ...] = ()

    @property
    def variable(self) -> str:
        return VARIABLES[self.colour]

    @property
    def matplotlib(self) -> dict[str, Any]:
        return {
            "color": self.colour,
            "linewidth": self.width,
            "linestyle": (0, self.dashes) if self.dashes else "-",
        }


def line_styles(methods: Sequence[str]) -> dict[str, LineStyle]:
    """A style for every method, the same in all figures with the same methods."""
    taken: dict[str, int] = {}
    for method in methods:
        algo = method.split(" ")[0]
        index = METHODS.index(algo) if algo in METHODS else len(METHODS)
        while index in taken.values() and len(taken) < len(SERIES):
            index = (index + 1) % len(SERIES)
        taken[method] = index
    return {method: _line_style(index) for method, index in taken.items()}


def _line_style(index: int) -> LineStyle:
    dashes = () if index < 5 else (6.0, 2.5) if index < 10 else (2.0, 2.0)
    return LineStyle(SERIES[index], 2.6 if index == 0 else 1.8, dashes)


@dataclass(frozen=True)
class Panel:
    """One drawing. Sizes are in pixels; `box` is the left, top, right and bottom of the plot."""

    size: tuple[float, float]
    box: tuple[float, float, float, float]
    label: str  # text alternative for screen readers
    draw: Callable[[Axes], None] = field(compare=False)

    def svg(self, name: str) -> str:
        """The panel alone, for embedding in a page; `name` must be unique within it."""
        return _render([(self, 0.0, 0.0)], self.size, name, self.label)


@dataclass(frozen=True)
class Figure:
    """Panels with one legend; `protocol` says which of the two kinds of score it shows."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    legend: tuple[str, ...] = ()
    protocol: str | None = None

    @property
    def heading(self) -> str:
        return self.title + (f" ({self.protocol})" if self.protocol else "")

    @property
    def svgs(self) -> list[str]:
        """Each panel separately, for a page with a fluid layout."""
        return [panel.svg(f"{self.name}-{i}") for i, panel in enumerate(self.panels)]

    def standalone(self, style: str) -> str:
        """All panels and the legend as a standalone SVG file with a style sheet."""
        wide = max(panel.size[0] for panel in self.panels)
        tall = max(panel.size[1] for panel in self.panels)
        columns = min(MOST_COLUMNS, len(self.panels))
        width = max(columns * (wide + GAP) - GAP, LEGEND_WIDTH * (1 if self.legend else 0))
        per_line = max(1, int(width // LEGEND_WIDTH))
        lines = math.ceil(len(self.legend) / per_line)
        top = lines * LEGEND_LINE + (8 if self.legend else 0)
        rows = math.ceil(len(self.panels) / columns)
        places = [
            (
                panel,
                MARGIN + (i % columns) * (wide + GAP),
                MARGIN + top + (i // columns) * (tall + GAP),
            )
            for i, panel in enumerate(self.panels)
        ]
        size = width + 2 * MARGIN, top + rows * (tall + GAP) - GAP + 2 * MARGIN
        return _render(places, size, self.name, self.title, self.legend, style)


def _render(
    places: Sequence[tuple[Panel, float, float]],
    size: tuple[float, float],
    name: str,
    label: str,
    legend: Sequence[str] = (),
    style: str = "",
) -> str:
    """Place panels in one SVG; the same panels and name give the same bytes."""
    width, height = size
    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": name}), warnings.catch_warnings():
        # The reader's browser may have the glyphs that matplotlib's own font has not.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        canvas = Canvas(figsize=(width / 72, height / 72), dpi=72)  # a point is a pixel
        canvas.patch.set_visible(False)
        for panel, x, y in places:
            left, top, right, bottom = panel.box
            at = ((x + left) / width, 1 - (y + bottom) / height)
            axes = canvas.add_axes((*at, (right - left) / width, (bottom - top) / height))
            axes.patch.set_visible(False)
            panel.draw(axes)
            for artist in axes.findobj():
                artist.set_clip_on(False)
        _draw_legend(canvas, legend, size)
        file = io.StringIO()
        canvas.savefig(file, format="svg", metadata=dict.fromkeys(_METADATA))
    return _tidy(file.getvalue(), size, label, style)


_METADATA = ("Creator", "Date", "Format", "Type")


def _draw_legend(canvas: Canvas, methods: Sequence[str], size: tuple[float, float]) -> None:
    width, height = size
    per_line = max(1, int((width - 2 * MARGIN) // LEGEND_WIDTH))
    for i, (method, style) in enumerate(line_styles(methods).items()):
        x = MARGIN + (i % per_line) * LEGEND_WIDTH
        y = 1 - (MARGIN + (i // per_line) * LEGEND_LINE + 8) / height
        canvas.add_artist(Line2D([x / width, (x + 20) / width], [y, y], **style.matplotlib))
        canvas.text((x + 26) / width, y, method, verticalalignment="center_baseline")


def _tidy(text: str, size: tuple[float, float], label: str, style: str) -> str:
    """Post-process matplotlib's output: use variables for colours, and remove what is not needed.

    Ids are removed, since they must be unique within a page. Those of shared shapes are kept; a
    salt makes them differ between figures.
    """
    text = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f]", "\N{REPLACEMENT CHARACTER}", text)
    root = ElementTree.fromstring(text)
    used = {element.get(f"{{{XLINK}}}href", "").removeprefix("#") for element in root.iter()}
    for parent in root.iter():
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style"):
                parent.remove(child)
    for element in root.iter():
        own = element.get("id", "")
        if own and own not in used:
            del element.attrib["id"]
        if own.startswith((DRAWN, ON_TILES)):
            kind, _, about = own.partition(" ")
            element.set("class", kind)
            if about:
                element.insert(0, _element("title", about))
        if "style" in element.attrib:
            element.set("style", re.sub(r"#[0-9a-f]{6}\b", _variable, element.get("style", "")))
    width, height = (f"{length:g}" for length in size)
    root.attrib.clear()
    root.attrib.update(
        {
            "class": "chart",
            "role": "img",
            "width": width,
            "height": height,
            "viewBox": f"0 0 {width} {height}",
        }
    )
    root.insert(0, _element("title", label))
    if style:
        root.insert(1, _element("style", style))
    return ElementTree.tostring(root, encoding="unicode")


ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", XLINK)


def _element(name: str, text: str) -> ElementTree.Element:
    made = ElementTree.Element(f"{{{SVG}}}{name}")
    made.text = text
    return made


def _variable(match: re.Match) -> str:
    name = VARIABLES.get(match.group())
    return match.group() if name is None else f"var(--{name})"
