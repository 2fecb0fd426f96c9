"""Milliseconds per update of every method, as ratios to Merlin, all measured in one run.

FetchPush shapes and the methods' own settings, by the real loop with sampling. Rounds alternate
between the methods, so that a noisy neighbour slows all of them. Prints one JSON line.
"""

import json
import statistics
import time
from collections.abc import Callable

import jax

from merlin.data import Dataset
from merlin.data.relabel import make_spec
from merlin.learners import LEARNERS, configure
from merlin.loop import compiled_chunk
from throughput import fetch_push_shaped

UPDATES, ROUNDS, TOLERANCE = 50, 9, 0.05


def training(name: str, data: Dataset) -> Callable[[], None]:
    """`UPDATES` updates of a method."""
    learner = configure(name)
    state = learner.init(jax.random.key(0), make_spec(data, learner.relabel, TOLERANCE))
    trajectories, key = data.on_device(), jax.random.key(1)
    chunk = compiled_chunk(learner, together=False)

    def run() -> None:
        nonlocal state
        state, metrics = chunk(state, trajectories, key, 0, UPDATES)
        jax.block_until_ready(metrics)

    return run


def main() -> None:
    data = fetch_push_shaped()
    contenders = {name: training(name, data) for name in LEARNERS}
    for run in contenders.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            begin = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - begin) / UPDATES * 1e3)
    ratios = {
        name: statistics.median(a / b for a, b in zip(values, times["merlin"], strict=True))
        for name, values in times.items()
    }
    print(
        json.dumps(
            {
                "benchmark": "milliseconds per update, FetchPush shapes, batch 512",
                "update_ms": {name: round(min(values), 3) for name, values in times.items()},
                "ratio_to_merlin": {
                    name: round(min(values) / min(times["merlin"]), 3)
                    for name, values in times.items()
                },
                "ratio_median_of_rounds": {name: round(r, 3) for name, r in ratios.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
