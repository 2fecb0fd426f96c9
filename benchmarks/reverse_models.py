"""How well the reverse models of Merlin-P know a task, on episodes that they were not trained on.

For each task: the share of the variance of one-step state differences that the reverse dynamics
model explains (of all variance together in the states' own units; mean and minimum over the
dimensions that move), and how many rollouts over a whole episode had to be dropped because they
left the range of the data or were not finite. Collects data that is missing. Prints one JSON line
per task.

    python benchmarks/reverse_models.py PointRooms:random Reacher:expert FetchReach:random
"""

import json
import sys
import time

import numpy as np

from merlin.augment import Rollouts
from merlin.collection.collect import collect_cached
from merlin.data import load
from merlin.envs.registry import find

DEFAULT = ("PointRooms:random", "Reacher:expert", "FetchReach:random")
EPISODES = 2000


def main() -> None:
    for name in sys.argv[1:] or DEFAULT:
        task, variant = name.split(":")
        data = load(collect_cached(find(task), variant, episodes=EPISODES))
        begin = time.perf_counter()
        made = Rollouts(held_out=0.1)(data, seed=0, quiet=False)
        inside = (made.dataset.observations.min(0), made.dataset.observations.max(0))
        recorded = (data.observations.min(0), data.observations.max(0))
        beyond = np.maximum(recorded[0] - inside[0], inside[1] - recorded[1])
        row = {
            "benchmark": "reverse models",
            "task": task,
            "variant": variant,
            "episodes": len(data),
            **{key: round(value, 4) for key, value in made.report.items()},
            # In units of the range of each dimension; the margin that is allowed is 0.05.
            "farthest_out": round(float((beyond / (np.ptp(recorded, 0) + 1e-9)).max()), 4),
            "seconds": round(time.perf_counter() - begin, 1),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
