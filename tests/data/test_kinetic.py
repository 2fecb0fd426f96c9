"""Kinetic maps of processes whose time scales are known."""

import numpy as np
import pytest

from merlin.data import Dataset, Episode
from merlin.data.kinetic import kinetic_map
from merlin.data.map import build_map, usual_radius

STEPS, EPISODES = 400, 50
STARTS = np.arange(EPISODES + 1) * STEPS


def process(*keeps, seed=0):
    """Stationary autoregressive columns: each step keeps that share, and adds noise."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(EPISODES, STEPS, len(keeps)))
    x, keeps = noise.copy(), np.array(keeps)
    for t in range(1, STEPS):
        x[:, t] = keeps * x[:, t - 1] + np.sqrt(1 - keeps**2) * noise[:, t]
    return x.reshape(-1, len(keeps)).astype(np.float32)


def test_a_coordinate_counts_as_much_as_it_stays_the_same():
    """Unit variance times the autocorrelation after 3 steps: 0.9^3 and 0.7^3."""
    found = kinetic_map(process(0.7, 0.9), STARTS, 3)
    np.testing.assert_allclose(np.abs(found), [[0, 0.343], [0.729, 0]], atol=0.05)


def test_fast_coordinates_do_not_count_however_large_they_are():
    goals = process(0.99, 0.0) * [1.0, 100.0]
    z = goals @ kinetic_map(goals, STARTS, 5)
    assert abs(np.corrcoef(z[:, 0], goals[:, 0])[0, 1]) > 0.99
    assert not z[:, 1].any()


def test_distances_do_not_depend_on_the_coordinates_of_the_goals():
    goals = process(0.98, 0.9, 0.5)
    mixed = goals @ np.array([[3.0, 1.0, 0.0], [0.0, 0.1, 0.5], [2.0, 0.0, 40.0]]) + 7.0
    own, other = (x @ kinetic_map(x, STARTS, 4) for x in (goals, mixed))
    pairs = np.random.default_rng(1).integers(len(goals), size=(2, 500))
    one, two = (np.linalg.norm(z[pairs[0]] - z[pairs[1]], axis=1) for z in (own, other))
    np.testing.assert_allclose(one, two, rtol=0.01, atol=1e-3)


def test_pairs_do_not_span_episodes():
    """Two constants that alternate between episodes: nothing ever changes within one."""
    goals = np.repeat([[0.0], [1.0]] * 3, 5, axis=0).astype(np.float32)
    found = kinetic_map(goals, np.arange(7) * 5, 2)
    np.testing.assert_allclose(abs(found), 2.0)  # deviation 1/2, autocorrelation 1


@pytest.mark.parametrize("lag", [2, 9])
def test_what_never_moves_has_no_part_in_distances(lag):
    still = np.column_stack([process(0.9)[:40], np.full(40, 3.0, np.float32)])
    starts = np.arange(9) * 5  # no pair is 9 steps apart
    found = kinetic_map(still, starts, lag)
    if lag == 9:
        np.testing.assert_array_equal(found, np.eye(2))
    else:
        assert found[0, 0] != 0.0
        assert not found[1].any()


def walkers(rng, count=300, steps=60):
    """Random walks along a line, by a robot whose four joints swing as far as the line is long."""
    episodes = []
    for _ in range(count):
        at = np.clip(
            np.cumsum(rng.choice([-1.0, 1.0], steps + 1)) * 0.5 + rng.uniform(0, 10), 0, 10
        )
        states = np.column_stack([at, rng.uniform(-5, 5, (steps + 1, 4))]).astype(np.float32)
        episodes.append(Episode(states, np.zeros((steps, 1)), states))
    return Dataset.from_episodes(episodes)


def test_places_of_a_robot_with_joints(rng):
    """The line takes 20 steps. Places of all five numbers are so large that it seems shorter."""
    data = walkers(rng)
    how = {"places": 300, "lags": (1, 2, 3), "passages": 3, "hops": 2, "reach": 0}
    slow = kinetic_map(data.achieved_goals, data.starts, 25)
    plain = build_map(data, tuple(range(5)), **how)
    kinetic = build_map(data, tuple(range(5)), **how, projection=slow)

    def across(found):
        ends = (np.abs(found.centres[:, 0] - x) < 0.25 for x in (0.0, 10.0))
        return np.median(found.steps[np.ix_(*ends)])

    assert across(plain) < 10
    assert 18 <= across(kinetic) <= 30
    # Goals are still told whole, and near ones are as far apart as the joints swing.
    assert kinetic.centres.shape == (300, 5)
    assert 5.0 < usual_radius(data, kinetic) < 20.0
    assert usual_radius(data, plain) == pytest.approx(np.median(plain.radius), rel=1e-4)
