"""Statistics over all datasets: interquartile means, probabilities of improvement, profiles."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from merlin.bench.rows import Row
from merlin.envs.registry import own
from merlin.evaluation import statistics as stats
from merlin.evaluation.evaluate import DISCOUNT
from merlin.report.tables import Datasets, by_dataset, comparable, methods_of, scores

REFERENCE = "merlin"
THRESHOLDS = np.linspace(0.0, 1.0, 101)


@dataclass(frozen=True)
class Aggregates:
    """Scores of one protocol over the datasets shared by all compared methods."""

    protocol: str
    source: str  # states or pixels
    methods: tuple[str, ...]
    left_out: tuple[str, ...]
    datasets: int
    runs: int
    highest: tuple[float, ...]  # the highest possible returns of the tasks, each once
    returns: dict[str, stats.Estimate]  # interquartile mean of normalised return
    success: dict[str, stats.Estimate]
    reference: str | None  # the method that `improvement` compares with
    improvement: dict[str, stats.Estimate]
    profiles: dict[str, stats.Profile]


def highest_return(row: Row) -> float | None:
    """The highest possible return: at the goal in every step, or once if that ends the episode.

    None if the length of its episodes is unknown.
    """
    known = own(row.task)
    if known and known.goal_count:
        return 1.0  # an episode ends at its goal
    steps = row.episode_steps or (known.episode_steps if known else None)
    return None if steps is None else float(np.sum(DISCOUNT ** np.arange(steps)))


def aggregate(rows: Sequence[Row], protocol: str, *, source: str) -> Aggregates | None:
    """Aggregate scores, with returns divided by the highest possible return of each task."""
    datasets = by_dataset([row for row in rows if getattr(row, protocol) and highest_return(row)])
    methods, shared = comparable(datasets)
    if not shared:
        return None

    highest = [highest_return(datasets[d][methods[0]][0]) or 1.0 for d in shared]

    def matrix(method: str, metric: str) -> list[np.ndarray]:
        scales = highest if metric == "return" else [1.0] * len(shared)
        found = [scores(datasets[d][method], protocol, metric) for d in shared]
        return [values / scale for values, scale in zip(found, scales, strict=True)]

    returns = {method: matrix(method, "return") for method in methods}
    reference = next((m for m in (REFERENCE, *methods) if m in methods), None)
    others = [m for m in methods if m != reference]
    return Aggregates(
        protocol=protocol,
        source=source,
        methods=methods,
        left_out=tuple(m for m in methods_of(datasets) if m not in methods),
        datasets=len(shared),
        highest=tuple(sorted(set(highest))),
        runs=sum(len(runs) for strata in returns.values() for runs in strata),
        returns={m: stats.aggregate(strata) for m, strata in returns.items()},
        success={m: stats.aggregate(matrix(m, "success")) for m in methods},
        reference=reference if others else None,
        improvement={
            m: stats.probability_of_improvement(returns[m], returns[reference])
            for m in others
            if reference
        },
        profiles={m: stats.performance_profile(r, THRESHOLDS) for m, r in returns.items()},
    )


@dataclass(frozen=True)
class Curve:
    """Evaluations during training: mean over seeds, with the lowest and highest seed."""

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def curves(rows: Sequence[Row], metric: str) -> dict[tuple[str, str], dict[str, Curve]]:
    """Learning curves of every dataset and method, at the steps shared by all seeds."""
    datasets: Datasets = by_dataset([row for row in rows if row.curve])
    found: dict[tuple[str, str], dict[str, Curve]] = {}
    for dataset, methods in datasets.items():
        for method in sorted(methods, key=methods_of(datasets).index):
            runs = [{p["step"]: p[metric] for p in row.curve} for row in methods[method]]
            steps = sorted(set.intersection(*(set(run) for run in runs)))
            if steps:
                values = np.array([[run[step] for step in steps] for run in runs], float)
                found.setdefault(dataset, {})[method] = Curve(
                    np.array(steps, float), values.mean(0), values.min(0), values.max(0)
                )
    return found
