"""Milliseconds per update of every method, as ratios to Merlin, all measured in one run.

FetchPush shapes and the methods' own settings, by the real loop with sampling. Rounds alternate
between the methods, so that a noisy neighbour slows all of them. The diffusion methods, which take
seconds per update, are timed in `actions.py`. Prints one JSON line.
"""

import argparse
import json
import statistics
import time

from merlin.learners.registry import configure
from throughput import fetch_push_shaped, training

UPDATES, ROUNDS = 50, 9
PEERS = ("gcsl", "wgcsl", "am", "gofar")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=PEERS)
    names = ["merlin", *parser.parse_args().methods]
    data = fetch_push_shaped()
    contenders = {name: training(configure(name).learner, data, UPDATES) for name in names}
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
