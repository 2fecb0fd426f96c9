"""Collection with two workers against a plain single-process loop of env.step, in one run.

FetchPush, random actions. Rounds alternate between the two, so that a noisy neighbour slows both;
the workers' start (imports, models) is counted. Prints one JSON line.
"""

import json
import statistics
import time

import gymnasium
import numpy as np

import merlin

TASK, EPISODES, ROUNDS, WORKERS = "FetchPush", 240, 3, 2


def plain_loop(episodes: int) -> float:
    """Steps per second of gymnasium.make and env.step, as anybody would write it."""
    env = gymnasium.make(f"merlin/{TASK}-v0")
    actions = np.random.default_rng(0).uniform(-1, 1, (episodes, 49, 4)).astype(np.float32)
    begin = time.perf_counter()
    for seed in range(episodes):
        env.reset(seed=seed)
        for action in actions[seed]:
            env.step(action)
    return episodes * 49 / (time.perf_counter() - begin)


def collection(episodes: int) -> float:
    begin = time.perf_counter()
    merlin.collect(TASK, "random", episodes=episodes, workers=WORKERS)
    return episodes * 49 / (time.perf_counter() - begin)


def main() -> None:
    plain_loop(2)
    collection(2 * WORKERS)
    rounds = [(collection(EPISODES), plain_loop(EPISODES // 2)) for _ in range(ROUNDS)]
    print(
        json.dumps(
            {
                "benchmark": f"collection, {TASK}, {WORKERS} workers",
                "steps_per_second": round(max(c for c, _ in rounds)),
                "plain_loop": round(max(p for _, p in rounds)),
                "times_plain_loop": round(statistics.median(c / p for c, p in rounds), 2),
            }
        )
    )


if __name__ == "__main__":
    main()
