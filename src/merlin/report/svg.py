"""What every chart is drawn with: scales, ticks, axes, panels. Colours come from chart.css."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources

from merlin.report.markup import Markup, join, tag
from merlin.report.rows import METHODS

COLOURS = 16
LEGEND_LINE, LEGEND_WIDTH, GAP = 18, 150, 16

Scale = Callable[[float], float]


@dataclass(frozen=True)
class Panel:
    """One drawing, in units of pixels."""

    width: int
    height: int
    label: str  # what a person who cannot see it is told
    content: Markup

    def svg(self, **place: float) -> Markup:
        return tag(
            "svg",
            tag("title", self.label),
            self.content,
            viewBox=f"0 0 {self.width} {self.height}",
            width=self.width,
            height=self.height,
            role="img",
            class_="chart",
            **place,
        )


@dataclass(frozen=True)
class Figure:
    """Panels with one legend; `protocol` says which of the two kinds of score it shows."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    legend: tuple[str, ...] = ()
    protocol: str | None = None

    def standalone(self, columns: int = 4) -> str:
        """The figure as an SVG file of its own, which follows the reader's colour scheme."""
        wide = max(panel.width for panel in self.panels)
        tall = max(panel.height for panel in self.panels)
        columns = min(columns, len(self.panels))
        width = columns * (wide + GAP) - GAP
        per_line = max(1, width // LEGEND_WIDTH)
        top = math.ceil(len(self.legend) / per_line) * LEGEND_LINE + (8 if self.legend else 0)
        colours = styles(self.legend)
        entries = [
            _legend_entry(method, colours[method], i % per_line, i // per_line)
            for i, method in enumerate(self.legend)
        ]
        drawn = [
            panel.svg(x=(i % columns) * (wide + GAP), y=top + (i // columns) * (tall + GAP))
            for i, panel in enumerate(self.panels)
        ]
        height = top + math.ceil(len(self.panels) / columns) * (tall + GAP) - GAP
        return tag(
            "svg",
            tag("title", self.title),
            tag("style", Markup(asset("chart.css") + "svg{background:var(--paper)}")),
            *entries,
            *drawn,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"-8 -8 {width + 16} {height + 16}",
            width=width + 16,
            height=height + 16,
            role="img",
        )


def asset(name: str) -> str:
    """A file that stands beside this one."""
    return resources.files("merlin.report").joinpath(name).read_text()


def styles(methods: Sequence[str]) -> dict[str, str]:
    """A class of its own for every method, the same in every figure that has the same methods."""
    taken: dict[str, int] = {}
    for method in methods:
        algo = method.split(" ")[0]
        index = METHODS.index(algo) if algo in METHODS else len(METHODS)
        while index in taken.values() and len(taken) < COLOURS:
            index = (index + 1) % COLOURS
        taken[method] = index
    return {method: f"s{index}" for method, index in taken.items()}


def swatch(style: str) -> Markup:
    """A short piece of a method's line, for a legend."""
    line = tag("line", x1=1, y1=5, x2=21, y2=5, class_=f"series {style}")
    return tag("svg", line, viewBox="0 0 22 10", width=22, height=10, aria_hidden="true")


def _legend_entry(method: str, style: str, column: int, line: int) -> Markup:
    x, y = column * LEGEND_WIDTH, line * LEGEND_LINE + 8
    stroke = tag("line", x1=x, y1=y, x2=x + 20, y2=y, class_=f"series {style}")
    return join(stroke, text(method, x + 26, y + 4))


def text(content: str, x: float, y: float, *, anchor: str = "start", kind: str = "") -> Markup:
    return tag("text", content, x=float(x), y=float(y), text_anchor=anchor, class_=kind or None)


def linear(domain: tuple[float, float], pixels: tuple[float, float]) -> Scale:
    (low, high), (start, end) = domain, pixels
    return lambda value: start + (value - low) / ((high - low) or 1.0) * (end - start)


def logarithmic(domain: tuple[float, float], pixels: tuple[float, float]) -> Scale:
    inner = linear((math.log10(domain[0]), math.log10(domain[1])), pixels)
    return lambda value: inner(math.log10(value))


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers within a range."""
    raw = (high - low) / count or 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def decades(low: float, high: float) -> tuple[float, float]:
    """Powers of ten around a range."""
    return 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high * 1.001))


def short(value: float) -> str:
    """A number as an axis writes it."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def polyline(xs: Sequence[float], ys: Sequence[float], kind: str) -> Markup:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    return tag("polyline", points=points, class_=kind)


def band(xs: Sequence[float], low: Sequence[float], high: Sequence[float], kind: str) -> Markup:
    there = [f"{x:.1f},{y:.1f}" for x, y in zip(xs, high, strict=True)]
    back = [f"{x:.1f},{y:.1f}" for x, y in zip(xs, low, strict=True)]
    return tag("polygon", points=" ".join(there + back[::-1]), class_=kind)


def frame(
    x: Scale,
    y: Scale,
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    box: tuple[float, float, float, float],
) -> Markup:
    """Grid lines and tick labels of a chart whose plot has these left, top, right, bottom."""
    left, _, right, bottom = box
    across = [
        join(
            tag("line", x1=left, x2=right, y1=y(v), y2=y(v), class_="grid"),
            text(short(v), left - 5, y(v) + 3.5, anchor="end", kind="tick"),
        )
        for v in y_ticks
    ]
    down = [
        join(
            tag("line", x1=x(v), x2=x(v), y1=bottom, y2=bottom + 4, class_="axis"),
            text(short(v), x(v), bottom + 15, anchor="middle", kind="tick"),
        )
        for v in x_ticks
    ]
    base = tag("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis")
    return join(*across, *down, base)
