"""Drawings of the Point tasks that several examples share. All draw on axes made by the caller."""

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle, Rectangle

from merlin.envs.point import BOUND, Arena
from merlin.envs.rollout import Rollout
from merlin.evaluation.figures import BLUE, GREEN, GREY, INK, RED
from merlin.policies.base import Policy

SHADE = "#e8ebee"
PIECES = (BLUE, "#d98324", "#7b4fa3", "#1f8a8a", RED)
"""Colours of pieces or components, in turn."""


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


def goal_disc(axes: Axes, goal: np.ndarray, radius: float) -> None:
    """A goal and the radius within which it counts as reached."""
    axes.add_patch(Circle((goal[0], goal[1]), radius, color=GREEN, alpha=0.35, linewidth=0))
    axes.plot(*goal, "+", color=GREEN, markersize=9, markeredgewidth=2)


def vector_field(
    axes: Axes,
    policy: Policy,
    goal: np.ndarray,
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
