"""Relabelling against a slow, obvious reference.

Episode and step are written into the observations, so that every sampled row says where in the
data it was taken from.
"""

from functools import lru_cache

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from merlin.data import Dataset, Episode, Relabel
from merlin.data.relabel import make_spec
from merlin.errors import MerlinError

RATIOS = (0.0, 0.3, 1.0)
RULES = [Relabel(ratio, uniform_time=uniform) for ratio in RATIOS for uniform in (False, True)]
MIXED = (2, 3, 7, 12)
STATES = 24  # of every dataset that hypothesis draws: one shape, compiled once


def labelled_dataset(lengths, *, goals=True):
    """Observation (episode, step, 0), action and achieved goal (episode, step)."""
    episodes = []
    for e, states in enumerate(lengths):
        steps = np.stack([np.full(states, e), np.arange(states)], 1).astype(np.float32)
        episodes.append(
            Episode(
                observations=np.pad(steps, ((0, 0), (0, 1))),
                actions=steps[:-1],
                achieved_goals=steps,
                desired_goal=np.array([-1 - e, -1], np.float32) if goals else None,
            )
        )
    return Dataset.from_episodes(episodes, action_low=0.0, action_high=100.0)


def reference(lengths, rule):
    """Probability of every (episode, t, i or None if not relabelled), by enumeration."""
    table = {}
    ratio = rule.hindsight_ratio
    for e, states in enumerate(lengths):
        pairs = [(t, i) for t in range(states) for i in range(t + 1, states)]
        for t, i in pairs:
            share = len(pairs)
            if rule.uniform_time:
                share = (states - 1) * (states - 1 - t)
            each = 1.0 / len(lengths) / share
            table[e, t, i] = ratio * each
            table[e, t, None] = table.get((e, t, None), 0.0) + (1.0 - ratio) * each
    return {place: p for place, p in table.items() if p > 0.0}


@lru_cache
def compiled(rule, n):
    return jax.jit(lambda data, key: rule.sample(data, key, n))


def draw(data, rule, n, seed=0):
    batch = compiled(rule, n)(data.on_device(), jax.random.key(seed))
    return jax.tree.map(np.asarray, batch)


def read_off(batch, lengths):
    """Where each row is from, as (episode, t, i or -1), after checking that its parts agree."""
    episode, t = batch.observation[:, 0].astype(int), batch.observation[:, 1].astype(int)
    length = np.asarray(lengths)[episode]
    at, then = np.stack([episode, t], 1), np.stack([episode, t + 1], 1)
    assert (t < length - 1).all(), "the last state has no action"
    np.testing.assert_array_equal(batch.action, at)
    np.testing.assert_array_equal(batch.achieved_goal, at)
    np.testing.assert_array_equal(batch.next_observation[:, :2], then)
    np.testing.assert_array_equal(batch.next_achieved_goal, then)

    np.testing.assert_array_equal(batch.first_observation[:, 0], episode)
    np.testing.assert_array_equal(batch.first_observation[:, 1], 0)

    relabelled = batch.goal[:, 0] >= 0
    np.testing.assert_array_equal(batch.relabelled, relabelled)
    i = np.where(relabelled, batch.goal[:, 1].astype(int), -1)
    own, other = relabelled, ~relabelled
    np.testing.assert_array_equal(batch.goal[own, 0], episode[own])
    assert ((t < i) & (i < length))[own].all()
    np.testing.assert_array_equal(batch.horizon[own], (i - t)[own])
    np.testing.assert_array_equal(batch.goal[other, 0], -1 - episode[other])
    np.testing.assert_array_equal(batch.horizon[other], (length - t)[other])
    return np.stack([episode, t, i], 1)


@st.composite
def compositions(draw):
    """Lengths of 1, 3 or 6 episodes, none under two states, that sum to STATES."""
    episodes = draw(st.sampled_from((1, 3, 6)))
    spare = STATES - 2 * episodes
    cuts = sorted(
        draw(st.lists(st.integers(0, spare), min_size=episodes - 1, max_size=episodes - 1))
    )
    return tuple(int(x) + 2 for x in np.diff([0, *cuts, spare]))


@settings(max_examples=60, deadline=None)
@given(lengths=compositions(), rule=st.sampled_from(RULES), seed=st.integers(0, 2**31 - 1))
def test_every_row_is_some_pair_of_one_episode(lengths, rule, seed):
    batch = draw(labelled_dataset(lengths), rule, 256, seed)
    places = {(e, t, None if i < 0 else i) for e, t, i in read_off(batch, lengths).tolist()}
    assert places <= reference(lengths, rule).keys()


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_pairs_are_as_frequent_as_enumeration_says(rule):
    n = 200_000
    expected = reference(MIXED, rule)
    places, counts = np.unique(
        read_off(draw(labelled_dataset(MIXED), rule, n), MIXED), axis=0, return_counts=True
    )
    observed = dict.fromkeys(expected, 0)
    for (e, t, i), count in zip(places.tolist(), counts, strict=True):
        observed[e, t, None if i < 0 else i] += int(count)
    assert sum(expected.values()) == pytest.approx(1.0)
    test = stats.chisquare(list(observed.values()), [n * p for p in expected.values()])
    assert test.pvalue > 1e-4


@pytest.mark.parametrize(("ratio", "horizons"), [(1.0, range(1, 50)), (0.0, range(2, 51))])
def test_horizons_of_the_benchmark(ratio, horizons):
    """Fifty states: 1 to 49 towards a state of the episode, 2 to 50 towards its own goal."""
    horizon = draw(labelled_dataset((50, 50)), Relabel(ratio), 200_000).horizon
    assert horizon.dtype == np.float32
    assert set(horizon.astype(int)) == set(horizons)
    mean = 17.0 if ratio == 1.0 else 50.0 - 16.0  # E[i - t] = 17 and E[t] = 16
    assert abs(horizon.mean() - mean) < 5 * horizon.std() / np.sqrt(len(horizon))


def test_the_key_decides_the_batch():
    data = labelled_dataset(MIXED)
    one, same, other = (draw(data, Relabel(0.3), 64, seed) for seed in (3, 3, 4))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (one.observation != other.observation).any()


def enumerated_moments(data, rule):
    """Mean and deviation of observation and goal over all that can be sampled."""
    observations, goals, weights = [], [], []
    for (e, t, i), p in reference(data.lengths.tolist(), rule).items():
        episode = data.episode(e)
        observations.append(episode.observations[t])
        goals.append(episode.desired_goal if i is None else episode.achieved_goals[i])
        weights.append(p)
    for rows in (observations, goals):
        mean = np.average(rows, axis=0, weights=weights)
        yield mean, np.sqrt(np.average((np.asarray(rows) - mean) ** 2, axis=0, weights=weights))


def noisy_dataset(rng):
    """Values that drift with the step, so that weighting early and late states matters."""
    data = labelled_dataset(MIXED)
    return Dataset.from_episodes(
        Episode(
            observations=rng.normal(3, 1, (len(e.observations), 3)) + e.observations,
            actions=e.actions,
            achieved_goals=rng.normal(-1, 2, e.achieved_goals.shape) + 2 * e.achieved_goals,
            desired_goal=rng.normal(5, 1, 2),
        )
        for e in map(data.episode, range(len(data)))
    )


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_moments_are_those_of_the_sampling_distribution(rng, rule):
    data = noisy_dataset(rng)
    spec = make_spec(data, rule)
    found = (spec.observation_moments, spec.goal_moments)
    n = 400_000
    batch = draw(data, rule, n)
    for moments, exact, rows in zip(
        found, enumerated_moments(data, rule), (batch.observation, batch.goal), strict=True
    ):
        np.testing.assert_allclose(moments.mean, exact[0], rtol=1e-5)
        np.testing.assert_allclose(moments.std, exact[1], rtol=1e-5)
        error = moments.std / np.sqrt(n)
        assert (abs(moments.mean - rows.mean(0, dtype=np.float64)) < 5 * error).all()
        np.testing.assert_allclose(moments.std, rows.std(0, dtype=np.float64), rtol=0.01)


def test_moments_of_images_have_their_shape(rng):
    frames = rng.integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
    goals = np.zeros((6, 2), np.float32)
    data = Dataset.from_episodes([Episode(frames, goals[1:], goals)])
    spec = make_spec(data, Relabel(1.0))
    assert spec.observation_shape == (4, 5, 3)
    assert spec.has_images
    np.testing.assert_allclose(spec.observation_moments.mean, frames.mean(0), rtol=1e-5)


def test_the_rest_of_the_spec():
    spec = make_spec(labelled_dataset(MIXED), Relabel(1.0))
    assert (spec.observation_shape, spec.action_dim, spec.goal_dim) == ((3,), 2, 2)
    assert spec.max_horizon == max(MIXED)
    np.testing.assert_array_equal(spec.action_low, [0, 0])
    np.testing.assert_array_equal(spec.action_high, [100, 100])


def test_desired_goals_are_needed_only_if_asked_for():
    data = labelled_dataset(MIXED, goals=False)
    with pytest.raises(MerlinError, match=r"hindsight_ratio: 0\.9"):
        make_spec(data, Relabel(0.9))
    make_spec(data, Relabel(1.0))
    read_off(draw(data, Relabel(1.0), 64), MIXED)


def test_windows_stay_within_their_episode():
    """A window ahead begins at t, one behind ends there; beyond the edge the edge is repeated."""
    batch = draw(labelled_dataset(MIXED), Relabel(1.0, ahead=5, behind=4), 4000)
    episode, t = batch.observation[:, 0].astype(int), batch.observation[:, 1].astype(int)
    last = np.asarray(MIXED)[episode] - 1
    for window, offsets in ((batch.ahead, range(5)), (batch.behind, range(-3, 1))):
        for column, offset in enumerate(offsets):
            inside = (t + offset >= 0) & (t + offset <= last)
            np.testing.assert_array_equal(window.valid[:, column], inside)
            state = np.clip(t + offset, 0, last)
            np.testing.assert_array_equal(window.observations[:, column, 0], episode)
            np.testing.assert_array_equal(window.observations[:, column, 1], state)
            action = np.clip(t + offset, 0, last - 1)
            np.testing.assert_array_equal(window.actions[:, column, 0], episode)
            np.testing.assert_array_equal(window.actions[:, column, 1], action)
    plain = draw(labelled_dataset(MIXED), Relabel(1.0), 4000)
    assert (plain.ahead, plain.behind) == (None, None)
    with pytest.raises(MerlinError, match="a window has 0 steps"):
        Relabel(1.0, ahead=-1)


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_the_ratio_is_a_share(ratio):
    with pytest.raises(MerlinError, match="between 0 and 1"):
        Relabel(ratio)
