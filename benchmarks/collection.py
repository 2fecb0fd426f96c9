"""Collection with two workers against plain loops of env.step, all in one run.

FetchPush. `times_plain_loop` compares random collection with one process that steps an environment
and does nothing else; `fraction_of_two_cores` compares expert collection, noise and networks
included, with two such processes at once. Contenders take turns, so that a noisy neighbour slows
all of them; the workers' start (imports, models) is counted. Prints one JSON line.
"""

import json
import statistics
import subprocess
import sys
import time

import gymnasium
import numpy as np

import merlin

TASK, EPISODES, ROUNDS, WORKERS = "FetchPush", 600, 3, 2


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


def plain_loops_at_once(episodes: int) -> float:
    """The sum over as many processes as there are workers."""
    command = [sys.executable, __file__, "--loop", str(episodes)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(WORKERS)]
    return sum(float(process.communicate()[0]) for process in running)


def collection(variant: str, episodes: int) -> float:
    begin = time.perf_counter()
    merlin.collect(TASK, variant, episodes=episodes, workers=WORKERS)
    return episodes * 49 / (time.perf_counter() - begin)


def main() -> None:
    plain_loop(2)
    contenders = {
        "random": lambda: collection("random", EPISODES),
        "plain_loop": lambda: plain_loop(EPISODES // 4),
        "expert": lambda: collection("expert", EPISODES),
        "plain_loops_at_once": lambda: plain_loops_at_once(EPISODES // 4),
    }
    rounds = [{name: run() for name, run in contenders.items()} for _ in range(ROUNDS)]
    ratio = lambda a, b: round(statistics.median(r[a] / r[b] for r in rounds), 2)  # noqa: E731
    print(
        json.dumps(
            {
                "benchmark": f"collection, {TASK}, {WORKERS} workers",
                **{
                    f"{name}_steps_per_second": round(max(r[name] for r in rounds))
                    for name in contenders
                },
                "times_plain_loop": ratio("random", "plain_loop"),
                "fraction_of_two_cores": ratio("expert", "plain_loops_at_once"),
            }
        )
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--loop"]:
        print(plain_loop(int(sys.argv[2])))
    else:
        main()
