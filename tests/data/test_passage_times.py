"""Pairs of states and goals: when goals were reached, and what is known if they were not."""

import numpy as np
import pytest

from merlin.data import Dataset, Episode
from merlin.data.passage_times import (
    PassageTimes,
    calibration,
    draw_passage_times,
    step_weights,
    steps_left,
)


def line(*lengths: int) -> Dataset:
    """Episodes that count upwards: the goal of step t is t, from 100 apart per episode."""
    episodes = []
    for number, length in enumerate(lengths):
        states = 100.0 * number + np.arange(length, dtype=np.float32)[:, None]
        episodes.append(Episode(states, np.zeros((length - 1, 1)), states))
    return Dataset.from_episodes(episodes)


def test_steps_are_those_to_the_first_state_within_the_tolerance():
    data = line(30, 12)
    pairs = draw_passage_times(data, 5000, limit=8, tolerance=1.5)
    state, left = data.observations[pairs.row, 0], steps_left(data)[pairs.row]
    ahead = pairs.goal[:, 0] - state
    # Within 1.5 at the earliest step k with k >= ahead - 1.5, if that step is recorded.
    first = np.maximum(1, np.ceil(ahead - 1.5)).astype(int)
    there = (np.abs(ahead - first) <= 1.5) & (first <= np.minimum(left, 8))
    np.testing.assert_array_equal(pairs.reached, there)
    np.testing.assert_array_equal(pairs.steps, np.where(there, first, np.minimum(left, 8)))
    assert 0.4 < pairs.later.mean() < 0.5
    assert pairs.reached[pairs.later].all()


def test_later_goals_are_uniformly_far_and_never_beyond_the_end():
    data = line(11, 11)
    pairs = draw_passage_times(data, 40_000, limit=8, tolerance=0.0)
    offset = (pairs.goal[:, 0] - data.observations[pairs.row, 0])[pairs.later]
    shares = np.bincount(offset.astype(int), minlength=9) / len(offset)
    np.testing.assert_allclose(shares[1:], 1 / 8, atol=0.01)


def test_some_goals_are_outside_the_data():
    pairs = draw_passage_times(line(50), 5000, limit=5, tolerance=0.0)
    outside = (pairs.goal < 0) | (pairs.goal > 49)
    assert outside.mean() == pytest.approx(0.15 * 0.5 / 1.5, abs=0.01)
    assert pairs.goal.min() > -0.26 * 49
    assert not pairs.reached[outside[:, 0]].any()


def test_weights_make_up_for_steps_that_are_seldom_observed():
    """Of 4 + 2 states with a step left, 4 have two, 2 three and 1 four."""
    np.testing.assert_allclose(step_weights(line(5, 3), 4), [1, 6 / 4, 6 / 2, 6 / 1])


def test_calibration_by_hand():
    """Of three pairs called 0.3, one is a later goal; of the others, one has too few steps left."""
    pairs = PassageTimes(
        row=np.zeros(4, int),
        goal=np.zeros((4, 1)),
        later=np.array([True, False, False, False]),
        steps=np.array([2, 5, 1, 4]),
        reached=np.array([True, False, True, True]),
        seen=np.array([2, 5, 1, 5]),
    )
    found = calibration(pairs, np.array([0.3, 0.3, 0.3, 0.9]), 3, weight=3.0)
    np.testing.assert_array_equal(np.flatnonzero(found.pairs), [3, 9])
    np.testing.assert_array_equal(found.pairs[[3, 9]], [2, 1])
    np.testing.assert_allclose(found.stated[[3, 9]], [0.3, 0.9])
    np.testing.assert_allclose(found.true[[3, 9]], [1 / (1 + 3), 0.0])
    mean, largest = found.error(least=1)
    assert (mean, largest) == pytest.approx(((2 * 0.05 + 0.9) / 3, 0.9))
    assert found.error(least=2)[1] == pytest.approx(0.05)
