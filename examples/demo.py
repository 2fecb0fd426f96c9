"""The first minute: random play in four rooms becomes a policy that reaches any goal.

Merlin, the paper's method, and Merlin-map, which needs no tuning, learn from the same data. Both
are scored on the same episodes and drawn where they differ. Writes runs/demo/.
"""

import shutil
import time
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import merlin
from merlin.deploy.play import write_page
from merlin.envs.point import ROOMS
from merlin.envs.rollout import Rollout
from merlin.evaluation import figures
from merlin.evaluation.evaluate import play, score
from merlin.policies.base import Policy

TASK, EPISODES = "PointRooms", 1000
OUT = Path("runs/demo")
UPDATES = {"merlin": 2000, "merlin-map": 2000}
SHOWN = 3


def main() -> None:
    began = time.monotonic()
    shutil.rmtree(OUT, ignore_errors=True)
    tell(began, f"collecting {merlin.TASKS[TASK].episodes} episodes of random play in {TASK}")
    merlin.save(merlin.collect(TASK, "random", seed=0), OUT / "data")
    data = merlin.load(OUT / "data")

    runs = {}
    for name, updates in UPDATES.items():
        tell(began, f"training {name} for {updates} updates")
        runs[name] = merlin.train(
            name, data, updates=updates, eval_every=updates, final_episodes=100, out=OUT / name
        )

    tell(began, f"playing {EPISODES} fixed episodes with each policy")
    policies = {"random actions": random_actions, **{n: run.policy for n, run in runs.items()}}
    played = {name: play(policy, TASK, episodes=EPISODES) for name, policy in policies.items()}
    table = Table("policy", "return (95 % interval)", "success")
    for name, episodes in played.items():
        row = score(episodes).summary()
        table.add_row(name, *(interval(row[key]) for key in ("return", "success")))
    Console().print(table)

    tell(began, "drawing")
    corners = corner_picture(played["merlin"], played["merlin-map"])
    field = field_picture(runs["merlin"].policy)
    page = write_page([OUT / name for name in runs], OUT / "play.html")["path"]
    print(f"  {corners}  where Merlin stands still and Merlin-map goes around")
    print(f"  {field}  where Merlin goes from every place, for one goal")
    print(f"  {page}  both policies in your browser: open it, click a goal")
    tell(began, "done")


def tell(began: float, what: str) -> None:
    print(f"{time.monotonic() - began:4.0f} s  {what}", flush=True)


def random_actions(observation, goal, horizon=None, key=None):
    """The behaviour that the data comes from, for comparison."""
    return jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)


def interval(values: dict) -> str:
    return "{:.2f} [{:.2f}, {:.2f}]".format(values["mean"], *values["ci95"])


def corner_picture(merlin_played: Rollout, map_played: Rollout) -> Path:
    """The first episodes that Merlin does not finish and Merlin-map does."""
    only_map = map_played.success[:, -1] & ~merlin_played.success[:, -1]
    chosen = np.flatnonzero(only_map)[:SHOWN]
    figure = Figure(figsize=(9, 6.4))
    rows = figure.subplots(2, SHOWN)
    for row, name, played in zip(
        rows, ("Merlin", "Merlin-map"), (merlin_played, map_played), strict=True
    ):
        for axes, index in zip(row, chosen, strict=False):
            figures.arena(axes, ROOMS)
            figures.paths(axes, type(played)(*(f[index : index + 1] for f in played)), radius=1.0)
            axes.set_title(f"{name}: {ending(played, index)}", fontsize=9)
    figure.suptitle(
        f"Three of the {only_map.sum()} of {len(only_map)} episodes that only Merlin-map finishes: "
        "start (dot), goal (disc)",
        fontsize=10,
    )
    figure.tight_layout()
    return figures.save(figure, OUT / "corner.png")


def ending(played: Rollout, index: int) -> str:
    """How an episode ends."""
    if played.success[index, -1]:
        return "reached"
    last = played.achieved_goals[index, -10:]
    return "stands still" if np.ptp(last, axis=0).max() < 0.1 else "not reached"


def field_picture(policy: Policy) -> Path:
    goal = np.array([3.0, 3.0])
    figure = Figure(figsize=(12, 4))
    for axes, horizon in zip(figure.subplots(1, 3), (1, 5, 15), strict=True):
        figures.arena(axes, ROOMS)
        figures.goal_disc(axes, goal, radius=1.0)
        figures.vector_field(axes, policy, goal, horizon=horizon, walls=ROOMS)
        axes.set_title(f"horizon {horizon}")
    figure.suptitle("The policy's mean action around one goal")
    return figures.save(figure, OUT / "vector_field.png")


if __name__ == "__main__":
    main()
