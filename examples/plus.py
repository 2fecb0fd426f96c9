"""Pictures of what merlin-plus learned: components, temporal distance, and the way out of a corner.

Takes two runs, for instance

  merlin train PointRooms --variant random --algo merlin-plus --updates 5000 --out runs/rooms-plus
  merlin train FetchPush --variant expert --algo merlin-plus --updates 20000 --out runs/push-plus
  python examples/plus.py --rooms runs/rooms-plus --push runs/push-plus
"""

import argparse
import dataclasses
from pathlib import Path

import drawing
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from scipy.stats import spearmanr

import merlin
from merlin.envs.point import BOUND, ROOMS, TOLERANCE
from merlin.evaluation import figures
from merlin.evaluation.evaluate import play
from merlin.policies.mixture import densest

POINTS = 51
GOAL = np.array([-3.0, -3.0], np.float32)
IMAGES = Path("docs/images")
EPISODES = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rooms", type=Path, required=True, help="run on PointRooms")
    parser.add_argument("--push", type=Path, help="run on FetchPush, to draw components")
    parser.add_argument("--out", type=Path, default=IMAGES)
    given = parser.parse_args()
    rooms = merlin.load_run(given.rooms).policy
    print(figures.save(distances(rooms), given.out / "plus-distance.png"))
    print(figures.save(corner(rooms), given.out / "plus-corner.png"))
    if given.push is not None:
        run = merlin.load_run(given.push)
        data = merlin.load(run.config.data.path)
        print(figures.save(components(run.policy, data), given.out / "plus-components.png"))


def grid() -> np.ndarray:
    ticks = np.linspace(-BOUND, BOUND, POINTS)
    return np.stack(np.meshgrid(ticks, ticks), -1).reshape(-1, 2)


def true_steps(goal: np.ndarray) -> np.ndarray:
    """Fewest steps from every place of the grid into the goal disc, by value iteration.

    Where an action leads is rounded to the grid, whose places are a fifth of a step apart.
    """
    places = grid()
    push = np.stack(np.meshgrid(*[np.linspace(-1, 1, 11)] * 2), -1).reshape(-1, 2)
    spacing = 2 * BOUND / (POINTS - 1)
    following = []
    for action in push:
        column, row = np.rint(
            (ROOMS.move(places, np.tile(action, (len(places), 1))) + BOUND) / spacing
        ).T
        following.append((row * POINTS + column).astype(int))
    free = ROOMS.is_free(places)
    there = np.linalg.norm(places - goal, axis=1) <= TOLERANCE
    steps = np.full(len(places), np.inf)
    while True:
        ahead = np.where(there, 0.0, steps)
        better = np.where(free, 1 + np.min([ahead[f] for f in following], axis=0), np.inf)
        if np.array_equal(better, steps):
            return steps
        steps = better


def distances(policy) -> Figure:
    """The temporal distance to one goal beside the true number of steps."""
    truth = true_steps(GOAL)
    places = grid().astype(np.float32)
    x = policy.state_goal(jnp.asarray(places), jnp.tile(GOAL, (len(places), 1)))
    learned = np.array(jax.vmap(lambda row: policy.judge.steps(row, policy.discount))(x))
    free = np.isfinite(truth)
    learned[~free] = np.nan
    rank = spearmanr(learned[free], truth[free]).statistic
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    shown = {
        "learned distance": learned,
        "true steps to the goal": np.where(free, truth, np.nan),
    }
    for axes, (name, values) in zip(figure.subplots(1, 2), shown.items(), strict=True):
        picture = axes.imshow(
            values.reshape(POINTS, POINTS),
            origin="lower",
            extent=(-BOUND, BOUND, -BOUND, BOUND),
            cmap="viridis_r",
        )
        drawing.goal_disc(axes, GOAL, TOLERANCE)
        axes.set_title(name, fontsize=10)
        figure.colorbar(picture, ax=axes, shrink=0.85)
    figure.suptitle(f"Temporal distance on PointRooms (Spearman {rank:.2f})", fontsize=11)
    return figure


def corner(policy) -> Figure:
    """An episode that is finished only with looking ahead, played without and with it."""
    fixed = dataclasses.replace(policy, judge=None)
    played = {"densest component": fixed, "looking ahead": policy}
    played = {name: play(p, "PointRooms", episodes=EPISODES) for name, p in played.items()}
    failed = ~played["densest component"].success[:, -1].astype(bool)
    saved = np.flatnonzero(failed & played["looking ahead"].success[:, -1].astype(bool))
    episode = slice(saved[0], saved[0] + 1) if len(saved) else slice(0, 1)
    figure = Figure(figsize=(9, 4.4), layout="constrained")
    for axes, (name, rollout) in zip(figure.subplots(1, 2), played.items(), strict=True):
        drawing.arena(axes, ROOMS)
        one = type(rollout)(*(field[episode] for field in rollout))
        drawing.paths(axes, one, TOLERANCE)
        done = rollout.success[:, -1].mean()
        axes.set_title(f"{name}: {done:.0%} of {EPISODES} episodes arrive", fontsize=10)
    return figure


def components(policy, data, shown: int = 3) -> Figure:
    """Two dimensions of the mixture at recorded states, with the action that was recorded there."""
    rng = np.random.default_rng(3)
    figure = Figure(figsize=(4 * shown, 4), layout="constrained")
    episodes = rng.choice(len(data), shown, replace=False)
    for axes, episode in zip(figure.subplots(1, shown), episodes, strict=True):
        t = 8
        at = int(data.starts[episode]) + t
        state, goal = np.asarray(data.observations[at]), np.asarray(data.desired_goals[episode])
        weights, means, stds = policy.distribution(jnp.asarray(state), jnp.asarray(goal))
        share = np.asarray(jax.nn.softmax(weights))
        for k, (mean, std) in enumerate(zip(np.asarray(means), np.asarray(stds), strict=True)):
            colour = drawing.PIECES[k % len(drawing.PIECES)]
            size = 4 * std[:2]
            axes.add_patch(Ellipse(mean[:2], *size, color=colour, alpha=0.2 + 0.5 * share[k]))
            axes.annotate(f"{share[k]:.2f}", mean[:2], fontsize=8, color=figures.INK)
        average = share @ np.asarray(means)
        chosen = np.asarray(densest((weights, means, stds), policy.action_scale)[0])
        recorded = np.asarray(data.actions[at - episode])
        axes.plot(*average[:2], "x", color=figures.RED, label="mean of the mixture")
        axes.plot(*chosen[:2], "o", color=figures.INK, label="densest component")
        axes.plot(*recorded[:2], "*", color=figures.GREEN, markersize=11, label="recorded")
        axes.set_xlim(-1.3, 1.3)
        axes.set_ylim(-1.3, 1.3)
        axes.set_aspect("equal")
        axes.set_title(f"episode {episode}, step {t}", fontsize=9)
    figure.axes[0].legend(fontsize=8, loc="lower left")
    figure.suptitle("Components on FetchPush, first two dimensions of the action", fontsize=11)
    return figure


if __name__ == "__main__":
    main()
