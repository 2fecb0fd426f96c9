"""Statistics over episodes, seeds and datasets.

The scores of a method are a matrix of datasets by seeds, given as one row per dataset. Rows differ
in length if seeds are missing. Bootstrap resampling is stratified: seeds are resampled within each
dataset, because seeds are random and datasets are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

RESAMPLES = 2000

Strata = Sequence[Float[np.ndarray, " _"]]
"""One row of scores per dataset, one score per seed."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval; no interval if there is nothing to resample."""

    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Profile:
    """Fraction of runs with a score above each threshold, with pointwise 95 % intervals."""

    thresholds: Float[np.ndarray, " thresholds"]
    share: Float[np.ndarray, " thresholds"]
    low: Float[np.ndarray, " thresholds"] | None
    high: Float[np.ndarray, " thresholds"] | None


def bootstrap_interval(
    scores: Float[np.ndarray, "seeds episodes"], *, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean: resample seeds, then the episodes of each.

    With a single seed only episodes are resampled, so the interval does not reflect training
    variance.
    """
    seeds, episodes = scores.shape
    rng = np.random.default_rng(seed)
    means = np.empty(RESAMPLES)
    for r in range(RESAMPLES):
        chosen = rng.integers(seeds, size=(seeds, 1))
        means[r] = scores[chosen, rng.integers(episodes, size=(seeds, episodes))].mean()
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(low), float(high)


def summary(scores: Float[np.ndarray, "seeds episodes"]) -> dict[str, Any]:
    """Mean and 95 % interval, in the form used in all reports."""
    return {"mean": float(scores.mean()), "ci95": list(bootstrap_interval(scores))}


def mean_over_episodes(
    values: Float[np.ndarray, " rows"], episode: Int[np.ndarray, " rows"]
) -> dict[str, Any]:
    """The mean over episodes of each episode's mean; the interval resamples episodes."""
    each = np.array([values[episode == e].mean() for e in np.unique(episode)])
    interval = list(bootstrap_interval(each[None])) if len(each) > 1 else None
    return {"mean": float(each.mean()), "ci95": interval}


def mean_and_deviation(scores: Float[np.ndarray, " seeds"]) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n - 1) over seeds; None for a single seed."""
    deviation = float(scores.std(ddof=1)) if len(scores) > 1 else None
    return float(scores.mean()), deviation


def average_ranks(
    scores: Float[np.ndarray, "methods datasets"],
) -> Float[np.ndarray, " methods"]:
    """Each method's mean rank over datasets; 1 is the highest score, and ties share ranks."""
    better = (scores[None] > scores[:, None]).sum(1)
    equal = (scores[None] == scores[:, None]).sum(1)  # including itself
    return (better + (equal + 1) / 2).mean(1)


def interquartile_mean(scores: Float[np.ndarray, "batch runs"]) -> Float[np.ndarray, " batch"]:
    """Mean of each row without its lowest and highest quarters.

    Quarters are rounded down to whole runs, so fewer than four runs are all kept.
    """
    cut = scores.shape[-1] // 4
    return np.sort(scores, -1)[..., cut : scores.shape[-1] - cut].mean(-1)


def aggregate(strata: Strata, *, seed: int = 0) -> Estimate:
    """Interquartile mean over all runs of all datasets, with a stratified bootstrap interval."""
    value = float(interquartile_mean(np.concatenate(strata)[None])[0])
    if not _can_vary(strata):
        return Estimate(value)
    drawn = np.concatenate(_resample(strata, np.random.default_rng(seed)), 1)
    return Estimate(value, _interval(interquartile_mean(drawn)))


def probability_of_improvement(ours: Strata, theirs: Strata, *, seed: int = 0) -> Estimate:
    """Probability that a run of ours beats one of theirs on the same dataset; ties count half.

    This is the Mann-Whitney statistic of each dataset, averaged over datasets.
    """

    def chance(
        left: Sequence[Float[np.ndarray, "batch _"]], right: Sequence[Float[np.ndarray, "batch _"]]
    ) -> Float[np.ndarray, " batch"]:
        return np.mean([_wins(x, y) for x, y in zip(left, right, strict=True)], 0)

    value = float(chance([x[None] for x in ours], [y[None] for y in theirs])[0])
    if not (_can_vary(ours) or _can_vary(theirs)):
        return Estimate(value)
    rng = np.random.default_rng(seed)
    return Estimate(value, _interval(chance(_resample(ours, rng), _resample(theirs, rng))))


def paired_improvement(differences: Strata, *, seed: int = 0) -> Estimate:
    """Probability that ours beats theirs for the same dataset and seed; ties count half.

    `differences` are ours minus theirs. The bootstrap resamples datasets, then the seeds of each,
    so the interval also covers the choice of datasets. A single dataset has no interval.
    """
    wins = [(pairs > 0) + 0.5 * (pairs == 0) for pairs in differences]
    value = float(np.mean([of_dataset.mean() for of_dataset in wins]))
    if len(wins) < 2:
        return Estimate(value)
    counts = np.array([len(of_dataset) for of_dataset in wins])
    padded = np.zeros((len(wins), counts.max()))
    for row, of_dataset in zip(padded, wins, strict=True):
        row[: len(of_dataset)] = of_dataset
    rng = np.random.default_rng(seed)
    datasets = rng.integers(len(wins), size=(RESAMPLES, len(wins)))
    size = counts[datasets][..., None]
    seeds = (rng.random((*datasets.shape, counts.max())) * size).astype(int)
    drawn = np.where(np.arange(counts.max()) < size, padded[datasets[..., None], seeds], 0.0)
    return Estimate(value, _interval((drawn.sum(-1) / size[..., 0]).mean(1)))


def lead_on_average(
    ours: Float[np.ndarray, " datasets"],
    others: Float[np.ndarray, "methods datasets"],
    *,
    seed: int = 0,
) -> Estimate:
    """Our mean over datasets minus that of the best other method; datasets are resampled."""

    def lead(datasets: Any) -> Float[np.ndarray, " batch"]:
        return ours[datasets].mean(-1) - others[:, datasets].mean(-1).max(0)

    value = float(lead(np.arange(len(ours))[None])[0])
    if len(ours) < 2:
        return Estimate(value)
    rng = np.random.default_rng(seed)
    return Estimate(value, _interval(lead(rng.integers(len(ours), size=(RESAMPLES, len(ours))))))


def performance_profile(
    strata: Strata, thresholds: Float[np.ndarray, " thresholds"], *, seed: int = 0
) -> Profile:
    """Fraction of runs with a score above each threshold, with equal weights for all datasets."""
    above = [(runs[:, None] > thresholds).astype(float) for runs in strata]
    low = high = None
    if _can_vary(strata):
        rng = np.random.default_rng(seed)
        # A resample is a vector of draw counts per seed, so one product covers all thresholds.
        drawn = [_draws(len(of_dataset), rng) @ of_dataset for of_dataset in above]
        low, high = np.quantile(np.mean(drawn, 0), [0.025, 0.975], axis=0)
    share = np.mean([of_dataset.mean(0) for of_dataset in above], 0)
    return Profile(thresholds, share, low, high)


def _draws(seeds: int, rng: np.random.Generator) -> Float[np.ndarray, "resamples seeds"]:
    """Weight of each seed in each resample: its fraction of the draws with replacement."""
    return rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES) / seeds


def _wins(
    ours: Float[np.ndarray, "batch seeds"], theirs: Float[np.ndarray, "batch others"]
) -> Float[np.ndarray, " batch"]:
    left, right = ours[:, :, None], theirs[:, None, :]
    return ((left > right) + 0.5 * (left == right)).mean((1, 2))


def _resample(strata: Strata, rng: np.random.Generator) -> list[Float[np.ndarray, "batch _"]]:
    """Resample the seeds of every dataset with replacement, many times."""
    return [runs[rng.integers(len(runs), size=(RESAMPLES, len(runs)))] for runs in strata]


def _can_vary(strata: Strata) -> bool:
    return any(len(runs) > 1 for runs in strata)


def _interval(resampled: Float[np.ndarray, " resamples"]) -> tuple[float, float]:
    """The central 95 % of resampled values."""
    low, high = np.quantile(resampled, [0.025, 0.975])
    return float(low), float(high)
