"""Pieces of value learning against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from learner_data import floats
from merlin.nets import MLP, polyak
from merlin.values import act, possible, sparse_reward, td_target, value


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
