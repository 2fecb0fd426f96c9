"""Statistics against numbers worked out by hand and slow, obvious references."""

import itertools

import numpy as np
import pytest
from scipy import stats as scipy_stats

from merlin.evaluation import statistics as stats
from merlin.report import paper


def strata(*rows):
    return [np.array(row, float) for row in rows]


def test_mean_and_deviation_by_hand():
    """Deviations -1, 0, 1 from 2: squares sum to 2, over n - 1 = 2 gives 1."""
    assert stats.mean_and_deviation(np.array([1.0, 2.0, 3.0])) == (2.0, 1.0)
    assert stats.mean_and_deviation(np.array([4.0])) == (4.0, None)


def test_average_ranks_by_hand():
    """First dataset: ranks 1, 2.5, 2.5; second: 3, 1, 2."""
    scores = np.array([[9.0, 1.0], [5.0, 3.0], [5.0, 2.0]])
    np.testing.assert_allclose(stats.average_ranks(scores), [2.0, 1.75, 2.25])


def test_average_ranks_agree_with_scipy(rng):
    scores = rng.integers(5, size=(6, 30)).astype(float)
    wanted = scipy_stats.rankdata(-scores, axis=0).mean(1)
    np.testing.assert_allclose(stats.average_ranks(scores), wanted)


@pytest.mark.parametrize(
    ("variant", "printed"),
    [
        ("expert", [3.5, 2.4, 1.7, 5.4, 5.5, 8.6, 6.2, 9.7, 6.2, 5.4]),
        ("random", [3.8, 1.9, 1.7, 4.5, 5.5, 8.6, 6.0, 8.8, 7.9, 5.9]),
    ],
)
def test_average_ranks_of_the_paper_come_out_of_its_table(variant, printed):
    table = paper.tables()["state_return"][variant]
    scores = np.array([[mean for mean, _ in row.values()] for row in table.values()]).T
    np.testing.assert_allclose(
        stats.average_ranks(scores), printed, atol=0.16
    )  # it gives ties the better rank


def test_interquartile_mean_by_hand():
    """Of eight the two lowest and two highest go: mean of 2, 3, 4, 5. Of three none goes."""
    assert stats.interquartile_mean(np.array([[100.0, 1, 2, 3, 4, 5, 6, -50]])) == [3.5]
    assert stats.interquartile_mean(np.array([[1.0, 2.0, 6.0]])) == [3.0]


def test_interquartile_mean_is_the_trimmed_mean(rng):
    for runs in range(1, 14):
        scores = rng.normal(size=(4, runs))
        wanted = scipy_stats.trim_mean(scores, 0.25, axis=1)
        np.testing.assert_allclose(stats.interquartile_mean(scores), wanted)


def slow_bootstrap(rows, statistic, rng):
    """One resample at a time, one seed at a time."""
    found = []
    for _ in range(4000):
        drawn = [[row[rng.integers(len(row))] for _ in row] for row in rows]
        found.append(statistic(drawn))
    return np.quantile(found, [0.025, 0.975])


def test_the_interval_of_the_interquartile_mean_is_stratified(rng):
    """Far-apart datasets: resampling across them would give an interval ten times as wide."""
    rows = strata(*(rng.normal(10 * dataset, 1, size=5) for dataset in range(4)))
    found = stats.aggregate(rows)
    assert found.value == pytest.approx(scipy_stats.trim_mean(np.concatenate(rows), 0.25))
    slow = slow_bootstrap(rows, lambda drawn: np.mean(np.sort(drawn, None)[5:15]), rng)
    np.testing.assert_allclose(found.interval, slow, atol=0.1)
    assert found.interval[1] - found.interval[0] < 2


def test_seeds_are_used_and_one_run_per_dataset_has_no_interval(rng):
    rows = strata(*rng.normal(size=(3, 4)))
    assert stats.aggregate(rows, seed=1) == stats.aggregate(rows, seed=1)
    assert stats.aggregate(rows, seed=1).interval != stats.aggregate(rows, seed=2).interval
    single = [row[:1] for row in rows]
    assert stats.aggregate(single).interval is None
    assert stats.probability_of_improvement(single, single).interval is None
    assert stats.performance_profile(single, np.array([0.0])).low is None


def test_probability_of_improvement_by_hand():
    """First dataset: 3 beats both, 2 ties with one and beats one: 3.5 of 4. Second: 0 of 2."""
    ours = strata([3, 2], [0])
    theirs = strata([1, 2], [5, 6])
    found = stats.probability_of_improvement(ours, theirs)
    assert found.value == pytest.approx((3.5 / 4 + 0) / 2)
    back = stats.probability_of_improvement(theirs, ours)
    assert found.value + back.value == pytest.approx(1)


def test_probability_of_improvement_agrees_with_mann_whitney(rng):
    ours, theirs = (rng.integers(6, size=n).astype(float) for n in (7, 5))
    wanted = scipy_stats.mannwhitneyu(ours, theirs).statistic / 35
    assert stats.probability_of_improvement([ours], [theirs]).value == pytest.approx(wanted)


def test_the_interval_of_the_probability_of_improvement(rng):
    ours, theirs = rng.normal(0.5, 1, size=(2, 6)), rng.normal(0, 1, size=(2, 5))
    found = stats.probability_of_improvement(list(ours), list(theirs))

    def chance(drawn):
        pairs = zip(drawn[:2], drawn[2:], strict=True)
        return np.mean([np.mean([x > y for x, y in itertools.product(*p)]) for p in pairs])

    slow = slow_bootstrap([*ours, *theirs], chance, rng)
    np.testing.assert_allclose(found.interval, slow, atol=0.06)
    again = stats.probability_of_improvement(list(ours), list(theirs), seed=3)
    assert again.interval != found.interval


def test_performance_profile_by_hand():
    """Strictly above; every dataset weighs the same, however many seeds it has."""
    found = stats.performance_profile(strata([0.2, 0.8], [0.5]), np.array([0.0, 0.2, 0.5, 0.9]))
    np.testing.assert_allclose(found.share, [1, 0.75, 0.25, 0])


def test_bands_of_a_performance_profile(rng):
    rows = strata(*rng.uniform(size=(3, 6)))
    found = stats.performance_profile(rows, np.linspace(0, 1, 11))
    slow = slow_bootstrap(rows, lambda drawn: np.mean(np.array(drawn) > 0.5), rng)
    np.testing.assert_allclose([found.low[5], found.high[5]], slow, atol=0.06)
    assert (found.low <= found.share).all()
    assert (found.share <= found.high).all()
    assert (np.diff(found.share) <= 0).all()
    again = stats.performance_profile(rows, np.linspace(0, 1, 11), seed=5)
    assert not np.array_equal(again.low, found.low)


def test_paired_improvement_by_hand():
    """One win and one tie on the first dataset, two losses of three on the second."""
    found = stats.paired_improvement([np.array([2.0, 0.0]), np.array([-1.0, 3.0, -2.0])])
    assert found.value == pytest.approx((0.75 + 1 / 3) / 2)
    assert found.interval is not None
    assert found.interval[0] < found.value < found.interval[1]
    # Datasets differ, so one seed on each has an interval; one dataset has none.
    wins = [np.array([1.0])] * 8 + [np.array([-1.0])] * 4
    low, high = stats.paired_improvement(wins).interval
    exact = np.random.default_rng(1).binomial(12, 8 / 12, 100_000) / 12
    np.testing.assert_allclose((low, high), np.quantile(exact, [0.025, 0.975]), atol=0.09)
    assert stats.paired_improvement(wins[:1]).interval is None


def test_the_lead_is_over_whoever_is_second():
    ours = np.array([3.0, 5.0, 4.0, 6.0])
    others = np.array([[1.0, 9.0, 1.0, 1.0], [3.0, 4.0, 3.0, 5.0]])
    found = stats.lead_on_average(ours, others)
    assert found.value == pytest.approx(4.5 - 3.75)
    assert found.interval[0] < 0 < found.interval[1]
    assert stats.lead_on_average(ours + 9.0, others).interval[0] > 0
