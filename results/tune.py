"""Tune Merlin's hindsight ratio and horizon on our data, as the paper did on its own.

    python results/tune.py --tasks SawyerDoor FetchPush --variants random

Trains Merlin once per ratio and evaluates every horizon on 200 seeded episodes (1,000 on the Point
tasks) that no final score uses. Appends one line per score to results/tuning.jsonl and skips scores
that are there already. Prints the pair of values to put into the task registry for each dataset.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import merlin
from merlin.bench.grids import default_episodes, default_final_episodes, default_updates
from merlin.collection.collect import collect_cached
from merlin.envs.registry import TASKS, VARIANTS, Task
from merlin.evaluation.evaluate import evaluate

ROWS = Path(__file__).parent / "tuning.jsonl"
RATIOS = (0.0, 0.2, 0.5, 1.0)
HORIZONS = (1, 2, 3, 5, 8, 10, 20, 50)
SEED = 5_000_000
MOST_UPDATES = 40_000
MARGIN = 0.3
"""A pair must beat the paper's by this much in return, or the paper's is kept."""


def read() -> list[dict[str, Any]]:
    """All scores, one per task, variant, ratio and horizon."""
    if not ROWS.exists():
        return []
    return [json.loads(line) for line in ROWS.read_text().splitlines()]


def best(rows: list[dict[str, Any]], task: Task, variant: str) -> tuple[float, int] | None:
    """The pair to use in place of the paper's, if one is better."""
    scores = {
        (row["hindsight_ratio"], row["horizon"]): row["return"]
        for row in rows
        if (row["task"], row["variant"]) == (task.name, variant)
    }
    tuned = task.tuned[variant]
    paper = (tuned.hindsight_ratio, tuned.horizon)
    if not scores:
        return None
    pair = max(scores, key=lambda pair: scores[pair])
    return pair if scores[pair] > scores.get(paper, -1.0) + MARGIN else None


def measure(task: Task, variant: str, ratios: list[float]) -> None:
    """Append the scores that are missing."""
    updates = min(default_updates(task, variant, pixels=False), MOST_UPDATES)
    episodes, played = default_episodes(task) or task.episodes, default_final_episodes(task)
    known = {(r["task"], r["variant"], r["hindsight_ratio"]) for r in read()}
    path = collect_cached(task, variant, episodes=episodes)
    data = merlin.load(path)
    for ratio in ratios:
        if (task.name, variant, ratio) in known:
            continue
        learner = merlin.Merlin(hindsight_ratio=ratio, horizon=1)
        run = merlin.train(learner, data, task="none", held_out=0.0, updates=updates)
        lines = []
        for horizon in HORIZONS:
            score = evaluate(run.policy, task, episodes=played, seed=SEED, horizon=horizon)
            row = {
                "task": task.name,
                "variant": variant,
                "hindsight_ratio": ratio,
                "horizon": horizon,
                "return": round(float(score.returns.mean()), 3),
                "success": round(float(score.success.mean()), 3),
                "updates": updates,
                "data_episodes": episodes,
                "fingerprint": data.fingerprint(),
                "episodes": played,
                "version": merlin.__version__,
            }
            lines.append(json.dumps(row) + "\n")
        with ROWS.open("a") as file:
            file.writelines(lines)
        print("".join(lines), end="", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--ratios", nargs="+", type=float, default=list(RATIOS))
    asked = parser.parse_args()
    for name in asked.tasks:
        task = TASKS[name]
        for variant in asked.variants:
            measure(task, variant, asked.ratios)
            print(name, variant, "->", best(read(), task, variant) or "the paper's values")
