"""Relabelling against a slow, obvious reference.

Episode and step are written into the observations, so that every sampled row says where in the
data it was taken from.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from helpers.labelled_goals import (
    MIXED,
    RULES,
    STATES,
    STEPS,
    compiled,
    draw,
    labelled_dataset,
    read_off,
    reference,
)
from merlin.data import Goals, Sampling
from merlin.data.goals import hindsight
from merlin.data.offsets import Fixed, Geometric
from merlin.types import Trajectories


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
def test_every_row_can_be_drawn(lengths, rule, seed):
    batch = draw(labelled_dataset(lengths), rule, 256, seed)
    for name, goals in rule.goals.items():
        found = set(map(tuple, read_off(batch, lengths, goals, name).tolist()))
        assert found <= reference(lengths, rule, name).keys()


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_goals_are_as_frequent_as_enumeration_says(rule):
    n = 200_000
    batch = draw(labelled_dataset(MIXED), rule, n)
    for name, goals in rule.goals.items():
        expected = reference(MIXED, rule, name)
        found, counts = np.unique(read_off(batch, MIXED, goals, name), axis=0, return_counts=True)
        observed = dict.fromkeys(expected, 0)
        for place, count in zip(found.tolist(), counts, strict=True):
            observed[tuple(place)] += int(count)
        assert sum(expected.values()) == pytest.approx(1.0)
        test = stats.chisquare(list(observed.values()), [n * p for p in expected.values()])
        assert test.pvalue > 1e-4, name
        assert abs(batch.goals[name].relabelled.mean() - goals.future) < 5 * 0.5 / np.sqrt(n)


@pytest.mark.parametrize("ratio", [0.2, 1.0])
def test_merlins_marginals_are_those_of_the_docs(ratio):
    """docs/data.md has the formulas, for an episode of T states."""
    n, T = 200_000, 50
    batch = draw(labelled_dataset((T,) * 3), hindsight(ratio, "pairs"), n)
    own, t = batch.only.relabelled, batch.observation[:, 1].astype(int)
    assert abs(own.mean() - ratio) < 5 * np.sqrt(ratio * (1 - ratio) / n) + 1e-9
    steps, horizons = np.arange(T - 1), np.arange(1, T)
    p_t, p_h = (2 * (T - 1 - steps) / (T * (T - 1)), 2 * (T - horizons) / (T * (T - 1)))
    counts = np.bincount(batch.horizon[own].astype(int), minlength=T)[1:]
    assert stats.chisquare(counts, own.sum() * p_h).pvalue > 1e-4
    assert stats.chisquare(np.bincount(t, minlength=T - 1), n * p_t).pvalue > 1e-4
    np.testing.assert_array_equal(batch.horizon[~own], T - t[~own])


@pytest.mark.parametrize(
    ("steps", "at", "goal", "horizon"),
    [
        (
            "pairs",
            [[2, 0], [3, 1], [1, 0], [1, 1], [2, 4], [2, 0], [1, 0], [1, 1]],
            [[-3, -1], [3, 9], [-2, -1], [1, 2], [-3, -1], [2, 3], [-2, -1], [1, 2]],
            [7, 8, 3, 1, 3, 3, 3, 1],
        ),
        (
            "episodes",
            [[2, 0], [3, 0], [1, 0], [1, 1], [2, 4], [2, 0], [1, 1], [1, 0]],
            [[-3, -1], [3, 9], [-2, -1], [1, 2], [-3, -1], [2, 3], [-2, -1], [1, 2]],
            [7, 9, 3, 1, 3, 3, 2, 2],
        ),
    ],
)
def test_a_key_draws_what_it_always_drew(steps, at, goal, horizon):
    """Runs are resumed and repeated to the byte, so the use of random words may not change."""
    batch = draw(labelled_dataset(MIXED), hindsight(0.5, steps), 8, seed=7)
    np.testing.assert_array_equal(batch.observation[:, :2], at)
    np.testing.assert_array_equal(batch.goal, goal)
    np.testing.assert_array_equal(batch.horizon, horizon)


def test_a_limit_changes_nothing_for_episodes_that_are_shorter():
    """To the byte: 50-step tasks are learned as without it."""
    data = labelled_dataset((50, 51))
    plain, limited = (draw(data, hindsight(0.5, "pairs", limit=n), 512) for n in (None, 50))
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(limited), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_limit_brings_goals_of_long_episodes_near():
    """Goals within 40 of 1,000 steps: 2 (40 * 1001 - 820) / (1001 * 1000) = 0.078 of all pairs.

    With a limit of 100 it is 0.4 of all but the last 100 steps, 1 of the last 40, and 40 / r where
    r steps are left: 0.36 + 0.04 + 0.04 (1/41 + ... + 1/100) = 0.436.
    """
    data = labelled_dataset((1001,))
    for limit, share in ((None, 0.078), (100, 0.436)):
        horizon = draw(data, hindsight(1.0, "pairs", limit=limit), 50_000).horizon
        assert abs((horizon <= 40).mean() - share) < 0.01


# What value-based methods need, with numbers worked out by hand.


def share(chosen, given):
    return np.mean(chosen[given], axis=0)


def test_hiql_draws_goals_for_value_high_and_low():
    """Two episodes of 4 and 2 states: 4 transitions, 6 states.

    From the first state of the first episode a geometric offset of discount 1/2 is 1, 2 or 3 steps
    with 1/2, 1/4 and 1/4 (capped), and a random goal is each state with 1/6. So with shares of 0.2,
    0.5 and 0.3 the current state is the goal with 0.2 + 0.05, the next with 0.25 + 0.05, the others
    of the episode with 0.125 + 0.05, and those of the other episode with 0.05. A uniform goal is 1,
    2 or 3 steps away with 1/3 each, so the state 2 ahead, capped at it, is 1 or 2 steps away with
    1/3 and 2/3.
    """
    hiql = Sampling(
        {
            "value": Goals(current=0.2, future=0.5, random=0.3, offsets=Geometric(0.5)),
            "high": Goals(future=1.0, subgoal=2),
            "low": Goals(future=1.0, offsets=Fixed(2)),
        }
    )
    n = 200_000
    batch = draw(labelled_dataset((4, 2)), hiql, n)
    episode, t = batch.observation[:, 0], batch.observation[:, 1]
    start, late = (episode == 0) & (t == 0), (episode == 0) & (t == 2)
    assert abs(start.mean() - 1 / 4) < 0.005
    assert abs((episode == 1).mean() - 1 / 4) < 0.005

    value = batch.goals["value"]
    states = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    hit = np.stack([(value.goal == state).all(1) for state in states], 1)
    assert hit.sum() == n
    by_hand = [0.25, 0.30, 0.175, 0.175, 0.05, 0.05]
    np.testing.assert_allclose(share(hit, start), by_hand, atol=0.01)
    # One step before the end the geometric goal is the end: 0.5 + 0.05.
    np.testing.assert_allclose(share(hit, late), [0.05, 0.05, 0.25, 0.55, 0.05, 0.05], atol=0.01)
    assert abs(share(value.reached, start) - 0.25) < 0.01
    assert abs(value.relabelled.mean() - 0.5) < 0.01

    high = batch.goals["high"]
    np.testing.assert_allclose(
        [share(high.horizon == h, start) for h in (1, 2, 3)], [1 / 3] * 3, atol=0.01
    )
    np.testing.assert_allclose(
        [share(high.subgoal[:, 1] == i, start) for i in (1, 2)], [1 / 3, 2 / 3], atol=0.01
    )
    assert high.relabelled.all()
    assert not high.reached.any()
    np.testing.assert_array_equal(high.subgoal_observation[:, :2], high.subgoal)
    np.testing.assert_array_equal(high.subgoal[:, 1], t + np.minimum(2, high.horizon))
    np.testing.assert_array_equal(
        batch.goals["low"].goal[:, 1], np.minimum(t + 2, np.where(episode == 0, 3, 1))
    )
    # Drawn apart: the value's goal says nothing of the actor's.
    far, mine = high.horizon == 3, value.reached
    assert abs(share(far & mine, start) - 0.25 / 3) < 0.01


def test_hiqls_subgoals_are_25_steps_ahead_or_the_goal():
    """101 states: a goal r steps before the end or nearer is within 25 steps with min(25, r) / r.

    The mean over r = 1 .. 100 is (25 + 25 (H_100 - H_25)) / 100 with H the harmonic numbers
    5.187378 and 3.815958: 0.592855.
    """
    rule = Sampling({"value": Goals(random=1.0), "actor": Goals(future=1.0, subgoal=25)})
    actor = (batch := draw(labelled_dataset((101, 101)), rule, 200_000)).goals["actor"]
    ahead = actor.subgoal[:, 1] - batch.observation[:, 1]
    np.testing.assert_array_equal(ahead, np.minimum(25, actor.horizon))
    is_goal = (actor.subgoal == actor.goal).all(1)
    assert abs(is_goal.mean() - 0.592855) < 0.005
    np.testing.assert_array_equal(actor.subgoal[:, 0], batch.observation[:, 0])
    assert (batch.goals["value"].goal[:, 0] != batch.observation[:, 0]).mean() == pytest.approx(
        0.5, abs=0.01
    )


def test_crl_draws_geometric_goals_for_the_value_and_uniform_ones_for_the_actor():
    """From the first of 101 states: a capped geometric offset is (1 - 0.99^100) / 0.01 = 63.397
    steps in the mean and the last state with 0.99^99 = 0.369730; a uniform one is 50.5 steps.
    """
    crl = Sampling(
        {
            "value": Goals(future=1.0, offsets=Geometric(0.99)),
            "actor": Goals(future=1.0),
        },
        steps="episodes",
    )
    batch = draw(labelled_dataset((101,)), crl, 400_000)
    start = batch.observation[:, 1] == 0
    value, actor = batch.goals["value"].horizon[start], batch.goals["actor"].horizon[start]
    assert abs(value.mean() - 63.397) < 5 * value.std() / np.sqrt(len(value))
    assert abs((value == 100).mean() - 0.369730) < 5 * 0.5 / np.sqrt(len(value))
    assert abs((value == 1).mean() - 0.01) < 5 * 0.1 / np.sqrt(len(value))
    assert abs(actor.mean() - 50.5) < 5 * actor.std() / np.sqrt(len(actor))
    assert not batch.goals["value"].reached.any()


def test_subgoals_of_other_goals_are_capped_at_the_end():
    goals = {"all": Goals(random=0.4, desired=0.4, current=0.2, subgoal=3)}
    batch = draw(labelled_dataset(MIXED), Sampling(goals), 4000)
    episode, t = batch.observation[:, 0].astype(int), batch.observation[:, 1]
    drawn = batch.goals["all"]
    same = drawn.subgoal[:, 1] == t
    capped = np.minimum(t + 3, np.asarray(MIXED)[episode] - 1)
    assert ((drawn.subgoal[:, 1] == capped) | (same & drawn.reached)).all()
    assert abs(same.mean() - 0.2) < 0.03
    np.testing.assert_array_equal(drawn.subgoal[:, 0], episode)


@pytest.mark.parametrize("steps", STEPS)
def test_long_episodes_of_large_datasets(steps):
    """1,250 episodes of 4,000 states, as numbers of rows: nothing overflows, all is reached."""
    length, episodes, n = 4000, 1250, 50_000
    rows = jnp.arange(length * episodes, dtype=jnp.int32)
    data = Trajectories(
        observations=rows,
        actions=jnp.zeros((len(rows) - episodes, 1)),
        achieved_goals=rows.astype(jnp.float32)[:, None],
        desired_goals=None,
        starts=jnp.arange(episodes + 1, dtype=jnp.int32) * length,
    )
    goals = {"value": Goals(random=0.5, future=0.5, offsets=Geometric(0.999)), "pi": Goals(1.0)}
    batch = jax.tree.map(np.asarray, compiled(Sampling(goals, steps), n)(data, jax.random.key(0)))
    t, episode = batch.observation % length, batch.observation // length
    mean = (length - 2) / (3 if steps == "pairs" else 2)
    assert abs(t.mean() - mean) < 5 * t.std() / np.sqrt(n)
    assert abs(episode.mean() - (episodes - 1) / 2) < 5 * episode.std() / np.sqrt(n)
    value = batch.goals["value"]
    anywhere = value.goal[~value.relabelled, 0]
    assert anywhere.min() < 0.01 * len(rows) < 0.99 * len(rows) < anywhere.max() < len(rows)
    for drawn in batch.goals.values():
        future = drawn.relabelled
        goal = drawn.observation[future]
        assert (goal // length == episode[future]).all()
        np.testing.assert_array_equal(goal - batch.observation[future], drawn.horizon[future])


@pytest.mark.parametrize(("ratio", "horizons"), [(1.0, range(1, 50)), (0.0, range(2, 51))])
def test_horizons_of_the_benchmark(ratio, horizons):
    """Fifty states: 1 to 49 towards a state of the episode, 2 to 50 towards its own goal."""
    horizon = draw(labelled_dataset((50, 50)), hindsight(ratio, "pairs"), 200_000).horizon
    assert horizon.dtype == np.float32
    assert set(horizon.astype(int)) == set(horizons)
    mean = 17.0 if ratio == 1.0 else 50.0 - 16.0  # E[i - t] = 17 and E[t] = 16
    assert abs(horizon.mean() - mean) < 5 * horizon.std() / np.sqrt(len(horizon))


def test_the_key_decides_the_batch():
    data = labelled_dataset(MIXED)
    one, same, other = (draw(data, RULES[-1], 64, seed) for seed in (3, 3, 4))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (one.observation != other.observation).any()


@pytest.mark.parametrize("steps", ["pairs", "episodes", "transitions"])
def test_only_the_first_steps_are_drawn(steps):
    """By hand: an episode is drawn uniformly, one of its first two steps, then a later state."""
    n, lengths, rule = 200_000, (2, 4, 6), hindsight(1.0, steps)
    batch = draw(replace(labelled_dataset(lengths), drawn_steps=2), rule, n)
    expected = {}
    for e, length in enumerate(lengths):
        first = range(min(2, length - 1))
        for t in first:
            for later in range(t + 1, length):
                expected[e, t, later] = 1 / (3 * len(first) * (length - 1 - t))
    found = np.column_stack([batch.observation[:, :2], batch.observation[:, 1] + batch.horizon])
    places, counts = np.unique(found.astype(int), axis=0, return_counts=True)
    observed = {tuple(place): count for place, count in zip(places.tolist(), counts, strict=True)}
    assert observed.keys() == expected.keys()
    test = stats.chisquare([observed[p] for p in expected], [n * p for p in expected.values()])
    assert test.pvalue > 1e-4
