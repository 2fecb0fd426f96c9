"""The figures of a report."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from merlin.evaluation.statistics import Estimate
from merlin.report.ablations import HeatMap, Timing
from merlin.report.aggregates import Aggregates, Curve
from merlin.report.figures import (
    ACCENT,
    DRAWN,
    INK,
    ON_ACCENT,
    ON_TILE,
    ON_TILES,
    SOFT,
    Figure,
    LineStyle,
    Panel,
    line_styles,
)
from merlin.report.tables import short_number
from merlin.report.text_tables import NONE

GUTTER = 96
"""Minimum room for the names of methods."""
LINE = 22
TITLE, LETTERS = 12, 28
"""Size of a title, and how many letters of it fit above a learning curve."""


def _gutter(names: Sequence[str]) -> int:
    return max(GUTTER, 14 + max(int(6.3 * len(name)) for name in names))


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    """One row per name, the first on top."""
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.grid(axis="x")


def _tick(value: float, _: object) -> str:
    return short_number(value)


def intervals(
    title: str,
    axis: str,
    estimates: Mapping[str, Estimate],
    *,
    domain: tuple[float, float],
    middle: float | None = None,
) -> Panel:
    """A dot with its interval for each method, one below the other."""

    def draw(axes: Axes) -> None:
        axes.set_title(title)
        _name_rows(axes, list(estimates))
        axes.set_xlim(domain)
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel(axis)
        if middle is not None:
            axes.axvline(middle, color=SOFT, linewidth=1, linestyle=(0, (3, 3)))
        styles = line_styles(list(estimates))
        for row, (method, estimate) in enumerate(estimates.items()):
            about, colour = f"{method}: {estimate.value:.3f}", styles[method].colour
            if estimate.interval:
                low, high = estimate.interval
                about += f", 95 % interval {low:.3f} to {high:.3f}"
                axes.plot([low, high], [row, row], color=colour, alpha=0.35, linewidth=7)
            axes.plot(estimate.value, row, "o", color=colour, markersize=9, gid=DRAWN + about)

    left, top = _gutter(list(estimates)), 26
    right, bottom = left + 226, top + LINE * len(estimates) + 4
    label = f"{title}. " + "; ".join(f"{m} {e.value:.2f}" for m, e in estimates.items())
    return Panel((right + 16, bottom + 36), (left, top, right, bottom), label, draw)


def aggregates(found: Aggregates) -> Figure:
    """Interquartile means of both metrics, and the probability of beating the reference."""
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
    """A range that contains all intervals, rounded to tenths."""
    ends = [end for e in estimates.values() for end in (e.interval or (e.value, e.value))]
    low, high = np.floor(min(ends) * 10) / 10, np.ceil(max(ends) * 10) / 10
    return float(low), float(high if high > low else low + 0.1)


def profiles(found: Aggregates) -> Figure:
    """The fraction of runs above each threshold."""

    def draw(axes: Axes) -> None:
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="normalised return τ")
        axes.spines["left"].set_visible(False)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
        axes.grid(axis="y")
        styles = line_styles(found.methods)
        for method, profile in found.profiles.items():
            if profile.low is not None and profile.high is not None:
                _band(axes, profile.thresholds, profile.low, profile.high, styles[method])
        for method, profile in found.profiles.items():
            style = styles[method].matplotlib
            axes.plot(profile.thresholds, profile.share, **style, gid=DRAWN + method)

    label = f"Performance profiles of {', '.join(found.methods)}"
    return Figure(
        name=f"profiles-{found.source}-{found.protocol}",
        title="Performance profiles",
        caption="Share of runs whose normalised return is above τ: higher is better everywhere. "
        "Bands are pointwise 95 % intervals.",
        panels=(Panel((418, 268), (44, 10, 404, 230), label, draw),),
        legend=found.methods,
        protocol=found.protocol,
    )


def _band(axes: Axes, xs: np.ndarray, low: np.ndarray, high: np.ndarray, style: LineStyle) -> None:
    # As a polygon: `fill_between` writes shapes that matplotlib's SVG stores by reference.
    there, back = np.stack([xs, high], 1), np.stack([xs, low], 1)[::-1]
    corners = np.concatenate([there, back])
    axes.fill(corners[:, 0], corners[:, 1], color=style.colour, alpha=0.13, linewidth=0)


def learning_curves(
    curves: Mapping[tuple[str, str], Mapping[str, Curve]], metric: str, *, source: str
) -> Figure:
    """One small chart per dataset, with a shared vertical axis."""
    methods = tuple(dict.fromkeys(m for lines in curves.values() for m in lines))
    styles = line_styles(methods)
    highest = max(float(c.high.max()) for lines in curves.values() for c in lines.values())
    top = 1.0 if metric == "success" else max(10.0, float(np.ceil(highest / 10)) * 10)
    panels = tuple(
        _curves(f"{_short(task)} {variant}", lines, styles, top, metric)
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


def _short(task: str) -> str:
    """The name of an OGBench dataset without prefix and version; those of tasks as they are."""
    return task.removeprefix("ogbench:").removesuffix("-v0")


def _curves(
    name: str, lines: Mapping[str, Curve], styles: dict[str, LineStyle], highest: float, metric: str
) -> Panel:
    def draw(axes: Axes) -> None:
        axes.set_title(name, fontsize=TITLE * min(1.0, LETTERS / len(name)))
        axes.set(xlim=(0, max(float(c.steps.max()) for c in lines.values())), ylim=(0, highest))
        axes.spines["left"].set_visible(False)
        axes.locator_params(axis="x", nbins=4)
        axes.locator_params(axis="y", nbins=5)
        axes.xaxis.set_major_formatter(_tick)
        axes.yaxis.set_major_formatter(_tick)
        axes.grid(axis="y")
        for method, curve in lines.items():
            _band(axes, curve.steps, curve.low.clip(0), curve.high.clip(0), styles[method])
        for method, curve in lines.items():
            look = styles[method].matplotlib
            look |= {"marker": "o", "markersize": 6} if len(curve.steps) == 1 else {}
            about = f"{method}: {curve.mean[-1]:.2f} at the last evaluation"
            axes.plot(curve.steps, curve.mean.clip(0), **look, gid=DRAWN + about)

    ends = ", ".join(f"{method} {curve.mean[-1]:.2f}" for method, curve in lines.items())
    label = f"{name}: {metric} at the last evaluation: {ends}"
    return Panel((276, 160), (30, 24, 256, 140), label, draw)


def heat_map(found: HeatMap) -> Figure:
    """One tile per dataset and value of the setting, coloured by return."""

    def draw(axes: Axes) -> None:
        axes.set_title(found.title)
        axes.set(xlim=(0, len(found.columns)), ylim=(len(found.names), 0))
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.tick_params(labeltop=True, labelbottom=False)
        axes.set_xticks(np.arange(len(found.columns)) + 0.5, found.columns)
        axes.set_yticks(np.arange(len(found.names)) + 0.5, found.names, color=INK)
        for row, name in enumerate(found.names):
            for column, value in enumerate(found.normalised[row]):
                about = f"{name}, {found.columns[column]}: return {found.values[row, column]:.2f}"
                _tile(axes, float(value), column, row, about)

    left, top, wide, tall = _gutter(found.names), 40, 48, 24
    right, bottom = left + wide * len(found.columns), top + tall * len(found.names)
    rows = zip(found.names, found.normalised, strict=True)
    best = ", ".join(f"{name} {found.columns[int(np.nanargmax(v))]}" for name, v in rows)
    label = f"Heat map of return by {found.title.lower()}; best value per row: {best}"
    return Figure(
        name=found.axis.replace("_", "-"),
        title=found.title,
        caption="Final return, divided by the highest of its row as in the paper.",
        panels=(Panel((right + 8, bottom + 6), (left, top, right, bottom), label, draw),),
    )


def _tile(axes: Axes, value: float, column: int, row: int, about: str) -> None:
    place: dict[str, Any] = {
        "x": column + 0.5,
        "y": row + 0.5,
        "ha": "center",
        "va": "center_baseline",
    }
    if np.isnan(value):
        axes.text(**place, s=NONE, color=SOFT)
        return
    strength = max(value, 0.0) ** 2  # most values are near 1; this sets them apart
    axes.add_patch(
        Rectangle(
            (column + 0.02, row + 0.04),
            0.96,
            0.92,
            facecolor=ACCENT,
            alpha=round(0.05 + 0.95 * strength, 2),
            linewidth=0,
            gid=DRAWN + about,
        )
    )
    on = ON_ACCENT if strength > 0.66 else ON_TILE if strength > 0.55 else INK
    axes.text(**place, s=f"{value:.2f}", color=on, gid=ON_TILES)


def timing(found: Sequence[Timing], *, source: str) -> Figure:
    return Figure(
        name=f"timing-{source}",
        title="Time per update and action",
        caption="Mean over tasks on the machine named below; the axis is logarithmic. Before the "
        "first update: what latents of images and made trajectories take.",
        panels=tuple(_bars(part) for part in found),
    )


def _cost(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bars(found: Timing) -> Panel:
    low = 10.0 ** np.floor(np.log10(min(found.costs.values()) * 0.999))
    high = 10.0 ** np.ceil(np.log10(max(found.costs.values()) * 1.001))

    def draw(axes: Axes) -> None:
        axes.set_title(f"{found.name}, {found.unit}")
        _name_rows(axes, list(found.costs))
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        axes.xaxis.set_major_formatter(_tick)
        styles = line_styles(list(found.costs))
        for row, (method, cost) in enumerate(found.costs.items()):
            about = f"{method}: {_cost(cost)} {found.unit}"
            corner, size = (low, row - 0.32), (cost - low, 0.64)
            axes.add_patch(
                Rectangle(corner, *size, color=styles[method].colour, lw=0, gid=DRAWN + about)
            )
            axes.annotate(
                _cost(cost), (cost, row), (5, 0), textcoords="offset points", va="center_baseline"
            )

    left, top = _gutter(list(found.costs)), 26
    right, bottom = left + 200, top + LINE * len(found.costs) + 4
    costs = ", ".join(f"{method} {_cost(cost)}" for method, cost in found.costs.items())
    label = f"{found.name} in {found.unit}: {costs}"
    return Panel((right + 40, bottom + 20), (left, top, right, bottom), label, draw)
