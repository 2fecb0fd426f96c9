"""Maps of worlds whose ways are known."""

import dataclasses

import numpy as np
import pytest

from helpers.corridor import CELLS, LENGTH, corridor
from merlin.data import Dataset, Episode
from merlin.data.map import (
    build_map,
    determined,
    nearest_joined,
    passage_lags,
    spread,
    straight,
    unbroken,
    ways,
)

ALL = len(CELLS) - 1
"""Steps from one end of the way to the other."""


def mapped(data, **settings):
    usual = {"places": 30, "lags": (1,), "passages": 3, "hops": 2, "reach": 0}
    return build_map(data, (1, 2), **usual | settings)


def place(found, cell):
    return int(np.square(found.centres - cell).sum(axis=1).argmin())


def test_no_way_leads_through_the_wall():
    found = mapped(corridor())
    first, last = place(found, CELLS[0]), place(found, CELLS[-1])
    assert np.linalg.norm(CELLS[0] - CELLS[-1]) == 1.0
    assert found.steps[first, last] == found.steps[last, first] == ALL
    np.testing.assert_array_equal(found.centres[found.ahead[first, last]], [2, 0])
    np.testing.assert_array_equal(found.centres[found.ahead[last, first]], [2, 1])


def test_ways_are_the_shortest_and_end_at_the_goal():
    found = mapped(corridor())
    order = [place(found, cell) for cell in CELLS]
    steps = found.steps[np.ix_(order, order)]
    away = np.abs(np.subtract.outer(np.arange(ALL + 1), np.arange(ALL + 1)))
    np.testing.assert_array_equal(steps, away)
    direct = found.ahead[np.ix_(order, order)] == -1
    np.testing.assert_array_equal(direct, away <= 2)
    np.testing.assert_array_equal(found.told[np.ix_(order, order)], np.minimum(away, 2))


def test_there_is_no_way_back_if_nobody_went_back():
    found = mapped(corridor(both_ways=False, repeats=10))
    middle, end = place(found, CELLS[LENGTH]), place(found, CELLS[-3])
    assert found.steps[middle, end] == ALL - 2 - LENGTH
    assert found.steps[end, middle] == -1
    assert found.ahead[end, middle] == -1


def test_a_passage_must_be_seen_several_times():
    assert mapped(corridor(), passages=5).steps.max() == ALL
    assert (mapped(corridor(), passages=1000).steps <= 0).all()


def test_passages_do_not_lead_from_one_episode_to_the_next():
    nearest, starts = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 3, 6])
    lags, times = passage_lags(nearest, starts, 3, (1, 2), passages=2)
    np.testing.assert_array_equal(lags, [[0, 1, 2], [0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(times, [[0, 2, 2], [0, 0, 2], [0, 0, 0]])


def test_the_map_does_not_count_on_being_thrown_elsewhere():
    """Some walks jump from where the corridors meet to almost the end, and go on there."""
    data = corridor()
    thrown = np.concatenate([CELLS[6:11], CELLS[-5:]])
    states = np.column_stack([np.full(len(thrown), 7.0, np.float32), thrown])
    jumper = Episode(states, np.zeros((len(thrown) - 1, 2)), thrown)
    episodes = [data.episode(e) for e in range(len(data))] + [jumper] * 5
    jumping = Dataset.from_episodes(episodes, action_low=-1.5, action_high=1.5)
    found = mapped(jumping)
    assert found.steps[place(found, CELLS[6]), place(found, CELLS[-1])] == ALL - 6
    pieces = unbroken(jumping.achieved_goals, jumping.starts)
    assert len(pieces) == len(jumping.starts) + 5
    np.testing.assert_array_equal(unbroken(data.achieved_goals, data.starts), data.starts)
    still = np.zeros((9, 2), np.float32)
    np.testing.assert_array_equal(unbroken(still, np.array([0, 4, 9])), [0, 4, 9])


def test_long_passages_cost_more_than_their_steps():
    """Two passages of 4 cost 2 (4 + 1.2); one of 8 costs 8 + 3.4."""
    lag = np.array([[0, 4, 8], [0, 0, 4], [0, 0, 0]])
    times = np.array([[0, 9, 99], [0, 0, 5], [0, 0, 0]])
    ahead, told, steps, seen = ways(lag, times, hops=1)
    assert (ahead[0, 2], told[0, 2], steps[0, 2], seen[0, 2]) == (1, 4, 8, 5)
    assert (seen[0, 1], seen[2, 0]) == (9, 0)


def test_farthest_points_cover_the_data_and_are_different():
    goals = np.array([[0.0], [1.0], [9.0], [9.0], [10.0]], np.float32)
    np.testing.assert_array_equal(goals[spread(goals, 3), 0], [0, 10, 1])
    assert sorted(goals[spread(goals, 9), 0]) == [0, 1, 9, 10]


def test_a_freak_state_counts_as_its_neighbour():
    data = corridor()
    walk = np.array([[0, 0], [-1, 0]], np.float32)  # a dead end that was entered once
    states = np.column_stack([np.full(2, 7.0, np.float32), walk])
    freak = Episode(states, np.diff(walk, axis=0), walk)
    episodes = [data.episode(e) for e in range(len(data))] + [freak]
    found = mapped(Dataset.from_episodes(episodes, action_low=-1.5, action_high=1.5))
    here, there = place(found, [-1, 0]), place(found, CELLS[-1])
    assert found.steps[here, there] == found.steps[there, here] == ALL


def test_places_without_any_passage_stay_what_they_are():
    np.testing.assert_array_equal(nearest_joined(np.eye(3), np.zeros(3)), [0, 1, 2])


@pytest.mark.parametrize("places", [5, 22, 40])
def test_the_tables_have_one_size(places):
    found = mapped(corridor(), places=places)
    assert found.centres.shape == (places, 2)
    assert {t.shape for t in (found.ahead, found.told, found.steps)} == {(places, places)}
    assert found.ahead.max() < places


def test_straight_lines_must_follow_passages():
    """Goals within reach are near along the corridor, but neither around its end nor across."""
    found = mapped(corridor(), reach=100)
    order = [place(found, cell) for cell in CELLS]
    direct = found.ahead[np.ix_(order, order)] == -1
    lower = np.arange(len(CELLS)) <= LENGTH
    np.testing.assert_array_equal(direct[np.ix_(lower, lower)], True)
    assert not direct[0, -1]
    assert not direct[-1, 0]
    assert not direct[3, -4]


def test_a_line_is_followed_in_strides():
    centres = np.array([[0.0], [1.0], [2.0], [3.0]])
    passage = np.eye(4, k=1, dtype=bool)
    everywhere = np.ones((4, 4), bool)
    np.testing.assert_array_equal(straight(centres, passage, everywhere, 1.0), True)
    passage[1, 2] = False
    free = straight(centres, passage, everywhere, 1.0)
    apart = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]], bool)
    np.testing.assert_array_equal(free, ~apart)
    assert not straight(centres, passage, everywhere, 0.0).any()
    asked = np.eye(4, k=1, dtype=bool)
    np.testing.assert_array_equal(straight(centres, passage, asked, 1.0), asked & ~apart)


def test_places_determine_a_state_as_far_as_they_explain_it():
    nearest = np.array([0, 0, 1, 1])
    known = np.array([[0.0], [0.0], [2.0], [2.0]])
    unknown = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    still = np.full((4, 1), 7.0)
    assert determined(nearest, known, 2) == 1.0
    assert determined(nearest, unknown, 2) == 0.0
    assert determined(nearest, np.hstack([known, unknown, still]), 2) == 0.5
    assert determined(nearest, still, 2) == 1.0


def test_where_places_do_not_determine_the_state_goals_within_reach_are_near():
    """The third number of a state, which no goal tells, now varies as much as the others."""
    data, rng = corridor(), np.random.default_rng(0)
    states = np.asarray(data.observations).copy()
    states[:, 0] = rng.normal(0.0, 10.0, len(states))
    found = mapped(dataclasses.replace(data, observations=states), reach=9)
    order = [place(found, cell) for cell in CELLS]
    away = np.abs(np.subtract.outer(np.arange(ALL + 1), np.arange(ALL + 1)))
    np.testing.assert_array_equal(found.ahead[np.ix_(order, order)] == -1, away <= 9)
