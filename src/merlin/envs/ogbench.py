"""Names and sizes of OGBench's state-based datasets, available without OGBench."""

import difflib
import itertools
from typing import NamedTuple

from merlin.errors import MerlinError

PREFIX = "ogbench:"
GOALS = 5
"""Number of evaluation goals of every environment."""
DOWNLOADED, REGENERATED = "downloaded", "regenerated"
"""The two origins of a dataset: OGBench's own file, or a new sample by the same recipe."""


class Size(NamedTuple):
    """Sizes of a dataset and its environment."""

    env: str  # OGBench's id of the environment
    observation: int
    action: int
    steps: int  # time limit of an evaluation
    episodes: int
    states: int  # per episode of the data
    regenerated: bool  # whether OGBench ships what is needed to generate the data


def _sizes() -> dict[str, Size]:
    found: dict[str, Size] = {}

    def add(env: str, kind: str, *sizes: int, regenerated: bool = False) -> None:
        observation, action, steps, episodes, states = sizes
        found[f"{env}-{kind}-v0"] = Size(
            f"{env}-v0", observation, action, steps, episodes, states, regenerated
        )

    mazes = ("medium", "large", "giant", "teleport")
    for body, kind, maze in itertools.product(("point", "ant"), ("navigate", "stitch"), mazes):
        data = (5000, 201) if kind == "stitch" else (500, 2001) if maze == "giant" else (1000, 1001)
        sizes = (2, 2) if body == "point" else (29, 8)
        add(f"{body}maze-{maze}", kind, *sizes, 1000, *data, regenerated=body == "point")
    for maze in ("medium", "large", "teleport"):
        add(f"antmaze-{maze}", "explore", 29, 8, 1000, 10_000, 501)
    for maze, limit in {"medium": 2000, "large": 2000, "giant": 4000}.items():
        stitched = 10_000 if maze == "giant" else 5000
        add(f"humanoidmaze-{maze}", "navigate", 69, 21, limit, 1000, limit + 1)
        add(f"humanoidmaze-{maze}", "stitch", 69, 21, limit, stitched, 401)
    for maze, (moved, stitched, states) in {
        "arena": (1000, 5000, 201),
        "medium": (4000, 8000, 501),
    }.items():
        add(f"antsoccer-{maze}", "navigate", 42, 8, 1000, moved, 1001)
        add(f"antsoccer-{maze}", "stitch", 42, 8, 1000, stitched, states)
    arms = {
        "cube-single": (28, 200, 1000),
        "cube-double": (37, 500, 1000),
        "cube-triple": (46, 1000, 3000),
        "cube-quadruple": (55, 1000, 5000),
        "scene": (40, 750, 1000),
        "puzzle-3x3": (55, 500, 1000),
        "puzzle-4x4": (83, 500, 1000),
        "puzzle-4x5": (99, 1000, 3000),
        "puzzle-4x6": (115, 1000, 5000),
    }
    for (env, (width, limit, episodes)), kind in itertools.product(arms.items(), ("play", "noisy")):
        add(env, kind, width, 5, limit, episodes, 1001, regenerated=True)
    return found


SIZES = _sizes()
"""Every state-based dataset of OGBench, by name."""


def unknown(name: str) -> MerlinError:
    """The error for an unknown OGBench dataset."""
    close = difflib.get_close_matches(name.removeprefix(PREFIX), SIZES, n=1, cutoff=0.0)
    return MerlinError(
        f"{name}: OGBench has no state-based dataset of that name; did you mean {PREFIX}{close[0]}?"
    )
