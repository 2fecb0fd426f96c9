"""Time per update of OGBench's methods against the usual pattern, both measured in one run.

The usual pattern gathers every batch with NumPy and makes one jitted call per update. Here
sampling is part of a compiled loop. Both have the same networks, losses, sizes and distributions of
goals, so the ratio is what the loop saves. Rounds alternate between the two, so that a noisy
neighbour slows both. Data has the shapes of pointmaze (2 numbers) or antmaze (29), episodes of
1,001 states. Prints one JSON line per method.

    python benchmarks/ogbench.py [--methods gcbc hiql] [--preset small] [--shape pointmaze]
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from merlin.data import Dataset
from merlin.data.goals import Goals, Sampling
from merlin.data.offsets import Fixed, Geometric
from merlin.data.spec import make_spec
from merlin.learners import Learner
from merlin.learners.registry import configure
from merlin.parallel.workers import limits
from merlin.types import Batch, DrawnGoals
from throughput import training

SHAPES = {"pointmaze": (2, 2), "antmaze": (29, 8)}
EPISODES, STATES = 200, 1001
METHODS = ("gcbc", "gcivl", "hiql", "crl", "gciql", "qrl")
ROUND_SECONDS, ROUNDS = 1.0, 7


def shaped(observation: int, action: int) -> Dataset:
    """Random numbers with the shapes of a dataset whose goals are whole observations."""
    rng = np.random.default_rng(0)
    states = rng.standard_normal((EPISODES * STATES, observation)).astype(np.float32)
    return Dataset(
        observations=states,
        actions=rng.uniform(-1, 1, (EPISODES * (STATES - 1), action)).astype(np.float32),
        achieved_goals=states,
        desired_goals=None,
        starts=np.arange(EPISODES + 1) * STATES,
        action_low=np.full(action, -1.0, np.float32),
        action_high=np.full(action, 1.0, np.float32),
    )


def drawn(wanted: Goals, data: Dataset, at: np.ndarray, rng: np.random.Generator) -> DrawnGoals:
    """Goals for the rows `at`, gathered with NumPy."""
    n, last = len(at), at // STATES * STATES + STATES - 1
    if isinstance(wanted.offsets, Geometric):
        ahead = rng.geometric(1.0 - wanted.offsets.discount, n)
    elif isinstance(wanted.offsets, Fixed):
        ahead = np.full(n, wanted.offsets.steps)
    else:
        ahead = 1 + (rng.random(n) * (last - at)).astype(int)
    future = np.minimum(at + ahead, last)
    kind = rng.random(n)
    goal = np.where(kind < wanted.future, future, rng.integers(len(data.observations), size=n))
    goal = np.where(kind >= wanted.future + wanted.random, at, goal)
    end = np.where(kind < wanted.future, future, last)
    subgoal = np.minimum(at + wanted.subgoal, end) if wanted.subgoal else None
    return DrawnGoals(
        goal=data.achieved_goals[goal],
        observation=data.observations[goal],
        horizon=(goal - at).astype(np.float32),
        reached=goal == at,
        relabelled=kind < wanted.future,
        subgoal=None if subgoal is None else data.achieved_goals[subgoal],
        subgoal_observation=None if subgoal is None else data.observations[subgoal],
    )


def gather(sampling: Sampling, data: Dataset, n: int, rng: np.random.Generator) -> Batch:
    """A batch, gathered with NumPy: no field that the usual pattern would not gather."""
    action = rng.integers(len(data.actions), size=n)
    at = action + action // (STATES - 1)
    return Batch(
        observation=data.observations[at],
        action=data.actions[action],
        next_observation=data.observations[at + 1],
        achieved_goal=None,
        next_achieved_goal=None,
        first_observation=None,
        goals={name: drawn(goals, data, at, rng) for name, goals in sampling.goals.items()},
    )


def usual(learner: Learner, data: Dataset, updates: int) -> Callable[[], None]:
    """So many updates of the usual pattern."""
    state = learner.init(jax.random.key(0), make_spec(data, learner.sampling, tolerance=0.05))
    update, rng = jax.jit(learner.update), np.random.default_rng(0)
    key = jax.random.key(1)

    def run() -> None:
        nonlocal state
        for _ in range(updates):
            batch = gather(learner.sampling, data, learner.batch_size, rng)
            state, metrics = update(state, batch, key)
        jax.block_until_ready(metrics)

    return run


def seconds(run: Callable[[], None]) -> tuple[float, float]:
    """By the clock, and of the processor in all threads, which neighbours disturb less."""
    begin = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - begin[0], time.process_time() - begin[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--preset", default=None)
    parser.add_argument("--shape", choices=SHAPES, default="pointmaze")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    data = shaped(*SHAPES[given.shape])
    for name in given.methods:
        learner = configure(name, preset=given.preset).learner
        pilot = training(learner, data, 2)
        pilot()
        updates = max(2, int(ROUND_SECONDS / (seconds(pilot)[1] / 2)))
        runs = {"usual": usual(learner, data, updates), "ours": training(learner, data, updates)}
        for run in runs.values():
            run()
        times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in runs}
        for _ in range(given.rounds):
            for kind, run in runs.items():
                times[kind].append(seconds(run))
        about: dict[str, Any] = {
            "benchmark": f"time per update, {given.shape} shapes, one core",
            "method": name,
            "preset": given.preset,
            "batch_size": learner.batch_size,
        }
        for index, clock in enumerate(("wall", "processor")):
            ours, usually = (
                [t[index] / updates * 1e3 for t in times[k]] for k in ("ours", "usual")
            )
            ratios = [a / b for a, b in zip(ours, usually, strict=True)]
            about[clock] = {
                "ours_ms": round(min(ours), 2),
                "usual_ms": round(min(usually), 2),
                "ratio_of_fastest": round(min(ours) / min(usually), 3),
                "ratio_median_of_rounds": round(statistics.median(ratios), 3),
            }
        print(json.dumps(about), flush=True)


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in limits(1).items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **limits(1)})
    main()
