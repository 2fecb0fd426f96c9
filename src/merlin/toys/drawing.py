"""Figures of the toy experiments. Functions draw on given axes, or create a figure."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.quiver import Quiver

from merlin.data import Dataset
from merlin.evaluation.figures import BLUE, GREEN, GREY, INK, RED
from merlin.toys.experiments import GRID, Field
from merlin.toys.world import BOUND, Point, World

ERROR = LinearSegmentedColormap.from_list("error", [BLUE, "#4ab3b8", "#e9bd3f", "#e07b39", RED])
TIME = LinearSegmentedColormap.from_list("time", ["#1c4f8f", "#5a94d4", "#c9ddf2"])
FAILED = "#f6d5d2"
WALKS = 60
"""Number of walks shown; more would overlap."""


def floor(axes: Axes, world: World, title: str) -> None:
    """Draw the box and its walls."""
    for wall in world.walls:
        size = (wall.right - wall.left, wall.top - wall.bottom)
        axes.add_patch(Rectangle((wall.left, wall.bottom), *size, color=GREY, lw=0, zorder=3))
    axes.set(xlim=(-BOUND, BOUND), ylim=(-BOUND, BOUND), aspect="equal", xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set_color(GREY)
    axes.set_title(title, fontsize=10, color=INK)


def cross(axes: Axes, goal: Point, colour: str) -> None:
    """Mark a goal with a cross."""
    for width, shade in ((5.0, "white"), (2.6, colour)):
        axes.plot(*goal, "x", color=shade, markersize=9, markeredgewidth=width, zorder=5)


def walks(axes: Axes, data: Dataset, world: World, goals: Sequence[Point]) -> None:
    """Forward diffusion: walks that start at goals, fading over time, with dots at their ends."""
    shown = min(WALKS, len(data))
    start = "the goal" if len(goals) == 1 else f"{len(goals)} goals"
    floor(axes, world, f"forward diffusion from {start}\n{shown} of {len(data)} walks")
    paths = np.stack([data.episode(index).observations[::-1] for index in range(shown)])
    steps = np.stack([paths[:, :-1], paths[:, 1:]], axis=2)  # walk, step, end, axis
    # Early steps are drawn last, so that later ones do not cover them.
    steps = steps[:, ::-1].swapaxes(0, 1).reshape(-1, 2, 2)
    time = np.repeat(np.linspace(1, 0, paths.shape[1] - 1), shown)
    axes.add_collection(LineCollection(list(steps), colors=TIME(time), linewidths=0.6, zorder=1))
    axes.plot(*paths[:, -1].T, ".", color=BLUE, markersize=4, zorder=2)
    for goal in goals:
        cross(axes, goal, RED)


def arrows(
    axes: Axes,
    field: Field,
    world: World,
    title: str,
    *,
    goals: Sequence[Point],
    asked: Point,
    every: int = 1,
) -> Quiver:
    """Unit actions, coloured by their angle to the shortest path.

    The goal is not reached from shaded cells. Red crosses are goals of the data, the green cross is
    the goal given to the policy.
    """
    floor(axes, world, f"{title}\n{caption(field)}")
    side = 2 * BOUND / GRID
    cell = np.rint((field.points + BOUND) / side - 0.5).astype(int)
    failed = np.zeros((GRID, GRID, 4))
    failed[tuple(cell[~field.reached].T[::-1])] = to_rgba(FAILED)
    extent = (-BOUND, BOUND, -BOUND, BOUND)
    axes.imshow(failed, extent=extent, origin="lower", interpolation="nearest", zorder=0)
    # A coarser grid takes every n-th row and column, independent of the walls.
    shown = (cell % every == every // 2).all(axis=1)
    drawn = axes.quiver(
        *field.points[shown].T,
        *field.sampled[shown].T,
        field.sampled_errors[shown],
        cmap=ERROR,
        clim=(0, 90),
        angles="xy",
        scale_units="xy",
        scale=1.15 / (side * every),
        pivot="mid",
        width=0.0042,
        headwidth=3.6,
        headlength=4.2,
        headaxislength=3.8,
        zorder=2,
    )
    for goal in goals:
        cross(axes, goal, RED)
    cross(axes, asked, GREEN)
    return drawn


def caption(field: Field) -> str:
    numbers = field.numbers()
    return f"off by {numbers['angle']:.0f}°, reached from {100 * numbers['reached']:.1f} %"


def legend(figure: Figure, drawn: Quiver, axes: np.ndarray, *, red: bool = True) -> None:
    """One legend for all panels; `red` if there are red crosses."""
    bar = figure.colorbar(
        drawn, ax=list(axes.flat), shrink=0.6, aspect=28, pad=0.012, ticks=[0, 30, 60, 90]
    )
    bar.ax.set_yticklabels(["0°", "30°", "60°", "≥ 90°"], fontsize=8)
    bar.set_label("angle between action and shortest way", fontsize=8)
    bar.outline.set_visible(False)
    mark = {"marker": "x", "linestyle": "", "markersize": 7, "markeredgewidth": 2.2}
    handles = [
        Line2D([], [], color=RED, label="goal of the walks", **mark),  # type: ignore[arg-type]
        Line2D([], [], color=GREEN, label="goal asked for", **mark),  # type: ignore[arg-type]
        Patch(color=FAILED, label="goal not reached from here"),
    ]
    handles = handles if red else handles[1:]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)


def panels(rows: int, columns: int, title: str) -> tuple[Figure, np.ndarray]:
    """A figure with equal, square panels."""
    figure = Figure(figsize=(3.35 * columns + 0.6, 3.6 * rows + 0.7), layout="constrained")
    figure.suptitle(title, fontsize=12, color=INK)
    return figure, figure.subplots(rows, columns, squeeze=False)
