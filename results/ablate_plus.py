"""Merlin-plus with one setting changed at a time, on the tasks that its setting was chosen with.

    python results/ablate_plus.py --runs runs/ablations

Trains one run per setting and dataset (existing runs are used again), plays fixed seeded episodes
with every way of acting, and appends one line per score to results/plus-ablations.jsonl. Scores
that are there are not computed again. Scores of earlier default settings say so (`setting`); the
table shows them where there is no other. `--trained default average=0.0` selects settings.
"""

import argparse
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import merlin
from merlin.collection.collect import collect_cached
from merlin.envs.registry import find
from merlin.evaluation.evaluate import evaluate
from merlin.learners import MerlinPlus
from merlin.policies.plus import MixturePolicy

ROWS = Path(__file__).parent / "plus-ablations.jsonl"
EARLIER = " †"
"""Marks scores of an earlier setting in the table."""


@dataclasses.dataclass(frozen=True)
class Data:
    """A dataset of the development half, and what is spent on it."""

    task: str
    variant: str
    played: int
    episodes: int = 2000
    updates: int = 5000


DATA = (
    Data("PointRooms", "expert", played=1000),
    Data("PointRooms", "random", played=1000),
    Data("PointReach", "expert", played=1000),
    Data("PointReach", "random", played=1000),
    Data("Reacher", "expert", played=100),
    Data("Reacher", "random", played=100),
    Data("FetchPush", "expert", episodes=10_000, updates=10_000, played=100),
)
UNJUDGED = {"candidates": 0}
TRAINED: tuple[tuple[dict[str, Any], tuple[dict[str, Any], ...]], ...] = (
    (
        {},
        (
            {},
            UNJUDGED,
            *({"candidates": number} for number in (2, 4, 15)),
            {"depth": 1},
            *({"caution": caution} for caution in (0.0, 1.0, 2.0)),
            *({"temperature": temperature} for temperature in (0.5, 1.0)),
        ),
    ),
    ({"distance": "classes"}, ({},)),
    ({"average": 0.0}, ({},)),
    ({"components": 1}, ({}, UNJUDGED)),
    ({"components": 2}, ({}, UNJUDGED)),
    ({"components": 10}, ({}, UNJUDGED)),
    ({"hindsight_ratio": 0.5}, ({},)),
    ({"hindsight_ratio": 0.2}, ({},)),
)
"""What is trained otherwise, and in which ways each of these then acts."""


def name(settings: dict[str, Any]) -> str:
    return "-".join(f"{key}={value}" for key, value in settings.items()) or "default"


def acting(policy: MixturePolicy, settings: dict[str, Any]) -> MixturePolicy:
    """The same networks, acting otherwise."""
    if settings == UNJUDGED:
        return dataclasses.replace(policy, judge=None)
    return dataclasses.replace(policy, **settings)


def scores(
    runs: Path, known: set[tuple[str, ...]], names: list[str] | None
) -> Iterator[dict[str, Any]]:
    """Every score that is not known yet, as soon as it is there."""
    for trained, acted in TRAINED:
        if names is not None and name(trained) not in names:
            continue
        for data in DATA:
            key = data.task, data.variant, name(trained)
            wanted = [way for way in acted if (*key, name(way)) not in known]
            if not wanted:
                continue
            found = merlin.load(
                collect_cached(find(data.task), data.variant, episodes=data.episodes)
            )
            run = runs / "-".join(key)
            learner = MerlinPlus(**trained)
            options = {"eval_every": data.updates, "eval_episodes": 1, "final_episodes": 1}
            merlin.train(learner, found, updates=data.updates, out=run, resume=True, **options)
            policy = merlin.load_run(run).policy
            for way in wanted:
                score = evaluate(acting(policy, way), data.task, episodes=data.played)
                yield {
                    **dataclasses.asdict(data),
                    "trained": trained,
                    "acted": way,
                    "return": round(float(score.returns.mean()), 3),
                    "success": round(float(score.success.mean()), 4),
                }


def read() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def table() -> str:
    """The scores as Markdown: one line per way, in the order in which they stand above."""
    found = {
        (row["task"], row["variant"], name(row["trained"]), name(row["acted"])): (
            f"{row['return']:.1f} / {row['success']:.2f}{EARLIER if 'setting' in row else ''}"
        )
        for row in sorted(read(), key=lambda row: "setting" not in row)
    }
    heads = [f"{one.task} {one.variant}" for one in DATA]
    lines = [["trained with", "acts with", *heads], ["---", "---", *["---:"] * len(heads)]]
    for way in [(name(trained), name(way)) for trained, acted in TRAINED for way in acted]:
        scored = [found.get((one.task, one.variant, *way), "") for one in DATA]
        lines.append([*(f"`{part}`" for part in way), *scored])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True, help="folder of the trained runs")
    parser.add_argument("--trained", nargs="+", help="only these settings, as in the table")
    given = parser.parse_args()
    known = {
        (row["task"], row["variant"], name(row["trained"]), name(row["acted"]))
        for row in read()
        if "setting" not in row
    }
    try:
        for row in scores(given.runs, known, given.trained):
            with ROWS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
    except KeyboardInterrupt:
        raise SystemExit("stopped; started again, it goes on from here.") from None


if __name__ == "__main__":
    main()
