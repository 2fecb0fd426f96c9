"""Pictures of runs and policies. Every function draws on axes that the caller made."""

import io
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Circle, Rectangle

from merlin.files import write_bytes
from merlin.learners import Policy
from merlin.tasks.point import BOUND, Arena
from merlin.tasks.rollout import Rollout

INK, BLUE, GREEN, RED, GREY = "#22272e", "#2f6fb7", "#2e9e5b", "#c8443a", "#9aa3ad"
SHADE = "#e8ebee"
PIECES = (BLUE, "#d98324", "#7b4fa3", "#1f8a8a", RED)
"""Colours of the pieces of a stitched trajectory, in turn."""


def save(figure: Figure, path: Path) -> Path:
    """Write a figure. Made without pyplot, it needs no window system and holds no memory."""
    content = io.BytesIO()
    kind = path.suffix.lstrip(".")
    figure.savefig(content, format=kind, dpi=150, bbox_inches="tight", metadata={"Software": None})
    write_bytes(path, content.getvalue())
    return path


def learning_curve(
    axes: Axes, steps: Sequence[int], values: Sequence[float], *, label: str
) -> None:
    """Evaluations during training against updates."""
    axes.plot(steps, values, "o-", color=BLUE, markersize=4)
    axes.set_xlabel("updates")
    axes.set_ylabel(label)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def arena(axes: Axes, walls: Arena) -> None:
    """The floor of a Point task: walls, and how near to them the agent's centre can come."""
    for rectangles, colour in ((walls.obstacles, SHADE), (walls.walls, GREY)):
        for wall in rectangles:
            corner = (wall.left, wall.bottom)
            size = (wall.right - wall.left, wall.top - wall.bottom)
            axes.add_patch(Rectangle(corner, *size, color=colour, linewidth=0))
    axes.set_xlim(-BOUND, BOUND)
    axes.set_ylim(-BOUND, BOUND)
    axes.set_aspect("equal")
    axes.set_xticks([-BOUND, 0, BOUND])
    axes.set_yticks([-BOUND, 0, BOUND])


def goal_disc(axes: Axes, goal: Float[np.ndarray, "2"], radius: float) -> None:
    """A goal and how near is near enough."""
    axes.add_patch(Circle((goal[0], goal[1]), radius, color=GREEN, alpha=0.35, linewidth=0))
    axes.plot(*goal, "+", color=GREEN, markersize=9, markeredgewidth=2)


def vector_field(
    axes: Axes,
    policy: Policy,
    goal: Float[np.ndarray, "2"],
    *,
    horizon: int | None,
    walls: Arena,
    points: int = 24,
) -> None:
    """Where a 2-D policy goes from every place, for one goal."""
    ticks = np.linspace(-BOUND, BOUND, points + 2, dtype=np.float32)[1:-1]
    grid = np.stack(np.meshgrid(ticks, ticks), -1).reshape(-1, 2)
    grid = grid[walls.is_free(grid.astype(np.float64))]
    told = None if horizon is None else np.float32(horizon)
    actions = np.asarray(
        jax.vmap(policy, (0, None, None))(grid, np.asarray(goal, np.float32), told)
    )
    speed = np.linalg.norm(actions, axis=1)
    axes.quiver(
        *grid.T,
        *actions.T,
        speed,
        cmap="viridis",
        angles="xy",
        scale_units="xy",
        scale=2.6,
        width=0.004,
        clim=(0, np.sqrt(2)),
    )


def value_map(axes: Axes, values: Float[np.ndarray, " points"], *, low: float) -> AxesImage:
    """A value at every place of a square grid on the floor of a Point task, in rows from below."""
    side = round(len(values) ** 0.5)
    picture = axes.imshow(
        values.reshape(side, side),
        origin="lower",
        extent=(-BOUND, BOUND, -BOUND, BOUND),
        cmap="viridis",
        vmin=low,
        vmax=0.0,
    )
    axes.set_xticks([-BOUND, 0, BOUND])
    axes.set_yticks([-BOUND, 0, BOUND])
    return picture


def agreement(axes: Axes, truth: Float[np.ndarray, "..."], guess: Float[np.ndarray, "..."]) -> None:
    """How estimates are spread at every true value; those of a perfect critic lie on the line."""
    levels = np.unique(truth)
    spread = [guess[truth == level] for level in levels]
    axes.boxplot(
        spread,
        positions=levels,
        widths=0.5,
        whis=(5, 95),
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": SHADE, "edgecolor": INK},
        medianprops={"color": BLUE, "linewidth": 2},
        manage_ticks=False,
    )
    axes.plot(levels, levels, "--", color=GREY, zorder=0)
    axes.set_xlabel("true value")
    axes.set_ylabel("learned value")
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def paths(axes: Axes, played: Rollout, radius: float) -> None:
    """The ways that episodes took, each from its start to its goal."""
    for path, goal, success in zip(
        played.achieved_goals, played.desired_goals, played.success[:, -1], strict=True
    ):
        colour = BLUE if success else RED
        goal_disc(axes, goal, radius)
        axes.plot(*path.T, "-", color=colour, linewidth=1.2)
        axes.plot(*path.T, ".", color=colour, markersize=3)
        axes.plot(*path[0], "o", color=INK, markersize=5)


def patchwork(
    axes: Axes, path: Float[np.ndarray, "states 2"], switches: Sequence[int], *, label: str = ""
) -> None:
    """A trajectory made of pieces of others: a colour for each, a ring where it switches.

    `switches` holds the step before each switch.
    """
    edges = [0, *(step + 1 for step in switches), len(path)]
    for piece, (begin, end) in enumerate(itertools.pairwise(edges)):
        colour = PIECES[piece % len(PIECES)]
        axes.plot(*path[begin : end + 1].T, "-", color=colour, linewidth=1.2)
        axes.plot(*path[begin:end].T, ".", color=colour, markersize=4)
    for step in switches:
        middle = (path[step] + path[step + 1]) / 2
        axes.plot(*middle, "o", color=INK, markersize=11, fillstyle="none", markeredgewidth=1.4)
    axes.plot(*path[0], "o", color=INK, markersize=5)
    axes.plot(*path[-1], "+", color=GREEN, markersize=11, markeredgewidth=2.5)
    axes.set_title(label, fontsize=9)


def _three_digits(number: float) -> str:
    """As people write it: 25.5, 1,470, 172,000."""
    return f"{number:.3g}" if number < 1000 else f"{float(f'{number:.3g}'):,.0f}"


def _duration(milliseconds: float) -> str:
    return (
        f"{_three_digits(milliseconds)} ms"
        if milliseconds < 1000
        else f"{_three_digits(milliseconds / 1000)} s"
    )


def timing(axes: Axes, milliseconds: Mapping[str, float], *, title: str, baseline: str) -> None:
    """Bars of time per method on a logarithmic scale, each with its ratio to the baseline."""
    names = list(milliseconds)
    colours = [BLUE if name == baseline else GREY for name in names]
    bars = axes.bar(names, list(milliseconds.values()), color=colours, width=0.65)
    for name, bar in zip(names, bars, strict=True):
        ratio = milliseconds[name] / milliseconds[baseline]
        text = _duration(milliseconds[name])
        text += "" if name == baseline else f"\nx {_three_digits(ratio)}"
        axes.annotate(
            text,
            (bar.get_x() + bar.get_width() / 2, bar.get_height()),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
            color=INK,
        )
    axes.set_yscale("log")
    # Room for the labels above the highest bar.
    axes.set_ylim(min(milliseconds.values()) / 3, max(milliseconds.values()) * 12)
    axes.set_ylabel("milliseconds")
    axes.set_title(title, fontsize=10)
    axes.set_xticks(range(len(names)), [name.replace("-", "-\n") for name in names], fontsize=9)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
