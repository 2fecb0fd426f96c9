"""What judges the proposals of Merlin-plus: its distance, its model and its error, by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from helpers.learner_data import rows
from merlin.learners.judge import STILL, Pairs, clip_each, judge_loss, starts, with_error
from merlin.policies.judge import LOG_ODDS, MAX_BINS, Judge, Walks, bin_horizons
from merlin.types import Moments, Spec


def spec(max_horizon: int, dim: int = 2) -> Spec:
    moments = Moments(np.zeros(dim, np.float32), np.ones(dim, np.float32))
    bound = np.ones(dim, np.float32)
    return Spec((dim,), -bound, bound, dim, max_horizon, moments, moments)


def judge_that_says(max_horizon: int, probabilities) -> Judge:
    """A judge with the same distribution over horizons and "another's" everywhere."""
    judge = Judge(spec(max_horizon), (4,), (4,), (4,), limit=None, key=jax.random.key(0))
    last = judge.distance.layers[-1]
    return eqx.tree_at(
        lambda j: (j.distance.layers[-1].weight, j.distance.layers[-1].bias),
        judge,
        (jnp.zeros_like(last.weight), jnp.log(jnp.asarray(probabilities))),
    )


def nowhere(pairs: Pairs) -> Walks:
    """Walks that end where they begin."""
    return Walks(pairs.state, pairs.goal, pairs.state)


def test_temporal_distance_by_hand():
    """0.2 and 0.6 on 1 and 4 steps, 0.2 on none, discount 0.5: (0.1 + 0.0375) / 0.2 = 0.6875."""
    judge, here = judge_that_says(4, [0.2, 1e-12, 1e-12, 0.6, 0.2]), jnp.zeros(4)
    np.testing.assert_allclose(judge.steps(here, 0.5), -np.log2(0.6875), atol=1e-5)
    np.testing.assert_allclose(judge.log_prob(here, jnp.float32(4)), np.log(0.6), rtol=1e-5)
    np.testing.assert_allclose(judge.log_prob_other(here), np.log(0.2), rtol=1e-5)
    # A step nearer counts one less, whatever the discount and however probable.
    for discount in (0.5, 0.9):
        far, near = (
            judge_that_says(4, row)
            for row in ([1e-12, 0.1, 0.3, 1e-12, 0.6], [0.1, 0.3, 1e-12, 1e-12, 0.6])
        )
        nearer = far.steps(here, discount) - near.steps(here, discount)
        np.testing.assert_allclose(nearer, 1.0, rtol=1e-4)


def test_distance_of_hazards_by_hand():
    """Arrivals of 1/2 after 1 step and 3/4 of the rest after 2, discount 0.5: 1/4 + 3/32."""
    judge, here = Judge(spec(4), (4,), (4,), (4,), limit=2, key=jax.random.key(0)), jnp.zeros(4)
    last = lambda j: j.distance.layers[-1]  # noqa: E731
    odds = jnp.log(jnp.asarray([1.0, 3.0]))
    parts = lambda j: (last(j).weight, last(j).bias)  # noqa: E731
    judge = eqx.tree_at(parts, judge, (jnp.zeros_like(last(judge).weight), odds))
    assert (judge.bins, judge.width) == (2, 1)
    np.testing.assert_allclose(judge.steps(here, 0.5), -np.log2(1 / 4 + 3 / 32), rtol=1e-5)
    never = eqx.tree_at(lambda j: last(j).bias, judge, jnp.full(2, -1e4))
    np.testing.assert_allclose(never.steps(here, 0.9), LOG_ODDS / np.log(1 / 0.9), atol=10)


def test_hazards_are_not_trained_with_the_judge():
    judge = Judge(spec(5), (4,), (4,), (4,), limit=3, key=jax.random.key(0))
    state = rows(16)
    pairs = Pairs(state, state, state + 1.0, state, jnp.ones(16))
    slope, parts = jax.grad(judge_loss, has_aux=True)(judge, pairs, nowhere(pairs))
    assert set(parts) == {"model_loss", "guide_loss"}
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(clip_each(slope, 1.0).distance))
    assert any(np.any(leaf) for leaf in jax.tree.leaves(slope.model))


def test_odds_beyond_all_measure_are_still_a_distance():
    judge, here = judge_that_says(2, [0.4, 0.4, 0.2]), jnp.zeros(4)
    most = LOG_ODDS / np.log(1 / 0.9)
    for scores, steps in (([1e4, -1e4, 0.0], 1 - most), ([-1e4, -1e4, 1e4], most)):
        extreme = eqx.tree_at(lambda j: j.distance.layers[-1].bias, judge, jnp.asarray(scores))
        np.testing.assert_allclose(extreme.steps(here, 0.9), steps, atol=10)


def test_to_stay_at_the_goal_is_nearer_than_to_pass_it():
    """From one state the goal is achieved at each of 8 steps, from another after the first only.

    Both have goals of their own as well, so that no goal belongs to a state.
    """
    judge = Judge(spec(8), (32,), (4,), (4,), limit=None, key=jax.random.key(0))
    stays, passes = jnp.asarray([1.0, 0.0]), jnp.asarray([0.0, 1.0])
    place, elsewhere = jnp.zeros(2), jnp.asarray([2.0, 2.0])
    horizon = jnp.tile(jnp.arange(1.0, 9.0), 16)
    state = jnp.repeat(jnp.stack([stays, passes]), 64, axis=0)
    there = (jnp.arange(128) < 64) | (horizon == 1)
    goal = jnp.where(there[:, None], place, elsewhere)
    shuffled = np.random.default_rng(0).permutation(128)
    pairs = Pairs(state, state, state, goal, horizon)
    pairs = jax.tree.map(lambda field: field[shuffled], pairs)
    optimiser = optax.adam(1e-2)
    slope = jax.jit(jax.grad(lambda j: judge_loss(j, pairs, nowhere(pairs))[1]["distance_loss"]))
    memory = optimiser.init(judge)
    for _ in range(300):
        moves, memory = optimiser.update(slope(judge), memory)
        judge = eqx.apply_updates(judge, moves)
    steps = [float(judge.steps(jnp.concatenate([s, place]), 0.9)) for s in (stays, passes)]
    assert steps[0] < steps[1] - 3


@pytest.mark.parametrize("max_horizon", [5, MAX_BINS, MAX_BINS + 1, 1000])
def test_every_horizon_has_a_bin(max_horizon):
    judge = Judge(spec(max_horizon), (4,), (4,), (4,), limit=None, key=jax.random.key(0))
    bins = judge.distance.layers[-1].bias.shape[0] - 1  # the last class is another's
    assert bins == judge.bins <= MAX_BINS
    told = np.arange(1, max_horizon + 1)
    index = (told - 1) // judge.width
    assert index.max() == bins - 1
    assert (np.abs(bin_horizons(bins, judge.width)[index] - told) <= (judge.width - 1) / 2).all()


@pytest.mark.parametrize(("little", "counts"), [(0.1, 1.0), (1e-3, (1.5e-3 / STILL) ** 2)])
def test_the_model_loss_measures_each_dimension_in_its_own_units(little, counts):
    """A model that says nothing changes is wrong by one in units of changes, save the least."""
    judge = Judge(spec(5), (4,), (4,), (4,), limit=None, key=jax.random.key(0))
    still = eqx.tree_at(lambda j: j.model, judge, jax.tree.map(jnp.zeros_like, judge.model))
    state, change = rows(512), rows(512, seed=1) * jnp.asarray([1.0, little])
    change -= change.mean(0)
    pairs = Pairs(state, state, state + change, state, jnp.ones(512))
    loss = judge_loss(still, pairs, nowhere(pairs))[1]["model_loss"]
    np.testing.assert_allclose(loss, (1.0 + counts) / 2, rtol=1e-2)


def test_the_guides_loss_is_in_the_same_units():
    """A guide that says nothing changes is wrong by 3 and 2 deviations of a step."""
    judge = Judge(spec(5), (4,), (4,), (4,), limit=None, key=jax.random.key(0))
    still = eqx.tree_at(lambda j: j.guide, judge, jax.tree.map(jnp.zeros_like, judge.guide))
    state, change = rows(512), rows(512, seed=1) * jnp.asarray([1.0, 0.1])
    pairs = Pairs(state, state, state + change, state, jnp.ones(512))
    walks = Walks(state, state, state + jnp.std(change, axis=0) * jnp.asarray([3.0, -2.0]))
    total, parts = judge_loss(still, pairs, walks)
    np.testing.assert_allclose(parts["guide_loss"], (9.0 + 4.0) / 2, rtol=1e-5)
    np.testing.assert_allclose(total, sum(float(part) for part in parts.values()), rtol=1e-6)


def test_a_guide_learns_from_own_and_others_goals():
    state, goal = rows(6), rows(6, seed=1)
    pairs = Pairs(state, state, state + 1.0, goal, jnp.ones(6))
    begin, towards = starts(pairs)
    np.testing.assert_array_equal(begin, state + 1.0)
    np.testing.assert_array_equal(towards[:3], goal[:3])
    np.testing.assert_array_equal(towards[3:], goal[2:5])


def test_gradients_of_each_network_are_clipped_by_themselves():
    judge = Judge(spec(5), (4,), (4,), (4,), limit=None, key=jax.random.key(0))
    large = jax.tree.map(lambda leaf: 100.0 * jnp.ones_like(leaf), judge)
    mixed = eqx.tree_at(lambda j: j.guide, large, jax.tree.map(lambda x: 1e-3 * x, judge.guide))
    clipped = clip_each(mixed, 1.0)
    for net in (clipped.distance, clipped.model):
        np.testing.assert_allclose(optax.tree.norm(net), 1.0, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(clipped.guide), jax.tree.leaves(mixed.guide), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_judge_knows_how_far_it_is_off():
    """The distance is 3 steps where the model says nothing moves, and 1 where the steps lead."""
    judge = Judge(spec(4), (1,), (4,), (4,), limit=None, key=jax.random.key(0))
    moved = jnp.asarray([1.0, 0.0])
    zero = lambda tree: jax.tree.map(jnp.zeros_like, tree)  # noqa: E731
    judge = eqx.tree_at(lambda j: (j.model, j.distance), judge, zero((judge.model, judge.distance)))
    judge = eqx.tree_at(
        lambda j: (
            j.distance.layers[0].weight,
            j.distance.layers[1].weight,
            j.distance.layers[1].bias,
        ),
        judge,
        (
            jnp.asarray([[1.0], [0.0], [0.0], [0.0]]),  # the hidden number is where it stands
            jnp.asarray([[100.0, 0.0, 0.0, 0.0, 50.0]]),
            jnp.asarray([0.0, 0.0, 50.0, 0.0, 50.0]),
        ),
    )
    here = jnp.zeros((70, 2))
    pairs = Pairs(here, here, here + moved, here, jnp.ones(70))
    before = float(judge.square_error)
    assert before == 16.0  # as far off as a distance can be, until it is measured
    after = with_error(judge, pairs, 0.9)
    np.testing.assert_allclose(after.square_error, 0.99 * before + 0.01 * 4.0, rtol=1e-5)
