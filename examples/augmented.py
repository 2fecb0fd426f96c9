"""What Merlin-NP and Merlin-P add to the data: stitched and model-made trajectories in PointRooms.

Writes docs/images/augmented.png (or where told): above, four stitched trajectories, each piece of
an episode in a colour of its own and a ring around every switch; below, four that the reverse
models walked back from the last state of an episode.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import merlin
from merlin import figures
from merlin.augment import Rollouts, Stitch
from merlin.tasks.point import ROOMS

COLUMNS = 4


def main(out: Path) -> None:
    data = merlin.collect("PointRooms", "random")
    stitch = Stitch(threshold="auto")
    embeddings, _ = stitch.embed(data, seed=0, quiet=False)
    walks, report = stitch.stitch(data, embeddings, seed=0, quiet=False)
    switches = walks.switches()
    # Some with as many switches as they have on average, and that can be seen.
    telling = np.flatnonzero((switches.sum(1) >= 2) & (switches.sum(1) <= 3))
    made = Rollouts()(data, seed=0, quiet=False)

    figure = Figure(figsize=(13, 6.6))
    axes = figure.subplots(2, COLUMNS)
    for column in range(COLUMNS):
        stitched, rolled = axes[:, column]
        for ax in (stitched, rolled):
            figures.arena(ax, ROOMS)
        chosen = telling[column]
        path = np.asarray(data.observations)[walks.rows[chosen]]
        at = np.flatnonzero(switches[chosen]).tolist()
        figures.patchwork(stitched, path, at, label=f"stitched, {len(at)} switches")
        figures.patchwork(rolled, made.dataset.episode(column).observations, [], label="model-made")
    figure.suptitle(
        "New trajectories from random play in PointRooms: from start (dot) to goal (+); "
        f"rings: switches, {report['stitches']:.1f} per trajectory"
    )
    print(figures.save(figure, out))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images/augmented.png"))
