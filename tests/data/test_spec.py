"""What a learner is told of the data: moments under its sampling, and what it cannot ask for."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.labelled_goals import (
    MIXED,
    RULES,
    draw,
    labelled_dataset,
    read_off,
    reference,
)
from merlin.data import Dataset, Episode, Goals, Sampling
from merlin.data.goals import hindsight
from merlin.data.offsets import Fixed, Geometric, Uniform
from merlin.data.spec import make_spec
from merlin.errors import MerlinError


def enumerated_moments(data, rule):
    """Mean and deviation of observations, and of the goals of all distributions together."""
    observations, goals = [], []
    for name in rule.goals:
        for (e, t, *place), p in reference(data.lengths.tolist(), rule, name).items():
            episode = data.episode(e)
            observations.append((p, episode.observations[t]))
            goal = (
                episode.desired_goal
                if place[1] < 0
                else data.episode(place[0]).achieved_goals[place[1]]
            )
            goals.append((p, goal))
    for table in (observations, goals):
        weights, rows = zip(*table, strict=True)
        mean = np.average(rows, axis=0, weights=weights)
        yield mean, np.sqrt(np.average((np.asarray(rows) - mean) ** 2, axis=0, weights=weights))


def noisy_dataset(rng):
    """Values that drift with the step, so that weighting early and late states matters."""
    data = labelled_dataset(MIXED)
    episodes = (
        Episode(
            observations=rng.normal(3, 1, (len(e.observations), 3)) + e.observations,
            actions=e.actions,
            achieved_goals=rng.normal(-1, 2, e.achieved_goals.shape) + 2 * e.achieved_goals,
            desired_goal=rng.normal(5, 1, 2),
        )
        for e in map(data.episode, range(len(data)))
    )
    return Dataset.from_episodes(episodes, action_low=0.0, action_high=100.0)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_moments_are_those_of_the_sampling_distribution(rng, rule):
    data = noisy_dataset(rng)
    spec = make_spec(data, rule)
    found = (spec.observation_moments, spec.goal_moments)
    n = 400_000
    batch = draw(data, rule, n)
    goals = np.concatenate([drawn.goal for drawn in batch.goals.values()])
    for moments, exact, rows in zip(
        found, enumerated_moments(data, rule), (batch.observation, goals), strict=True
    ):
        np.testing.assert_allclose(moments.mean, exact[0], rtol=1e-5)
        np.testing.assert_allclose(moments.std, exact[1], rtol=1e-5)
        error = moments.std / np.sqrt(n)
        assert (abs(moments.mean - rows.mean(0, dtype=np.float64)) < 5 * error).all()
        np.testing.assert_allclose(moments.std, rows.std(0, dtype=np.float64), rtol=0.01)
        # So many draws have met the row that is farthest from the mean.
        np.testing.assert_allclose(moments.extent, abs(rows - moments.mean).max(0), rtol=1e-5)


@pytest.mark.parametrize("steps", ["pairs", "transitions"])
def test_moments_where_only_the_first_steps_are_drawn(rng, steps):
    data, rule = replace(noisy_dataset(rng), drawn_steps=2), hindsight(0.6, steps)
    spec, n = make_spec(data, rule), 400_000
    batch = draw(data, rule, n)
    for moments, rows in (
        (spec.observation_moments, batch.observation),
        (spec.goal_moments, batch.goal),
    ):
        error = moments.std / np.sqrt(n)
        assert (abs(moments.mean - rows.mean(0, dtype=np.float64)) < 5 * error).all()
        np.testing.assert_allclose(moments.std, rows.std(0, dtype=np.float64), rtol=0.01)
        np.testing.assert_allclose(moments.extent, abs(rows - moments.mean).max(0), rtol=1e-5)


def test_moments_of_images_have_their_shape(rng):
    frames = rng.integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
    goals = np.zeros((6, 2), np.float32)
    data = Dataset.from_episodes([Episode(frames, goals[1:], goals)])
    spec = make_spec(data, hindsight(1.0, "pairs"))
    assert spec.observation_shape == (4, 5, 3)
    assert spec.has_images
    np.testing.assert_allclose(spec.observation_moments.mean, frames.mean(0), rtol=1e-5)


def test_the_rest_of_the_spec():
    spec = make_spec(labelled_dataset(MIXED), hindsight(1.0, "pairs"))
    assert (spec.observation_shape, spec.action_dim, spec.goal_dim) == ((3,), 2, 2)
    assert spec.max_horizon == max(MIXED)
    np.testing.assert_array_equal(spec.action_low, [0, 0])
    np.testing.assert_array_equal(spec.action_high, [1000, 1000])


def test_desired_goals_are_needed_only_if_asked_for():
    data = labelled_dataset(MIXED, goals=False)
    with pytest.raises(MerlinError, match=r"hindsight_ratio: 0\.9"):
        make_spec(data, hindsight(0.9, "pairs"))
    make_spec(data, hindsight(1.0, "pairs"))
    rule = hindsight(1.0, "pairs")
    read_off(draw(data, rule, 64), MIXED, rule.goals["policy"], "policy")


def test_segments_stay_within_their_episode():
    """A segment ahead begins at t, one behind ends there; beyond the edge the edge is repeated."""
    batch = draw(labelled_dataset(MIXED), hindsight(1.0, "pairs", ahead=5, behind=4), 4000)
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
    plain = draw(labelled_dataset(MIXED), hindsight(1.0, "pairs"), 4000)
    assert (plain.ahead, plain.behind) == (None, None)
    with pytest.raises(MerlinError, match="the length of a segment"):
        hindsight(1.0, "pairs", ahead=-1)


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_the_ratio_is_a_share(ratio):
    with pytest.raises(MerlinError, match="between 0 and 1"):
        hindsight(ratio, "pairs")


@pytest.mark.parametrize(
    ("make", "fragment"),
    [
        (lambda: Goals(future=0.5, random=0.4), "sum to 1"),
        (lambda: Goals(future=1.5, random=-0.5), "non-negative"),
        (lambda: Goals(future=float("nan")), "sum to 1"),
        (lambda: Goals(), "sum to 1"),
        (lambda: Goals(future=1.0, subgoal=-1), "subgoal: -1"),
        (lambda: Geometric(1.0), "discount: 1.0"),
        (lambda: Fixed(0), "steps: 0"),
        (lambda: Uniform(0), "limit: 0"),
        (lambda: Sampling({}), "goals: there are none"),
    ],
)
def test_impossible_declarations_are_refused(make, fragment):
    with pytest.raises(MerlinError, match=fragment):
        make()
