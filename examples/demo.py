"""The main job end to end: collect data, train, evaluate, look.

Random play in four rooms becomes a policy that reaches any goal. Writes runs/demo/.
"""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import merlin
from merlin.envs.point import ROOMS
from merlin.evaluation import figures
from merlin.evaluation.evaluate import play
from merlin.policies.base import Policy

TASK, UPDATES, EPISODES = "PointRooms", 4000, 1000
OUT = Path("runs/demo")


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    print(f"1. Collecting {merlin.TASKS[TASK].episodes} episodes of random play in {TASK} ...")
    merlin.save(merlin.collect(TASK, "random", seed=0), OUT / "data")
    data = merlin.load(OUT / "data")

    print(f"2. Training Merlin for {UPDATES} updates ...")
    learner = merlin.Merlin(hindsight_ratio=1.0, horizon=1)
    run = merlin.train(learner, data, updates=UPDATES, out=OUT / "run", quiet=False, eval_every=100)

    print(f"3. Evaluating on {EPISODES} fixed episodes ...")
    table = Table("policy", "return", "success")
    chance = merlin.evaluate(RandomPolicy(), TASK, episodes=EPISODES)
    final = merlin.evaluate(run.policy, TASK, episodes=EPISODES)
    for name, scores in (("random actions", chance), ("Merlin, trained on them", final)):
        row = scores.summary()
        table.add_row(name, *(interval(row[key]) for key in ("return", "success")))
    Console().print(table)

    print("4. Drawing ...")
    for path in (learning_curve(), fields(run.policy), reached(run.policy)):
        print(f"   {path}")


class RandomPolicy:
    """The behaviour that the data comes from, for comparison."""

    def __call__(self, observation, goal, horizon=None, key=None):
        return jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)


def interval(values: dict) -> str:
    return "{:.2f} [{:.2f}, {:.2f}]".format(values["mean"], *values["ci95"])


def learning_curve() -> Path:
    rows = [json.loads(line) for line in (OUT / "run/seed-0/metrics.jsonl").open()]
    steps = [row["step"] for row in rows if "eval/return" in row]
    figure = Figure(figsize=(9, 3.2))
    axes = figure.subplots(1, 2)
    for ax, key, label in (
        (axes[0], "eval/return", "discounted return"),
        (axes[1], "eval/success", "success"),
    ):
        values = [row[key] for row in rows if key in row]
        ax.plot(steps, values, "o-", color=figures.BLUE, markersize=4)
        ax.set(xlabel="updates", ylabel=label)
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylim(0, 32)
    axes[1].set_ylim(0, 1)
    figure.suptitle(f"Merlin on random {TASK} data, 100 episodes per point")
    return figures.save(figure, OUT / "learning_curve.png")


def fields(policy: Policy) -> Path:
    goal = np.array([3.0, 3.0])
    figure = Figure(figsize=(12, 4))
    axes = figure.subplots(1, 3)
    for ax, horizon in zip(axes, (1, 5, 15), strict=True):
        figures.arena(ax, ROOMS)
        figures.goal_disc(ax, goal, radius=1.0)
        figures.vector_field(ax, policy, goal, horizon=horizon, walls=ROOMS)
        ax.set_title(f"horizon {horizon}")
    figure.suptitle("The policy's mean action around one goal")
    return figures.save(figure, OUT / "vector_field.png")


def reached(policy: Policy) -> Path:
    played = play(policy, TASK, episodes=6)
    figure = Figure(figsize=(9, 6.4))
    axes = figure.subplots(2, 3)
    for index, ax in enumerate(axes.flat):
        figures.arena(ax, ROOMS)
        figures.paths(ax, type(played)(*(f[index : index + 1] for f in played)), radius=1.0)
        ax.set_title("reached" if played.success[index, -1] else "not reached", fontsize=9)
    figure.suptitle(
        "Six episodes: start (dot) to goal (disc); shaded: where walls keep the agent out"
    )
    return figures.save(figure, OUT / "trajectories.png")


if __name__ == "__main__":
    main()
