"""What `merlin bench --dry-run` reckons with: the speed of every learner, with every preset.

One core, the shapes of PointReach and FetchPush, compilation apart: milliseconds per update, and
per action of one state in a batch of 16 (alone where one takes seconds). It is the processor time
of the fastest of a few rounds, so that what else the machine does counts little. What augmentations
take, and updates on images, are medians of the committed rows. Writes src/merlin/bench/speeds.json;
takes about half an hour, most of it for Decision Diffuser and BESO at the sizes of their releases.

    python benchmarks/speeds.py [--learners NAME ...]
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from merlin.parallel.workers import limits

ROOT = Path(__file__).parents[1]
SPEEDS = ROOT / "src" / "merlin" / "bench" / "speeds.json"
DATA = {"PointReach": 200, "FetchPush": 40}
"""Episodes per task: enough to sample from, as their number does not change an update's time."""
ROUND_SECONDS, ROUNDS = 0.3, 3
SLOW_SECONDS = 2.0


def measure(task_name: str, learner_name: str, preset: str | None) -> dict[str, float]:
    """Milliseconds per update and per action."""
    from merlin.bench.timing import acting, fresh_policy, updating
    from merlin.collection.collect import collect_cached
    from merlin.data import load
    from merlin.data.spec import make_spec
    from merlin.envs.registry import find
    from merlin.learners.registry import configure

    task = find(task_name)
    data = load(collect_cached(task, "random", episodes=DATA[task_name]))
    learner = configure(learner_name, {}, task.tuned["random"].values(), preset).learner
    spec = make_spec(data, learner.sampling, task.tolerance)
    spec = learner.survey(data, spec)
    policy = fresh_policy(learner, spec)
    update = fastest(updating(learner, spec, data.on_device()))

    def acts(batch: int) -> float:
        act = acting(policy, data, batch)
        return fastest(lambda times: [act() for _ in range(times)]) / batch

    alone = acts(1)
    return {"update_ms": update, "action_ms": alone if alone > 1000 * SLOW_SECONDS else acts(16)}


def fastest(run: Callable[[int], Any]) -> float:
    """Milliseconds of one of many; one round is enough where it takes seconds."""
    run(1)  # compiles
    number, times = 1, []
    while len(times) < ROUNDS:
        began = time.process_time()
        run(number)
        took = time.process_time() - began
        if took > SLOW_SECONDS:
            return 1000.0 * took / number
        if took < ROUND_SECONDS:
            number *= 2
        else:
            times.append(took / number)
    return 1000.0 * min(times)


def from_rows() -> dict[str, Any]:
    """What the committed rows say of images and of augmentations."""
    from merlin.bench.estimate import START_SECONDS
    from merlin.bench.rows import read_rows
    from merlin.learners.registry import split_name

    seeing: dict[str, dict[str, list[float]]] = {}
    adding: dict[str, list[float]] = {}
    for row in read_rows(ROOT / "results" / "pixels" / "rows.jsonl"):
        if row.timing and not row.augmentation and "latent_updates" not in row.settings:
            own = seeing.setdefault(row.task, {})
            own.setdefault(row.algo, []).append(row.timing["update_ms"])
    episode_seconds = json.loads(SPEEDS.read_text())["episode_seconds"]
    for row in read_rows(ROOT / "results" / "state" / "rows.jsonl"):
        if row.timing and row.seconds and row.augmentation and row.final:
            updates = row.updates * row.timing["update_ms"] / 1000.0
            played = len(row.curve) * row.asked["eval_episodes"] + row.asked["final_episodes"]
            rest = row.seconds - START_SECONDS - updates - played * episode_seconds[row.task]
            adding.setdefault(split_name(row.algo)[1] or "", []).append(rest)
    return {
        "image_update_ms": {
            task: {algo: float(f"{np.median(found):.3g}") for algo, found in own.items()}
            for task, own in seeing.items()
        },
        "augment_seconds": {name: round(float(np.median(s))) for name, s in adding.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learners", nargs="*", help="only these; the others keep their figures")
    given = parser.parse_args()
    from merlin.learners import LEARNERS
    from merlin.learners.registry import preset_names

    speeds = json.loads(SPEEDS.read_text()) | from_rows()
    for name in given.learners if given.learners is not None else LEARNERS:
        for preset in [None, *sorted(preset_names(name))]:
            key = f"{name}/{preset}" if preset else name
            for task in DATA:
                for what, value in measure(task, name, preset).items():
                    speeds.setdefault(what, {}).setdefault(task, {})[key] = float(f"{value:.3g}")
                    print(task, key, what, f"{value:.3g}", flush=True)
            # What is still from the timing grid and benchmarks/actions.py, on two cores.
            speeds["two_cores"] = [other for other in speeds["two_cores"] if other != key]
            SPEEDS.write_text(json.dumps(speeds, indent=2) + "\n")
    SPEEDS.write_text(json.dumps(speeds, indent=2) + "\n")


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in limits(1).items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **limits(1)})
    main()
