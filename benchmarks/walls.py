"""Do stitches lead through walls? PointRooms, learned encoder against raw positions.

Stitches the same number of times with neighbours in the space of the contrastive encoder and with
neighbours in the plane itself (the threshold is chosen for so many stitches per trajectory), and
counts the stitches whose two states lie on different sides of a wall: the straight line between
them crosses it. With few episodes neighbours are far apart, and the two differ. Prints one JSON
line per number of episodes.
"""

import argparse
import json
import math

import numpy as np

import merlin
from merlin.augment import Stitch
from merlin.augment.stitch import Neighbours, Walks, threshold_for, walk
from merlin.envs.point import ROOMS

STITCHES = 2.5


def crossing(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Whether the straight line between two points passes through a wall, for many pairs."""
    crossed = np.zeros(len(one), bool)
    for share in np.linspace(0, 1, 201):
        x, y = (one + share * (other - one)).T
        for wall in ROOMS.walls:
            crossed |= (wall.left < x) & (x < wall.right) & (wall.bottom < y) & (y < wall.top)
    return crossed


def joined(walks: Walks) -> tuple[np.ndarray, np.ndarray]:
    """The two states of every stitch, as rows: the one that was left and the one gone on from."""
    at, step = np.nonzero(walks.switches())
    kept = walks.complete[at]
    at, step = at[kept], step[kept]
    return walks.rows[at, step] + 1, walks.rows[at, step + 1]


def measure(points: np.ndarray, data: merlin.Dataset, walks_wanted: int) -> dict:
    starts = np.asarray(data.starts)
    among = np.ones(len(points), bool)
    among[starts[:-1]] = False
    neighbours = Neighbours(points, starts, among=among)
    rng = np.random.default_rng(0)
    episodes = rng.integers(len(data), size=walks_wanted)
    threshold = threshold_for(STITCHES, neighbours, starts, episodes[:1000], forward=False)
    partner = neighbours.within(math.sqrt(2 * (1 - threshold)))
    walks = walk(episodes, starts, partner, forward=False)
    one, other = (np.asarray(data.observations)[rows] for rows in joined(walks))
    return {
        "stitches": round(walks.stitches(), 2),
        "joined": len(one),
        "mean_distance": round(float(np.linalg.norm(one - other, axis=1).mean()), 3),
        "through_walls": round(float(crossing(one, other).mean()), 4) if len(one) else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, nargs="*", default=[2000, 100, 20])
    parser.add_argument("--walks", type=int, default=2000)
    asked = parser.parse_args()
    everything = merlin.collect("PointRooms", "random", episodes=max(asked.episodes))
    for count in asked.episodes:
        parts = [everything.episode(e) for e in range(count)]
        data = merlin.Dataset.from_episodes(parts, task="PointRooms", variant="random")
        # As many updates as the full data gets, or little data would mean little training.
        epochs = 20 * len(everything) // count
        embeddings, loss = Stitch(encoder_epochs=epochs, encoder_max_updates=7657).embed(
            data, seed=0
        )
        row = {
            "benchmark": "stitches through walls, PointRooms random",
            "episodes": count,
            "encoder_loss": round(loss, 3),
            "encoder": measure(embeddings, data, asked.walks),
            "positions": measure(np.asarray(data.observations), data, asked.walks),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
