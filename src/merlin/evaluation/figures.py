"""Figures of runs and policies. All functions draw on axes made by the caller."""

import io
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from merlin.envs.point import BOUND, Arena
from merlin.envs.rollout import Rollout
from merlin.io.files import write_bytes
from merlin.policies.base import Policy

INK, BLUE, GREEN, RED, GREY = "#22272e", "#2f6fb7", "#2e9e5b", "#c8443a", "#9aa3ad"
SHADE = "#e8ebee"


def save(figure: Figure, path: Path) -> Path:
    """Write a figure. Without pyplot, it needs no window system and is freed after use."""
    content = io.BytesIO()
    kind = path.suffix.lstrip(".")
    figure.savefig(content, format=kind, dpi=150, bbox_inches="tight", metadata={"Software": None})
    write_bytes(path, content.getvalue())
    return path


def arena(axes: Axes, walls: Arena) -> None:
    """The arena of a Point task: walls, and the limits of the agent's centre."""
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
    """A goal and the radius within which it counts as reached."""
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
    """The actions of a 2-D policy over the arena, for one goal."""
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


def paths(axes: Axes, played: Rollout, radius: float) -> None:
    """The paths of episodes, each from its start to its goal."""
    for path, goal, success in zip(
        played.achieved_goals, played.desired_goals, played.success[:, -1], strict=True
    ):
        colour = BLUE if success else RED
        goal_disc(axes, goal, radius)
        axes.plot(*path.T, "-", color=colour, linewidth=1.2)
        axes.plot(*path.T, ".", color=colour, markersize=3)
        axes.plot(*path[0], "o", color=INK, markersize=5)
