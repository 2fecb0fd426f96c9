"""Compare the critic of WGCSL with the true value, on random data of PointReach.

The true value is known there: a step moves each coordinate by at most 1, and a goal is reached
within a distance of 1. Prints the rank correlation over states and goals on a grid, and draws both.
"""

import argparse
from pathlib import Path

import drawing
import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from scipy.stats import spearmanr

import merlin
from merlin.data.spec import make_spec
from merlin.envs.point import BOUND, TOLERANCE, steps_in_the_open
from merlin.evaluation import figures
from merlin.learners import WGCSL
from merlin.nets.td import act, value
from merlin.training.loop import compiled_chunk

SHOWN = np.array([[0.0, 0.0], [3.0, 3.0], [-4.0, 1.0]], np.float32)
POINTS, GOALS = 41, 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=Path("docs/images/critic.png"))
    given = parser.parse_args()

    data = merlin.collect("PointReach", "random", seed=0)
    learner = WGCSL()
    spec = make_spec(data, learner.sampling, TOLERANCE)
    state = learner.init(jax.random.key(0), spec)
    train = compiled_chunk(learner, together=False)
    state, _ = train(state, data.on_device(), jax.random.key(1), 0, given.updates)
    nets = state.actor_critic

    @jax.jit
    def learned(states, goals):
        """The critic's value of the policy's own action."""
        x = nets.policy.state_goal(states, goals)
        return value(nets.critic, x, act(nets.policy.net, x))

    def both(goals):
        """Learned and true values: one row per goal, one column per state of the grid."""
        pairs = np.tile(grid(POINTS), (len(goals), 1)), np.repeat(goals, POINTS**2, axis=0)
        # The reward is -1 in every step but the last, which arrives.
        late = steps_in_the_open(*pairs) - 1
        truth = -(1 - learner.discount**late) / (1 - learner.discount)
        shape = (len(goals), POINTS**2)
        return np.asarray(learned(*pairs)).reshape(shape), truth.reshape(shape)

    guess, truth = both(grid(GOALS))
    rank = spearmanr(guess.ravel(), truth.ravel()).statistic
    print(f"Spearman's rank correlation, {guess.size} states and goals: {rank:.3f}")
    print(figures.save(draw(*both(SHOWN), rank), given.out))


def grid(points: int) -> np.ndarray:
    ticks = np.linspace(-BOUND, BOUND, points + 2, dtype=np.float32)[1:-1]
    return np.stack(np.meshgrid(ticks, ticks), -1).reshape(-1, 2)


def draw(guess: np.ndarray, truth: np.ndarray, rank: float) -> Figure:
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    axes = figure.subplots(2, len(SHOWN) + 1, width_ratios=[1, 1, 1, 1.25])
    low = min(guess.min(), truth.min())
    for row, (name, values) in enumerate((("learned", guess), ("true", truth))):
        for column, goal in enumerate(SHOWN):
            ax = axes[row, column]
            picture = value_map(ax, values[column], low=low)
            drawing.goal_disc(ax, goal, TOLERANCE)
            ax.set_title(f"{name}, goal ({goal[0]:g}, {goal[1]:g})", fontsize=10)
    figure.colorbar(picture, ax=axes[:, :3], label="value", shrink=0.8)
    for ax in axes[:, 3]:
        ax.remove()
    agreement(figure.add_subplot(axes[0, 3].get_gridspec()[:, 3]), truth, guess)
    figure.suptitle(
        "What WGCSL's critic thinks of states in PointReach, beside the discounted distance to the "
        f"goal (Spearman {rank:.2f} over a grid of states and goals)",
        fontsize=11,
    )
    return figure


def value_map(axes: Axes, values: np.ndarray, *, low: float) -> AxesImage:
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


def agreement(axes: Axes, truth: np.ndarray, guess: np.ndarray) -> None:
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
        boxprops={"facecolor": drawing.SHADE, "edgecolor": figures.INK},
        medianprops={"color": figures.BLUE, "linewidth": 2},
        manage_ticks=False,
    )
    axes.plot(levels, levels, "--", color=figures.GREY, zorder=0)
    axes.set_xlabel("true value")
    axes.set_ylabel("learned value")
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


if __name__ == "__main__":
    main()
