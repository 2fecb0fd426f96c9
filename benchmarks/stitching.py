"""Stitching against a ball tree: 10,000 trajectories over 2,000,000 states of 16 dimensions.

The official implementation asks scikit-learn's BallTree for two neighbours at every step. Here the
same walks are made with the bounded, remembered search of `merlin.augment.stitch`, and a sample of
the queries is put to a BallTree in the same run and extrapolated to all of them. Wherever the ball
tree finds a state of another episode above the threshold as the nearest one, so must ours.

The embeddings are like those of an encoder: episodes are walks on a curved surface of five
dimensions, dense in places (episodes start in clusters), so that walks find a stranger above the
threshold a few times each. `--data FOLDER` takes the states of a dataset and the embeddings of an
encoder that is trained on them instead. Times are of the processor, all threads added up, because
they depend less on what else the machine does; the ratio by the clock stands beside it (ours uses
all cores). `--share` makes all smaller. Prints one JSON line.
"""

import argparse
import json
import math
import resource
import time

import numpy as np
from sklearn.neighbors import BallTree

from merlin.augment.stitch import NONE, Neighbours, Stitch, walk
from merlin.data import load

STATES, DIM, SURFACE, CLUSTERS = 50, 16, 5, 200


def embeddings_of(episodes: int, rng: np.random.Generator) -> np.ndarray:
    """Unit vectors of `episodes` walks of STATES states each."""
    hidden = rng.normal(size=(SURFACE, 64)) / math.sqrt(SURFACE)
    out = rng.normal(size=(64, DIM)) / 8.0
    centres = rng.normal(size=(CLUSTERS, SURFACE))
    points = np.empty((episodes * STATES, DIM), np.float32)
    for begin in range(0, episodes, 1000):
        count = min(1000, episodes - begin)
        start = centres[rng.integers(CLUSTERS, size=count)] + rng.normal(0, 0.2, (count, SURFACE))
        steps = rng.normal(0, 0.05, (count, STATES, SURFACE))
        surface = start[:, None] + np.cumsum(steps, 1)
        raw = np.tanh(surface @ hidden) @ out
        raw /= np.linalg.norm(raw, axis=-1, keepdims=True)
        points[begin * STATES : (begin + count) * STATES] = raw.reshape(-1, DIM)
    return points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--sample", type=int, default=1000, help="queries put to the ball tree")
    parser.add_argument("--data", help="a dataset, whose states are embedded and walked through")
    parser.add_argument("--threshold", type=float, default=0.9999)
    asked = parser.parse_args()
    episodes, walks_wanted = int(40_000 * asked.share), int(10_000 * asked.share)
    rng = np.random.default_rng(0)
    if asked.data:
        data = load(asked.data)
        points, starts = Stitch().embed(data, seed=0, quiet=False)[0], np.asarray(data.starts)
        episodes = len(data)
    else:
        points, starts = embeddings_of(episodes, rng), np.arange(episodes + 1) * STATES
    owner = np.repeat(np.arange(episodes), np.diff(starts))
    bound = math.sqrt(2 * (1 - asked.threshold))
    among = np.ones(len(points), bool)
    among[starts[:-1]] = False

    # The library behind the rotation is loaded and warm in any real run: the encoder uses it.
    np.linalg.eigh(np.cov(points[:100].T))
    clock, begin = time.perf_counter(), time.process_time()
    neighbours = Neighbours(points, starts, bound=bound, among=among)
    built = time.process_time() - begin
    chosen = rng.integers(episodes, size=walks_wanted)
    walks = walk(chosen, starts, neighbours.within(bound), forward=False)
    ours = time.process_time() - begin
    clock = time.perf_counter() - clock
    queries = int((walks.rows != NONE).sum()) - walks_wanted
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6

    # The same queries, some of them, one batch per call as the official code makes them.
    asked_rows = rng.choice(np.unique(walks.rows[walks.rows != NONE]), asked.sample, replace=False)
    index = np.flatnonzero(among)
    index_clock, begin = time.perf_counter(), time.process_time()
    tree = BallTree(points[index])
    tree_built, index_clock = time.process_time() - begin, time.perf_counter() - index_clock
    query_clock, begin = time.perf_counter(), time.process_time()
    tree.query(points[asked_rows], k=2)
    per_query = (time.process_time() - begin) / asked.sample
    theirs = tree_built + queries * per_query
    theirs_clock = index_clock + queries * (time.perf_counter() - query_clock) / asked.sample

    compared = 0
    # So many that one is foreign.
    distance, found = tree.query(points[asked_rows], k=int(np.diff(starts).max()) + 1)
    rows, near = neighbours.nearest(asked_rows)
    for row, far, candidates, mine, how_far in zip(
        asked_rows, distance, index[found], rows, near, strict=True
    ):
        foreign = np.flatnonzero(owner[candidates] != owner[row])
        nearest = foreign[0]
        if far[nearest] <= bound:
            assert candidates[nearest] == mine or math.isclose(far[nearest], how_far), row
            compared += 1
        else:
            assert mine == NONE, row
    assert compared, "no neighbour above the threshold in the sample: nothing was compared"
    print(
        json.dumps(
            {
                "benchmark": "stitching, bounded k-d tree against scikit-learn's BallTree",
                "data": asked.data or "made up",
                "states": len(points),
                "walks": walks_wanted,
                "queries": queries,
                "stitches_per_walk": round(float(walks.switches().sum(1).mean()), 2),
                "threshold": asked.threshold,
                "seconds": round(ours, 2),
                "seconds_by_the_clock": round(clock, 2),
                "of_which_index": round(built, 2),
                "ball_tree_seconds": round(theirs, 1),
                "ball_tree_ms_per_query": round(per_query * 1e3, 3),
                "ratio": round(ours / theirs, 5),
                "ratio_by_the_clock": round(clock / theirs_clock, 5),
                "neighbours_compared": compared,
                "of_sample": asked.sample,
                "peak_gb": round(peak, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
