"""Train Merlin and Merlin-map on random play in four rooms, and compare them.

Merlin, the paper's method, and Merlin-map, which needs no tuning, learn from the same data. Both
are scored on the same episodes, and episodes in which they differ are drawn. The output is in
runs/demo/; its corner.gif is the picture in the README.
"""

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import drawing
import jax
import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.table import Table

import merlin
from merlin.deploy.play import write_page
from merlin.envs.point import ROOMS
from merlin.envs.rollout import Rollout
from merlin.evaluation import figures, video
from merlin.evaluation.evaluate import play, score
from merlin.policies.base import Policy

TASK, EPISODES = "PointRooms", 1000
OUT = Path("runs/demo")
METHODS, UPDATES = ("merlin", "merlin-map"), 1000
SHOWN = 3
STEPS, TILE = 25, 280
"""Number of steps in the video, and the width of each half in pixels."""


def main() -> None:
    began = time.monotonic()
    shutil.rmtree(OUT, ignore_errors=True)
    tell(began, f"collecting {merlin.TASKS[TASK].episodes} episodes of random play in {TASK}")
    merlin.save(merlin.collect(TASK, "random", seed=0), OUT / "data")
    data = merlin.load(OUT / "data")

    tell(began, f"training {' and '.join(METHODS)} side by side, {UPDATES} updates each")
    how = {"updates": UPDATES, "eval_every": UPDATES, "final_episodes": 100}
    with ThreadPoolExecutor() as pool:
        started = {n: pool.submit(merlin.train, n, data, out=OUT / n, **how) for n in METHODS}
        try:
            runs = {name: run.result() for name, run in started.items()}
        except KeyboardInterrupt:
            os._exit(130)  # otherwise Python waits until both are trained

    tell(began, f"playing {EPISODES} fixed episodes with each policy")
    policies = {"random actions": random_actions, **{n: run.policy for n, run in runs.items()}}
    played = {name: play(policy, TASK, episodes=EPISODES) for name, policy in policies.items()}
    table = Table("policy", "return (95 % interval)", "success")
    for name, episodes in played.items():
        row = score(episodes).summary()
        table.add_row(name, *(interval(row[key]) for key in ("return", "success")))
    Console().print(table)

    tell(began, "drawing")
    film = corner_film(played["merlin"], played["merlin-map"])
    corners = corner_picture(played["merlin"], played["merlin-map"])
    field = field_picture(runs["merlin"].policy)
    page = write_page([OUT / name for name in runs], OUT / "play.html")["path"]
    print(f"  {film}  Merlin stops at a corner, Merlin-map goes around it")
    print(f"  {corners}  three such episodes")
    print(f"  {field}  where Merlin goes from every place, for one goal")
    print(f"  {page}  Merlin live in your browser (click a goal), episodes of Merlin-map")
    tell(began, "done")


def tell(began: float, what: str) -> None:
    print(f"{time.monotonic() - began:4.0f} s  {what}", flush=True)


def random_actions(observation, goal, horizon=None, key=None):
    """The behaviour that the data comes from, for comparison."""
    return jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)


def interval(values: dict) -> str:
    return "{:.2f} [{:.2f}, {:.2f}]".format(values["mean"], *values["ci95"])


def only_map_finishes(merlin_played: Rollout, map_played: Rollout) -> np.ndarray:
    """Which episodes Merlin does not finish and Merlin-map does."""
    return map_played.success[:, -1] & ~merlin_played.success[:, -1]


def one_episode(played: Rollout, index: int) -> Rollout:
    return type(played)(*(field[index : index + 1] for field in played))


def corner_film(merlin_played: Rollout, map_played: Rollout) -> Path:
    """The first such episode as a GIF, the two policies side by side."""
    index = int(np.flatnonzero(only_map_finishes(merlin_played, map_played))[0])
    halves = []
    for name, played in (("Merlin", merlin_played), ("Merlin-map", map_played)):
        one = one_episode(played, index)
        (frames,) = video.film(merlin.TASKS[TASK], one, video.FINAL_SEED + index, TILE)
        halves.append([named(frame, name) for frame in frames[: STEPS + 1]])
    video.write_video(OUT / "corner.gif", video.mosaic(halves))
    return OUT / "corner.gif"


def named(frame: np.ndarray, name: str) -> np.ndarray:
    """A frame with the name of its policy above."""
    strip = Image.new("RGB", (frame.shape[1], 22), "white")
    middle = (frame.shape[1] / 2, 11)
    ImageDraw.Draw(strip).text(middle, name, "black", ImageFont.load_default(16), anchor="mm")
    return np.concatenate([np.asarray(strip), frame])


def corner_picture(merlin_played: Rollout, map_played: Rollout) -> Path:
    """The first episodes that Merlin does not finish and Merlin-map does."""
    only_map = only_map_finishes(merlin_played, map_played)
    chosen = np.flatnonzero(only_map)[:SHOWN]
    figure = Figure(figsize=(9, 6.4))
    rows = figure.subplots(2, SHOWN)
    for row, name, played in zip(
        rows, ("Merlin", "Merlin-map"), (merlin_played, map_played), strict=True
    ):
        for axes, index in zip(row, chosen, strict=False):
            drawing.arena(axes, ROOMS)
            drawing.paths(axes, one_episode(played, index), radius=1.0)
            axes.set_title(f"{name}: {ending(played, index)}", fontsize=9)
    figure.suptitle(
        f"{len(chosen)} of the {only_map.sum()} of {len(only_map)} episodes that only Merlin-map "
        "finishes. Dot: start; disc: goal;\ndark: walls; light: where the centre of the robot, a "
        "disc of radius 0.5, cannot be",
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
        drawing.arena(axes, ROOMS)
        drawing.goal_disc(axes, goal, radius=1.0)
        drawing.vector_field(axes, policy, goal, horizon=horizon, walls=ROOMS)
        axes.set_title(f"horizon {horizon}")
    figure.suptitle("Merlin's mean action at every place, for one goal and three horizons")
    return figures.save(figure, OUT / "vector_field.png")


if __name__ == "__main__":
    main()
