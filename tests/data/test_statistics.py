"""Moments of rows that come in pieces, against NumPy's of all rows at once."""

import numpy as np

from merlin.data import statistics
from merlin.data.statistics import MomentAccumulator, moments_of


def test_moments_in_pieces(monkeypatch, rng):
    rows = np.c_[rng.normal(1e4, 0.1, 1000), np.full(1000, 7.0)].astype(np.float32)
    monkeypatch.setattr(statistics, "ROWS_AT_ONCE", 99)
    mean, std, _ = moments_of(rows)
    np.testing.assert_allclose(mean, rows.mean(0, dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(std[0], rows[:, 0].std(dtype=np.float64), rtol=1e-3)
    assert std[1] == 0.0


def test_pieces_and_weights_add_up(rng):
    rows, weights = rng.normal(5, 2, (100, 2, 3)), rng.uniform(0, 1, 100)
    plain, weighted = MomentAccumulator((2, 3)), MomentAccumulator((2, 3), origin=5.0)
    for piece in np.array_split(np.arange(100), 7):
        plain.add(rows[piece])
        weighted.add(rows[piece], weights[piece])
    np.testing.assert_allclose(plain.moments().mean, rows.mean(0))
    np.testing.assert_allclose(plain.moments().std, rows.std(0))
    mean = np.average(rows, axis=0, weights=weights)
    np.testing.assert_allclose(weighted.moments().mean, mean)
    variance = np.average((rows - mean) ** 2, axis=0, weights=weights)
    np.testing.assert_allclose(weighted.moments().std, np.sqrt(variance))


def test_without_rows_there_is_no_spread():
    mean, std, _ = MomentAccumulator((2,)).moments()
    assert mean.tolist() == std.tolist() == [0.0, 0.0]
