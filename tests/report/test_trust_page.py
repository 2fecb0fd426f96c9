"""The plot of goals on the page of `merlin trust`."""

import numpy as np
import pytest

from merlin.report.trust import Axis


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0, 9], [0, 2, 4, 6, 8]),
        ([9, 0, 4.5], [0, 2, 4, 6, 8]),
        ([-0.31, 0.42], [-0.2, 0, 0.2, 0.4]),
        ([1.251, 1.262], [1.255, 1.26]),
        ([-3e4, 1e5], [0, 5e4, 1e5]),
        ([3, 3], [3]),
        ([0.5], [0.5]),
    ],
)
def test_an_axis_has_round_numbers_where_they_belong(values, ticks):
    axis = Axis.of(values)
    assert axis.ticks == pytest.approx(ticks)
    low, high = axis.place(min(values)), axis.place(max(values))
    assert (low, high) == ((5, 95) if axis.low < axis.high else (50, 50))
    for tick in axis.ticks:
        expected = np.interp(tick, [axis.low, axis.high], [low, high])
        assert axis.place(tick) == pytest.approx(expected)


def test_an_axis_of_any_length_has_two_to_five_ticks(rng):
    for low, length in zip(rng.normal(0, 10, 2000), 10 ** rng.uniform(-3, 4, 2000), strict=True):
        axis = Axis(low, low + length)
        assert 2 <= len(axis.ticks) <= 5
        assert low <= min(axis.ticks) <= max(axis.ticks) <= low + length
