"""The figures of a report."""

from collections.abc import Mapping, Sequence

import numpy as np

from merlin.report import svg
from merlin.report.ablations import HeatMap, Timing
from merlin.report.aggregates import Aggregates, Curve
from merlin.report.flat import NONE
from merlin.report.markup import Markup, join, tag
from merlin.report.svg import Figure, Panel
from merlin.stats import Estimate

GUTTER = 96
"""Room for the names of methods."""
LINE = 22


def _gutter(names: Sequence[str]) -> int:
    return max(GUTTER, 14 + max(int(6.3 * len(name)) for name in names))


def intervals(
    title: str,
    axis: str,
    estimates: Mapping[str, Estimate],
    *,
    domain: tuple[float, float],
    middle: float | None = None,
) -> Panel:
    """A dot and its interval per method, one under another."""
    left, top = _gutter(list(estimates)), 26
    right, bottom = left + 226, top + LINE * len(estimates) + 4
    x = svg.linear(domain, (left, right))
    colours = svg.styles(list(estimates))
    drawn = [svg.text(title, left, 12, kind="title")]
    for tick in svg.ticks(*domain):
        drawn.append(tag("line", x1=x(tick), x2=x(tick), y1=top, y2=bottom, class_="grid"))
        drawn.append(svg.text(svg.short(tick), x(tick), bottom + 14, anchor="middle", kind="tick"))
    if middle is not None:
        drawn.append(tag("line", x1=x(middle), x2=x(middle), y1=top, y2=bottom, class_="middle"))
    for i, (method, estimate) in enumerate(estimates.items()):
        y, style = top + LINE * (i + 0.5) + 2, colours[method]
        drawn.append(svg.text(method, left - 8, y + 4, anchor="end"))
        about = f"{method}: {estimate.value:.3f}"
        if estimate.interval:
            low, high = estimate.interval
            about += f", 95 % interval {low:.3f} to {high:.3f}"
            kind = f"interval {style}"
            drawn.append(tag("line", x1=x(low), x2=x(high), y1=y, y2=y, class_=kind))
        dot = tag("title", about)
        drawn.append(tag("circle", dot, cx=x(estimate.value), cy=y, r=4.5, class_=f"dot {style}"))
    drawn.append(svg.text(axis, (left + right) / 2, bottom + 30, anchor="middle", kind="tick"))
    label = f"{title}. " + "; ".join(f"{m} {e.value:.2f}" for m, e in estimates.items())
    return Panel(right + 16, bottom + 36, label, join(*drawn))


def aggregates(found: Aggregates) -> Figure:
    """Interquartile means of both metrics, and how often each method beats the reference."""
    axis = "interquartile mean"
    panels = [
        intervals("Return, normalised", axis, found.returns, domain=_around(found.returns)),
        intervals("Success rate", axis, found.success, domain=_around(found.success)),
    ]
    caption = "Interquartile mean: mean of the middle half of all runs."
    if found.reference:
        title = f"Better than {found.reference}"
        domain = (0.0, 1.0)
        panels.append(intervals(title, "probability", found.improvement, domain=domain, middle=0.5))
        caption += (
            f" Better than {found.reference}: probability that a run returns more than one of "
            f"{found.reference} on the same dataset, ties counted half."
        )
    return Figure(
        name=f"aggregates-{found.source}-{found.protocol}",
        title="Aggregates",
        caption=caption + " Bars are 95 % stratified bootstrap intervals.",
        panels=tuple(panels),
        protocol=found.protocol,
    )


def _around(estimates: Mapping[str, Estimate]) -> tuple[float, float]:
    """A range that shows all intervals, rounded to tenths."""
    ends = [end for e in estimates.values() for end in (e.interval or (e.value, e.value))]
    low, high = np.floor(min(ends) * 10) / 10, np.ceil(max(ends) * 10) / 10
    return float(low), float(high if high > low else low + 0.1)


def profiles(found: Aggregates) -> Figure:
    left, top, right, bottom = 44, 10, 404, 230
    x, y = svg.linear((0, 1), (left, right)), svg.linear((0, 1), (bottom, top))
    colours = svg.styles(found.methods)
    tick = [0.0, 0.25, 0.5, 0.75, 1.0]
    drawn = [svg.frame(x, y, tick, tick, (left, top, right, bottom))]
    for method, profile in found.profiles.items():
        xs = [x(v) for v in profile.thresholds]
        if profile.low is not None and profile.high is not None:
            low, high = [y(v) for v in profile.low], [y(v) for v in profile.high]
            drawn.append(svg.band(xs, low, high, f"band {colours[method]}"))
    for method, profile in found.profiles.items():
        xs, ys = [x(v) for v in profile.thresholds], [y(v) for v in profile.share]
        drawn.append(svg.polyline(xs, ys, f"series {colours[method]}"))
    middle = (left + right) / 2
    drawn.append(svg.text("normalised return τ", middle, bottom + 32, anchor="middle", kind="tick"))
    label = f"Performance profiles of {', '.join(found.methods)}"
    return Figure(
        name=f"profiles-{found.source}-{found.protocol}",
        title="Performance profiles",
        caption="Share of runs whose normalised return is above τ: higher is better everywhere. "
        "Bands are pointwise 95 % intervals.",
        panels=(Panel(right + 14, bottom + 38, label, join(*drawn)),),
        legend=found.methods,
        protocol=found.protocol,
    )


def learning_curves(
    curves: Mapping[tuple[str, str], Mapping[str, Curve]], metric: str, *, source: str
) -> Figure:
    """One small chart per dataset; all with the same vertical axis."""
    methods = tuple(dict.fromkeys(m for lines in curves.values() for m in lines))
    colours = svg.styles(methods)
    highest = max(float(c.high.max()) for lines in curves.values() for c in lines.values())
    top_tick = 1.0 if metric == "success" else max(10.0, float(np.ceil(highest / 10)) * 10)
    panels = tuple(
        _curves(f"{task} {variant}", lines, colours, top_tick, metric)
        for (variant, task), lines in curves.items()
    )
    return Figure(
        name=f"curves-{source}-{metric}",
        title=f"Learning curves, {metric}",
        caption=f"Evaluations during training ({metric} against updates): mean over seeds, and the "
        "range from the lowest to the highest seed.",
        panels=panels,
        legend=methods,
    )


def _curves(
    name: str, lines: Mapping[str, Curve], colours: dict[str, str], highest: float, metric: str
) -> Panel:
    left, top, right, bottom = 30, 24, 256, 140
    last = max(float(curve.steps.max()) for curve in lines.values())
    x, y = svg.linear((0, last), (left, right)), svg.linear((0, highest), (bottom, top))
    box = (left, top, right, bottom)
    drawn = [svg.text(name, left, 13, kind="title")]
    drawn.append(svg.frame(x, y, svg.ticks(0, last, 3), svg.ticks(0, highest), box))
    for method, curve in lines.items():
        xs = [x(v) for v in curve.steps]
        low, high = [y(max(v, 0)) for v in curve.low], [y(max(v, 0)) for v in curve.high]
        drawn.append(svg.band(xs, low, high, f"band {colours[method]}"))
    for method, curve in lines.items():
        xs, ys = [x(v) for v in curve.steps], [y(max(v, 0)) for v in curve.mean]
        if len(xs) == 1:
            dot = f"dot {colours[method]}"
            drawn.append(tag("circle", cx=xs[0], cy=ys[0], r=3, class_=dot))
        drawn.append(svg.polyline(xs, ys, f"series {colours[method]}"))
    ends = ", ".join(f"{method} {curve.mean[-1]:.2f}" for method, curve in lines.items())
    label = f"{name}: {metric} at the last evaluation: {ends}"
    return Panel(right + 12, bottom + 20, label, join(*drawn))


def heat_map(found: HeatMap) -> Figure:
    left, top, wide, tall = _gutter(found.names), 40, 48, 24
    drawn = [svg.text(found.title, left, 12, kind="title")]
    for c, column in enumerate(found.columns):
        middle = left + (c + 0.5) * wide
        drawn.append(svg.text(column, middle, top - 7, anchor="middle", kind="tick"))
    for r, name in enumerate(found.names):
        y = top + r * tall
        drawn.append(svg.text(name, left - 8, y + tall / 2 + 4, anchor="end"))
        for c, value in enumerate(found.normalised[r]):
            about = f"{name}, {found.columns[c]}: return {found.values[r, c]:.2f}"
            drawn.append(_tile(float(value), left + c * wide, y, wide, tall, about))
    width, height = left + wide * len(found.columns) + 8, top + tall * len(found.names) + 6
    rows = zip(found.names, found.normalised, strict=True)
    best = ", ".join(f"{name} {found.columns[int(np.nanargmax(v))]}" for name, v in rows)
    label = f"Heat map of return by {found.title.lower()}; best value per row: {best}"
    return Figure(
        name=found.axis.replace("_", "-"),
        title=found.title,
        caption="Final return, divided by the highest of its row as in the paper.",
        panels=(Panel(width, height, label, join(*drawn)),),
    )


def _tile(value: float, x: float, y: float, wide: float, tall: float, about: str) -> Markup:
    if np.isnan(value):
        return svg.text(NONE, x + wide / 2, y + tall / 2 + 4, anchor="middle", kind="tick")
    strength = max(value, 0.0) ** 2  # most values are near 1; this sets them apart
    depth = "strong" if strength > 0.66 else "medium" if strength > 0.55 else "weak"
    fill = tag(
        "rect",
        tag("title", about),
        x=x + 1.0,
        y=y + 1.0,
        width=wide - 2.0,
        height=tall - 2.0,
        class_="tile",
        fill_opacity=round(0.05 + 0.95 * strength, 2),
    )
    middle, base = x + wide / 2, y + tall / 2 + 4
    return join(fill, svg.text(f"{value:.2f}", middle, base, anchor="middle", kind=depth))


def timing(found: Sequence[Timing], *, source: str) -> Figure:
    return Figure(
        name=f"timing-{source}",
        title="Time per update and action",
        caption="Mean over tasks on the machine named below; the axis is logarithmic.",
        panels=tuple(_bars(part) for part in found),
    )


def _cost(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bars(found: Timing) -> Panel:
    left, top = _gutter(list(found.costs)), 26
    right, bottom = left + 200, top + LINE * len(found.costs) + 4
    low, high = svg.decades(min(found.costs.values()), max(found.costs.values()))
    x = svg.logarithmic((low, high), (left, right))
    colours = svg.styles(list(found.costs))
    drawn = [svg.text(f"{found.name}, {found.unit}", left, 12, kind="title")]
    tick = low
    while tick <= high * 1.001:
        drawn.append(tag("line", x1=x(tick), x2=x(tick), y1=top, y2=bottom, class_="grid"))
        drawn.append(svg.text(svg.short(tick), x(tick), bottom + 14, anchor="middle", kind="tick"))
        tick *= 10
    for i, (method, cost) in enumerate(found.costs.items()):
        y, size = top + LINE * i + 5, x(cost) - left
        drawn.append(svg.text(method, left - 8, y + 11, anchor="end"))
        kind = f"bar {colours[method]}"
        drawn.append(tag("rect", x=left, y=y, width=max(size, 1.0), height=14, class_=kind))
        drawn.append(svg.text(_cost(cost), left + size + 5, y + 11, kind="value"))
    costs = ", ".join(f"{method} {_cost(cost)}" for method, cost in found.costs.items())
    return Panel(right + 40, bottom + 20, f"{found.name} in {found.unit}: {costs}", join(*drawn))
