"""Pieces of value learning against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from helpers.learner_data import floats
from merlin.nets.layers import MLP, polyak
from merlin.nets.td import (
    act,
    advantage_weight,
    ddpg_bc_loss,
    expectile_loss,
    possible,
    reach_reward,
    sparse_reward,
    td_target,
    unit_log_prob,
    value,
)


def test_td_targets_by_hand():
    """-1 - 9.8, 0 - 9.8, and two that no return can be: below -50 and above 0."""
    target = td_target(floats(-1, 0, -1, 0), floats(-10, -10, -60, 5), 0.98)
    np.testing.assert_allclose(target, [-10.8, -9.8, -50.0, 0.0], rtol=1e-5)


def test_returns_of_minus_one_and_zero_have_a_range():
    np.testing.assert_allclose(
        possible(floats(-11, -9, 1), 0.9), [-10.0, -9.0, 0.0], rtol=1e-5, atol=0
    )


def test_the_rim_of_a_goal_is_the_goal():
    """(3, 4) lies 5 from the origin."""
    achieved, goal = jnp.asarray([[3.0, 4.0]] * 3), jnp.asarray([[0.0, 0.0]] * 2 + [[3.0, 4.0]])
    np.testing.assert_array_equal(sparse_reward(achieved, goal, 5.0), [0, 0, 0])
    np.testing.assert_array_equal(sparse_reward(achieved, goal, jnp.float32(4.9)), [-1, -1, 0])


def test_slow_copies_keep_their_share():
    slow, fast = {"w": floats(1, 2)}, {"w": floats(5, -2)}
    np.testing.assert_allclose(polyak(slow, fast, 0.75)["w"], [2.0, 1.0])


def test_actors_are_squashed_and_critics_see_the_action(rng):
    x = jnp.asarray(rng.normal(size=(4, 3)), jnp.float32)
    actor, critic = (MLP(n, (5,), m, key=jax.random.key(n)) for n, m in ((3, 2), (5, 1)))
    action = act(actor, x)
    values = value(critic, x, action)
    for row in range(4):
        np.testing.assert_allclose(action[row], np.tanh(actor(x[row])), rtol=1e-5)
        joined = jnp.concatenate([x[row], action[row]])
        np.testing.assert_allclose(values[row], critic(joined)[0], rtol=1e-5)


def test_rewards_end_at_the_goal():
    reward, mask = reach_reward(jnp.asarray([False, True]))
    np.testing.assert_array_equal(reward, [-1, 0])
    np.testing.assert_array_equal(mask, [1, 0])


def test_expectiles_by_hand():
    """0.9 of 2^2 with an advantage, 0.1 of it without; none at all counts as one."""
    found = expectile_loss(floats(1, -1, 0), floats(2, 2, -2), 0.9)
    np.testing.assert_allclose(found, [3.6, 0.4, 3.6], rtol=1e-5)


def test_advantages_by_hand():
    """exp(3 * 0.5) = 4.481689, and exp(3 * 9), which is held at 100."""
    found = advantage_weight(floats(0.5, 9), 100.0, 3.0)
    np.testing.assert_allclose(found, [4.481689, 100.0], rtol=1e-5)


def test_the_density_of_a_unit_gaussian_by_hand():
    """-(3^2 + 4^2) / 2 - ln 2 pi."""
    found = unit_log_prob(floats([1, 1], [0, 0]), floats([4, 5], [0, 0]))
    np.testing.assert_allclose(found, [-12.5 - 1.837877, -1.837877], rtol=1e-5)


def test_ddpg_and_cloning_by_hand():
    """Values -3 and 1: -(-1) / 2 = 0.5; cloning 0.1 * 4. The size of values has no slope."""
    loss = lambda q: ddpg_bc_loss(q, floats(-5, -3), 0.1)  # noqa: E731
    np.testing.assert_allclose(loss(floats(-3, 1)), 0.9, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(loss)(floats(-3, 1)), [-0.25, -0.25], rtol=1e-5)
