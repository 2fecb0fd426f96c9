"""What the map of Merlin-map costs: building it, and acting with it.

    python benchmarks/map.py [--states 1000000]

Builds maps of random walks: positions in a maze of open space (2 numbers), and whole states of 28
numbers of which some are slow and some fast, with kinetic distances. Then times one action of the
NumPy runtime, towards a waypoint and towards a near goal, and divides by Merlin's, of the same
sizes. All are processor times on one thread, the fastest of a few rounds, and all contenders take
turns. Prints one JSON line. The limits are 20 s and 10 times Merlin.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import merlin
import merlin.runtime
from merlin.data.dataset import Dataset
from merlin.data.kinetic import kinetic_map
from merlin.data.map import build_map

STEPS = 1000
"""Per episode."""
HOW = {"places": 800, "lags": (4, 8, 12), "passages": 3, "hops": 2, "reach": 50}
CALLS, ROUNDS = 500, 10


def walks(states: int, keeps: np.ndarray) -> Dataset:
    """Autoregressive walks: each column keeps a share of itself in every step."""
    rng, episodes = np.random.default_rng(0), max(1, states // (STEPS + 1))
    x = rng.normal(size=(episodes, STEPS + 1, len(keeps))).astype(np.float32)
    for t in range(1, STEPS + 1):
        x[:, t] = keeps * x[:, t - 1] + np.sqrt(1 - keeps**2) * x[:, t]
    flat = x.reshape(-1, len(keeps))
    starts = np.arange(episodes + 1) * (STEPS + 1)
    return Dataset(
        observations=flat,
        actions=np.zeros((episodes * STEPS, 2), np.float32),
        achieved_goals=flat,
        desired_goals=None,
        starts=starts,
        action_low=np.full(2, -1.0, np.float32),
        action_high=np.full(2, 1.0, np.float32),
    )


def seconds(run: Callable[[], Any]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def building(states: int) -> dict[str, float]:
    """Seconds to build a map."""
    slow = np.full(2, 0.999)
    mixed = np.linspace(0.5, 0.999, 28)
    plain, whole = walks(states, slow), walks(states, mixed)

    def kinetic() -> None:
        projection = kinetic_map(whole.achieved_goals, whole.starts, HOW["reach"])
        build_map(whole, tuple(range(28)), **HOW, projection=projection)

    return {
        "positions": seconds(lambda: build_map(plain, (0, 1), **HOW)),
        "whole states": seconds(kinetic),
    }


def acting() -> dict[str, float]:
    """Microseconds of one action of each contender."""
    few = {"eval_every": 1, "eval_episodes": 1, "final_episodes": 1}
    data = merlin.collect("PointRooms", "random", episodes=500)
    with tempfile.TemporaryDirectory() as folder:
        policies = {}
        for name in ("merlin", "merlin-map"):
            out = Path(folder) / name
            merlin.train(name, data, updates=1, out=out, **few)
            policies[name] = merlin.runtime.load(out)
    mapped = policies["merlin-map"]
    # As in episodes, many consecutive states have the same goal.
    rng = np.random.default_rng(0)
    goals = np.repeat(rng.uniform(-4.5, 4.5, (20, 2)), 1000, axis=0)
    pairs = np.stack([rng.uniform(-4.5, 4.5, goals.shape), goals], axis=1).astype(np.float32)
    near = mapped._map.heading(pairs[:, 0], pairs[:, 1])[2]
    contenders = {
        "merlin": (policies["merlin"], pairs[:CALLS]),
        "towards a waypoint": (mapped, pairs[~near][:CALLS]),
        "towards a near goal": (mapped, pairs[near][:CALLS]),
    }
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, (policy, own) in contenders.items():
            taken = seconds(lambda policy=policy, own=own: [policy(*pair) for pair in own])
            found[name].append(taken / len(own) * 1e6)
    return {name: min(taken) for name, taken in found.items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--states", type=int, default=1_000_000)
    asked = options.parse_args()
    acts, built = acting(), building(asked.states)
    rounded = {name: round(value, 1) for name, value in (built | acts).items()}
    ratio = {name: round(value / acts["merlin"], 1) for name, value in acts.items()}
    print(json.dumps({"states": asked.states, "measured": rounded, "times merlin": ratio}))


if __name__ == "__main__":
    main()
