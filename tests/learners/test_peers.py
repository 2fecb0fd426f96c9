"""GCSL, WGCSL, Actionable Models and GoFAR: losses and weights against numbers by hand."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.learner_data import floats, fresh, tiny_batch
from merlin.learners import GCSL, WGCSL, ActionableModels, GoFAR
from merlin.learners.advantages import best_weight, lowest_of_best, soon_weight
from merlin.learners.am import chain, chained_target, draw_unseen
from merlin.learners.gofar import discriminator_loss, dual, logit, visit_weight
from merlin.nets.layers import MLP
from merlin.nets.td import advantage_weight


def constant(net, output):
    """A network that says the same whatever it is given."""
    zeros = jax.tree.map(jnp.zeros_like, net)
    return eqx.tree_at(lambda n: n.layers[-1].bias, zeros, floats(*np.atleast_1d(output)))


def linear(*weights):
    """A network of one neuron per input and sign, that adds up its inputs with weights."""
    net = MLP(len(weights), (2 * len(weights),), 1, key=jax.random.key(0))
    eye, column = np.eye(len(weights)), np.asarray(weights)[:, None]
    both = np.concatenate([eye, -eye], 1), np.concatenate([column, -column])
    layers = [
        eqx.tree_at(lambda a: (a.weight, a.bias), layer, (jnp.float32(w), jnp.zeros(w.shape[1])))
        for layer, w in zip(net.layers, both, strict=True)
    ]
    return eqx.tree_at(lambda n: n.layers, net, tuple(layers))


# GCSL


def test_gcsl_loss_by_hand():
    """A net of zeros acts at the centre, (0.75, 0.2); the bounds lie (1.25, 0.4) around it.

    In those units the actions miss it by (0.4, 0) and (0, -1): 0.16 / 2 and 1 / 2.
    """
    learner = GCSL(hidden=(8,))
    state = fresh(learner)
    net = jax.tree.map(jnp.zeros_like, state.policy.net)
    loss = learner.loss(net, state.policy, tiny_batch([[1.25, 0.2], [0.75, -0.2]]))
    np.testing.assert_allclose(loss, (0.08 + 0.5) / 2, rtol=1e-5)


def test_gcsl_is_told_a_horizon_only_if_it_has_one():
    deaf, told = (fresh(GCSL(hidden=(8,), horizon=h)).policy for h in (None, 5))
    where = jnp.zeros(2), jnp.ones(2)
    np.testing.assert_array_equal(deaf(*where, 2), deaf(*where, 9))
    np.testing.assert_array_equal(told(*where), told(*where, 5))
    assert (told(*where, 2) != told(*where, 9)).all()
    assert told.net.layers[0].weight.shape[0] == deaf.net.layers[0].weight.shape[0] + 32


def test_bounds_that_leave_no_choice_are_not_divided_by():
    policy = fresh(GCSL(hidden=(8,))).policy
    policy = eqx.tree_at(lambda p: p.action_scale, policy, floats(1.25, 0.0))
    np.testing.assert_allclose(policy.in_units(floats(2.0, 0.2)[None]), [[1.0, 0.0]])


# WGCSL


def test_wgcsl_weights_by_hand():
    """e^-1, e^0, and e^3 = 20.1, which is held at 10."""
    np.testing.assert_allclose(
        advantage_weight(floats(-1, 0, 3), 10.0), [0.367879, 1.0, 10.0], rtol=1e-5
    )
    # The exponent is h - 1: 0.98^0, 0.98^1, 0.98^9
    np.testing.assert_allclose(
        soon_weight(floats(1, 2, 10), 0.98), [1.0, 0.98, 0.833748], rtol=1e-5
    )
    np.testing.assert_allclose(best_weight(floats(0.4, 0.5, 9), jnp.float32(0.5)), [0.05, 1.0, 1.0])


@pytest.mark.parametrize("percentile", [0, 10, 50, 80])
def test_the_best_of_a_queue_are_those_above_its_percentile(percentile, rng):
    queue = rng.normal(0, 5, (10, 100)).astype(np.float32)
    queue[7:] = np.inf  # not filled yet
    found = lowest_of_best(jnp.asarray(queue), jnp.float32(percentile), 50.0)
    assert abs((queue[:7] < found).mean() - percentile / 100) < 2 / 700
    np.testing.assert_allclose(
        found, np.percentile(queue[:7], percentile, method="lower"), atol=0.05
    )


def weighing(**settings):
    learner = WGCSL(hidden=(8,), batch_size=4, **settings)
    return learner, fresh(learner)


def test_wgcsl_multiplies_its_weights():
    """After 1,000 updates the percentile is 50: of (-1, 0, 1, 2) the upper two are best."""
    learner, state = weighing(percentile_step=0.05)
    state = eqx.tree_at(lambda s: s.updates, state, jnp.int32(1000))
    batch = tiny_batch(np.zeros((4, 2)), horizon=floats(1, 2, 1, 3))
    advantage = floats(-1, 0, 1, 2)
    weight, queue, threshold = learner.weigh(state, batch, advantage)
    expected = [0.367879 * 0.05, 0.98 * 0.05, 2.718282, 7.389056 * 0.9604]
    np.testing.assert_allclose(weight, expected, rtol=1e-5)
    assert 0 < threshold <= 1
    rows = len(queue)
    assert rows * 4 <= 50_000 < (rows + 1) * 4
    np.testing.assert_array_equal(queue[1000 % rows], advantage)
    assert np.isinf(np.delete(queue, 1000 % rows, axis=0)).all()


def test_wgcsl_percentile_rises_to_its_end():
    learner, state = weighing(percentile_step=0.15, best_percentile=80.0)
    batch, advantage = tiny_batch(np.zeros((4, 2))), floats(-1, 0, 1, 2)
    best = []
    for updates in (0, 200, 400, 100_000):  # percentiles 0, 30, 60, 80
        at = eqx.tree_at(lambda s: s.updates, state, jnp.int32(updates))
        weight = learner.weigh(at, batch, advantage)[0]
        best.append(int((weight >= jnp.minimum(jnp.exp(advantage), 10) * 0.99).sum()))
    assert best == [4, 3, 2, 1]


def test_wgcsl_clones_only_goals_in_hindsight():
    """Two of four rows: they count double, so that the loss is their mean."""
    learner, state = weighing(best_percentile=0.0, discount_weight=False)
    batch = tiny_batch(np.zeros((4, 2)), relabelled=jnp.asarray([True, False, True, False]))
    weight, queue, _ = learner.weigh(state, batch, jnp.zeros(4))
    np.testing.assert_allclose(weight, [2.0, 0.0, 2.0, 0.0], rtol=1e-6)
    assert queue.shape == (0, 4), "nothing is kept that is not used"
    learner, state = weighing()
    _, queue, _ = learner.weigh(state, batch, jnp.zeros(4))
    np.testing.assert_array_equal(jnp.isfinite(queue[0]), batch.only.relabelled)


@pytest.mark.parametrize(("slow", "advantage"), [(True, -1 - 0.98 * 10 + 8), (False, -0.84)])
def test_wgcsl_update_by_hand(slow, advantage):
    """Q is -8 everywhere, its slow copy -10, no goal is reached.

    Target -1 - 9.8; the critic misses it by 2.8. Advantage -10.8 + 8, or with the critic itself
    -1 - 7.84 + 8. The policy of zeros misses the action by 0.4 in one of two dimensions.
    """
    learner = WGCSL(
        hidden=(8,), batch_size=1, slow_advantage=slow, learning_rate=1e-9, best_percentile=0.0
    )
    state = fresh(learner)
    zero = lambda net: jax.tree.map(jnp.zeros_like, net)  # noqa: E731
    nets = state.actor_critic
    nets = dataclasses.replace(
        nets,
        policy=eqx.tree_at(lambda p: p.net, nets.policy, zero(nets.policy.net)),
        critic=constant(nets.critic, -8.0),
        target_critic=constant(nets.critic, -10.0),
    )
    state = eqx.tree_at(lambda s: s.actor_critic, state, nets)
    batch = tiny_batch([[1.25, 0.2]], goal=jnp.ones((1, 2)), horizon=floats(2))
    after, metrics = jax.jit(learner.update)(state, batch, jax.random.key(0))
    np.testing.assert_allclose(metrics["critic_loss"], 2.8**2, rtol=1e-4)
    np.testing.assert_allclose(metrics["advantage"], advantage, rtol=1e-4)
    np.testing.assert_allclose(metrics["weight"], 0.98 * np.exp(advantage), rtol=1e-4)
    np.testing.assert_allclose(metrics["policy_loss"], metrics["weight"] * 0.08, rtol=1e-4)
    # The slow copy goes 0.26 % of the way.
    moved = after.actor_critic.target_critic.layers[-1].bias
    np.testing.assert_allclose(moved, -10 + 2 * 0.0026, rtol=1e-6)


# Actionable Models


def test_chaining_shuffles_the_goals_of_half_of_the_rows():
    goal = jnp.arange(40.0)[:, None] * jnp.ones(2)
    swapped, chained = chain(goal, 0.5)
    np.testing.assert_array_equal(chained, np.arange(40) >= 20)
    np.testing.assert_array_equal(swapped[:20], goal[:20])
    np.testing.assert_array_equal(np.sort(swapped[20:, 0]), goal[20:, 0])
    assert (swapped[20:] != goal[20:]).all()
    np.testing.assert_array_equal(swapped[:, 0], swapped[:, 1])


def test_chained_targets_by_hand():
    """Ordinary ones, except that the last step of a chained stretch has the critic's own value."""
    target = chained_target(
        reward=floats(-1, 0, -1, -1),
        next_value=floats(-10, -10, -10, -60),
        own=floats(-7, -7, -7, -7),
        horizon=floats(1, 1, 1, 2),
        chained=jnp.asarray([False, False, True, True]),
        discount=0.98,
    )
    np.testing.assert_allclose(target, [-10.8, -9.8, -7.0, -50.0], rtol=1e-5)


def critic_of_goals(learner, slope):
    """A state whose critics say slope times the first dimension of the normalised goal."""
    state = fresh(learner)
    unit = eqx.tree_at(
        lambda p: (p.goal_normaliser.mean, p.goal_normaliser.scale),
        state.policy,
        (jnp.zeros(2), jnp.ones(2)),
    )
    critic = linear(0, 0, slope, 0, 0, 0)
    return dataclasses.replace(state, policy=unit, critic=critic, target_critic=critic)


@pytest.mark.parametrize("released", [False, True])
def test_both_states_of_a_chained_row_have_the_new_goal(released):
    """Q(s, a, g) = -g, goals 1 and 3 are swapped for one another, none is reached.

    Targets -1 - 0.98 g with the new goals: -3.94 and -1.98, errors from -3 and -1: 0.94, 0.98.
    The release pays Q with the new goal and bootstraps with the old: -3 - 0.98 and -1 - 2.94,
    errors 0.98 and 2.94.
    """
    learner = ActionableModels(
        hidden=(12,), chained=1.0, released_chaining=released, conservatism=0.0
    )
    state = critic_of_goals(learner, -1.0)
    goal = jnp.asarray([[1.0, 0.0], [3.0, 0.0]])
    batch = tiny_batch(np.zeros((2, 2)), goal=goal, horizon=floats(5, 5))
    _, metrics = jax.jit(learner.update)(state, batch, jax.random.key(0))
    errors = (0.98, 2.94) if released else (0.94, 0.98)
    np.testing.assert_allclose(metrics["critic_loss"], np.mean(np.square(errors)), rtol=1e-4)


def test_unseen_actions_are_drawn_by_what_the_critic_thinks():
    """Q = 8 a on [-1, 1]: of ten uniform actions nearly the best is drawn; of one, any."""
    critic, x = linear(0, 8), jnp.zeros((2000, 1))
    chosen, any_of_one = (draw_unseen(critic, x, 1, n, jax.random.key(0)) for n in (10, 1))
    assert chosen.shape == (2000, 1)
    assert abs(chosen).max() <= 1
    assert chosen.mean() > 0.7
    assert abs(any_of_one.mean()) < 0.05


def test_conservatism_adds_the_value_of_unseen_actions():
    """The critic is -8 everywhere: the term is -8, and it pushes the constant down."""
    gradients = []
    for weight in (0.0, 1.0):
        learner = ActionableModels(hidden=(8,), conservatism=weight, learning_rate=1e-3)
        state = fresh(learner)
        flat = constant(state.critic, -8.0)
        state = dataclasses.replace(state, critic=flat, target_critic=constant(flat, -7.0 / 0.98))
        # Target -1 - 7 = -8: the temporal difference is zero.
        batch = tiny_batch(np.zeros((20, 2)), goal=jnp.ones((20, 2)), horizon=jnp.full(20, 3.0))
        after, metrics = jax.jit(learner.update)(state, batch, jax.random.key(0))
        np.testing.assert_allclose(metrics["unseen"], -8.0, rtol=1e-5)
        np.testing.assert_allclose(metrics["critic_loss"], 0.0, atol=1e-8)
        gradients.append(float(after.critic.layers[-1].bias[0]) + 8.0)
    assert abs(gradients[0]) < 1.1e-3
    np.testing.assert_allclose(gradients[1], -1e-3, rtol=1e-2)


def test_the_actor_climbs_the_critic():
    learner = ActionableModels(hidden=(8,), learning_rate=1e-2)
    state = dataclasses.replace(fresh(learner), critic=linear(0, 0, 0, 0, 1, -1))
    state = dataclasses.replace(
        state, critic_optimiser=learner.optimiser.init(state.critic), target_critic=state.critic
    )
    batch = tiny_batch(np.zeros((8, 2)))
    before = state.policy(jnp.zeros(2), jnp.zeros(2))
    after = jax.jit(learner.update)(state, batch, jax.random.key(0))[0].policy(
        jnp.zeros(2), jnp.zeros(2)
    )
    assert after[0] > before[0]
    assert after[1] < before[1]


# GoFAR


def test_discriminator_loss_by_hand():
    """c(a, g) has the logit 3 a - 4 g: slope 5 everywhere, 16 off per row; pairs (2, 2), (1, 2).

    Logits -2 and -5: softplus(2) + softplus(-5) = 2.126928 + 0.006715; penalty 0.01 * (5 - 1)^2.
    """
    net, achieved, goal = linear(3, -4), floats(1)[:, None], floats(2)[:, None]
    np.testing.assert_allclose(logit(net, achieved, goal), [-5.0], rtol=1e-5)
    # Neurons of both signs meet at 0, where no pair between these lies.
    loss = discriminator_loss(net, achieved, goal, 0.01, jax.random.key(0))
    np.testing.assert_allclose(loss, 2.133643 + 0.16, rtol=1e-5)
    without = discriminator_loss(net, achieved, goal, 0.0, jax.random.key(0))
    np.testing.assert_allclose(without, 2.133643, rtol=1e-5)


def test_the_slope_is_taken_between_the_pairs():
    """The logit is relu(3 a): slope 3 where a > 0. From a = -1 to g = 1 half of the way is flat.

    So the penalty is (3 - 1)^2 or (0 - 1)^2, 2.5 on average.
    """
    net = eqx.tree_at(
        lambda n: (n.layers[0].weight, n.layers[0].bias, n.layers[1].weight, n.layers[1].bias),
        MLP(2, (1,), 1, key=jax.random.key(0)),
        (floats(3, 0)[:, None], jnp.zeros(1), jnp.ones((1, 1)), jnp.zeros(1)),
    )
    achieved, goal = jnp.full((4000, 1), -1.0), jnp.ones((4000, 1))
    with_, without = (
        discriminator_loss(net, achieved, goal, p, jax.random.key(0)) for p in (1.0, 0.0)
    )
    np.testing.assert_allclose(with_ - without, 2.5, atol=0.1)


def test_duals_and_weights_by_hand():
    residual = floats(-3, -1, 0, 4)
    # (4 + 0 + 1 + 25) / 4, and ln((e^-3 + e^-1 + 1 + e^4) / 4) = ln 14.003946
    np.testing.assert_allclose(dual(residual, "chi2"), 7.5, rtol=1e-6)
    np.testing.assert_allclose(dual(residual, "kl"), 2.639339, rtol=1e-5)
    np.testing.assert_allclose(visit_weight(residual, "chi2", 10.0), [0, 0, 1, 5])
    expected = [0.049787, 0.367879, 1.0, 10.0]
    np.testing.assert_allclose(visit_weight(residual, "kl", 10.0), expected, rtol=1e-4)


def test_gofar_update_by_hand():
    """Logit 2, V = 3, its slow copy 5: e = 2 + 4.9 - 3 = 3.9, weight 4.9.

    Value loss 0.02 * 3 + 4.9^2; the policy of zeros misses by 0.4 in one of two dimensions.
    """
    learner = GoFAR(hidden=(8,), hindsight_ratio=1.0)
    state = fresh(learner)
    state = dataclasses.replace(
        state,
        policy=eqx.tree_at(lambda p: p.net, state.policy, constant(state.policy.net, (0.0, 0.0))),
        value=constant(state.value, 3.0),
        target_value=constant(state.value, 5.0),
        discriminator=constant(state.discriminator, 2.0),
    )
    _, metrics = jax.jit(learner.update)(state, tiny_batch([[1.25, 0.2]] * 4), jax.random.key(0))
    np.testing.assert_allclose(metrics["reward"], 2.0, rtol=1e-5)
    np.testing.assert_allclose(metrics["value_loss"], 0.06 + 4.9**2, rtol=1e-5)
    np.testing.assert_allclose(metrics["weight"], 4.9, rtol=1e-5)
    np.testing.assert_allclose(metrics["policy_loss"], 4.9 * 0.08, rtol=1e-5)
    # softplus(-2) + softplus(2) + 0.01 * (0 - 1)^2
    np.testing.assert_allclose(metrics["discriminator_loss"], 2.253856 + 0.01, rtol=1e-5)
