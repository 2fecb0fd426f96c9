"""Draw the trajectories that Merlin-NP and Merlin-P add to the data of PointRooms.

Writes docs/images/augmented.png, or the path given as an argument. The upper row has four stitched
trajectories, with one colour per piece of an episode and a ring around every switch. The lower row
has four rollouts of the reverse models.
"""

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import drawing
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import merlin
from merlin.augment import Rollouts, Stitch
from merlin.envs.point import ROOMS
from merlin.evaluation import figures

COLUMNS = 4


def main(out: Path) -> None:
    data = merlin.collect("PointRooms", "random")
    stitch = Stitch(threshold="auto")
    embeddings, _ = stitch.embed(data, seed=0, quiet=False)
    walks, report = stitch.stitch(data, embeddings, seed=0, quiet=False)
    switches = walks.switches()
    # Choose walks with an average number of switches.
    telling = np.flatnonzero((switches.sum(1) >= 2) & (switches.sum(1) <= 3))
    made = Rollouts()(data, seed=0, quiet=False)

    figure = Figure(figsize=(13, 6.6))
    axes = figure.subplots(2, COLUMNS)
    for column in range(COLUMNS):
        stitched, rolled = axes[:, column]
        for ax in (stitched, rolled):
            drawing.arena(ax, ROOMS)
        chosen = telling[column]
        path = np.asarray(data.observations)[walks.rows[chosen]]
        at = np.flatnonzero(switches[chosen]).tolist()
        patchwork(stitched, path, at, label=f"stitched, {len(at)} switches")
        patchwork(rolled, made.dataset.episode(column).observations, [], label="model-made")
    figure.suptitle(
        "New trajectories from random play in PointRooms: from start (dot) to goal (+); "
        f"rings: switches, {report['stitches']:.1f} per trajectory"
    )
    print(figures.save(figure, out))


def patchwork(axes: Axes, path: np.ndarray, switches: Sequence[int], *, label: str = "") -> None:
    """A trajectory made of pieces of others: a colour for each, a ring where it switches.

    `switches` holds the step before each switch.
    """
    edges = [0, *(step + 1 for step in switches), len(path)]
    for piece, (begin, end) in enumerate(itertools.pairwise(edges)):
        colour = drawing.PIECES[piece % len(drawing.PIECES)]
        axes.plot(*path[begin : end + 1].T, "-", color=colour, linewidth=1.2)
        axes.plot(*path[begin:end].T, ".", color=colour, markersize=4)
    for step in switches:
        middle = (path[step] + path[step + 1]) / 2
        axes.plot(
            *middle, "o", color=figures.INK, markersize=11, fillstyle="none", markeredgewidth=1.4
        )
    axes.plot(*path[0], "o", color=figures.INK, markersize=5)
    axes.plot(*path[-1], "+", color=figures.GREEN, markersize=11, markeredgewidth=2.5)
    axes.set_title(label, fontsize=9)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images/augmented.png"))
