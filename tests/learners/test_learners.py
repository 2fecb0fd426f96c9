"""Every registered method on one interface, then Merlin by itself.

A new entry of LEARNERS is covered by the class below without a line being added.
"""

import dataclasses
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from helpers.learner_data import ASYMMETRIC, SYMMETRIC, TOLERANCE, random_walks, tiny_batch
from helpers.learner_probe import small
from merlin.data.spec import make_spec
from merlin.errors import MerlinError
from merlin.evaluation.evaluate import with_temperature
from merlin.learners import LEARNERS, Learner, Merlin
from merlin.learners.registry import configure
from merlin.nets.layers import running_average
from merlin.policies.base import Policy
from merlin.training.loop import make_chunk

pytestmark = pytest.mark.usefixtures("small_hazard")
PROBE_UPDATES = 400
ASYMMETRIC_UPDATES = 100  # enough to use the bounds, if not to reach a goal


@lru_cache
def compiled(name: str):
    return jax.jit(make_chunk(small(name)))


@lru_cache
def surveyed(name: str, asymmetric: bool):
    learner, data = small(name), random_walks(asymmetric)
    return learner.survey(data, make_spec(data, learner.sampling, TOLERANCE))


def init(name, seed=0, asymmetric=False):
    """Not compiled as a whole, which takes longer than its parts, which methods share."""
    return small(name).init(jax.random.key(seed), surveyed(name, asymmetric))


def advance(name, state, data, start, stop, seed=0):
    return compiled(name)(state, data.on_device(), jax.random.key(seed), start, stop)


@lru_cache
def trained(name: str, asymmetric: bool) -> Policy:  # no default: it would be cached apart
    data = random_walks(asymmetric)
    updates = ASYMMETRIC_UPDATES if asymmetric else PROBE_UPDATES
    state, _ = advance(name, init(name, asymmetric=asymmetric), data, 0, updates)
    return small(name).policy(state)


def act(policy, observations, goals, horizon=1.0, seed=0):
    """A batch of actions; every method is told a horizon, whether it listens or not."""
    told = None if horizon is None else jnp.float32(horizon)
    rows = (jnp.asarray(observations, jnp.float32), jnp.asarray(goals, jnp.float32))
    keys = jax.random.split(jax.random.key(seed), len(observations))
    return np.asarray(_act(policy, *rows, told, keys))


@eqx.filter_jit
def _act(policy, observations, goals, horizon, keys):
    return jax.vmap(policy, (0, 0, None, 0))(observations, goals, horizon, keys)


def same(one, other) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


def outline(tree):
    return jax.tree.structure(tree), [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]


@pytest.mark.parametrize("name", LEARNERS)
class TestEveryLearner:
    def test_is_a_learner_of_frozen_settings(self, name):
        learner = small(name)
        assert isinstance(learner, Learner)
        assert dataclasses.replace(learner) == learner
        assert hash(dataclasses.replace(learner)) == hash(learner)
        with pytest.raises(dataclasses.FrozenInstanceError):
            learner.batch_size = 3

    def test_update_keeps_the_state_and_measures_it(self, name):
        state = init(name)
        after, metrics = advance(name, state, random_walks(), 0, 1)  # sums of one update
        assert outline(after) == outline(state)
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))
        assert not same(after, state)
        assert metrics
        for key, value in metrics.items():
            assert (value.shape, value.dtype) == ((), jnp.float32), key
            assert np.isfinite(value), key

    def test_randomness_comes_from_the_key_alone(self, name):
        data = random_walks()
        assert same(init(name, 3), init(name, 3))
        assert not same(init(name, 3), init(name, 4))
        state = init(name)
        one, other, different = (advance(name, state, data, 0, 5, seed) for seed in (3, 3, 4))
        assert same(one, other)
        assert not same(one[0], different[0])

    def test_training_in_pieces_is_training_in_one(self, name):
        data = random_walks()
        whole, _ = advance(name, init(name), data, 0, 60)
        part, _ = advance(name, init(name), data, 0, 20)
        assert not same(part, whole)
        pieces, _ = advance(name, part, data, 20, 60)
        assert same(pieces, whole)

    def test_walks_to_the_goal(self, name):
        """One step away the answer is known: the action is the way to the goal.

        Of a method that draws its actions, the mean of many: the walks went astray, so do draws.
        """
        axis = np.linspace(-1.5, 1.5, 5)
        states = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2).repeat(8, 0)
        angles = np.tile(np.arange(8) * np.pi / 4, len(axis) ** 2)
        way = np.stack([np.cos(angles), np.sin(angles)], 1)
        goals = states + 0.9 * way
        actions = np.mean(
            [act(trained(name, False), states, goals, seed=draw) for draw in range(16)], 0
        )
        cosine = (actions * way).sum(1) / np.linalg.norm(actions, axis=1)
        assert cosine.mean() > 0.9
        assert cosine.min() > 0.0, "walks away from a goal"

    @pytest.mark.parametrize("asymmetric", [False, True])
    def test_actions_are_within_their_bounds(self, name, asymmetric):
        low, high = ASYMMETRIC if asymmetric else SYMMETRIC
        rng = np.random.default_rng(0)
        states, goals = rng.normal(0, 5, (2, 200, 2))
        policy = trained(name, asymmetric)
        for horizon in (None, 1.0, 50.0):
            actions = act(policy, states, goals, horizon)
            assert actions.shape == (200, 2)
            assert actions.dtype == np.float32
            assert (actions >= low - 1e-6).all()
            assert (actions <= high + 1e-6).all()
        # Not by staying in the middle: what the bounds allow is used.
        used = np.ptp(act(policy, states, goals), axis=0) / (high - low)
        assert (used > 0.6).all()

    def test_says_whether_it_takes_a_horizon(self, name):
        states, goals = np.random.default_rng(0).normal(0, 1, (2, 50, 2))
        policy = trained(name, False)
        near, far = (act(policy, states, goals, horizon) for horizon in (1.0, 20.0))
        assert policy.takes_horizon == (near != far).any()

    def test_policy_is_a_tree_of_arrays_that_needs_no_batch(self, name):
        policy = trained(name, False)
        assert isinstance(policy, Policy)
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(policy))
        action = policy(np.zeros(2, np.float32), np.ones(2, np.float32), 1, jax.random.key(0))
        assert action.shape == (2,)


# Merlin


def merlin_state(seed=0, **settings):
    learner = Merlin(hidden=(8,), **settings)
    spec = make_spec(random_walks(asymmetric=True), learner.sampling)
    return learner, learner.init(jax.random.key(seed), spec)


def test_merlin_loss_by_hand():
    """A net of zeros says the middle of the bounds, (0.75, 0.2), and the deviation softplus(0).

    With s = 0.693157 the two rows cost
      (0.5 / s)^2 / 2 + 0^2 / 2 + 2 ln s + ln 2 pi = 0.260164 + 0 - 0.732994 + 1.837877
      0^2 / 2 + (0.4 / s)^2 / 2 + 2 ln s + ln 2 pi = 0.166505 - 0.732994 + 1.837877
    """
    learner, state = merlin_state()
    net = jax.tree.map(jnp.zeros_like, state.policy.net)
    loss = learner.loss(net, state.policy, tiny_batch([[1.25, 0.2], [0.75, -0.2]]))
    np.testing.assert_allclose(loss, (1.365047 + 1.271388) / 2, rtol=1e-5)


def test_merlin_loss_is_the_likelihood_of_the_policy_that_acts(rng):
    learner, state = merlin_state()
    batch = tiny_batch(
        rng.uniform(-0.2, 0.5, (4, 2)),
        observation=jnp.asarray(rng.normal(size=(4, 2)), jnp.float32),
        goal=jnp.asarray(rng.normal(size=(4, 2)), jnp.float32),
        horizon=jnp.asarray([1, 2, 3, 6], jnp.float32),
    )
    terms = []
    for row in range(4):
        mean, std = state.policy.distribution(
            batch.observation[row], batch.goal[row], batch.horizon[row]
        )
        error = (np.asarray(batch.action[row]) - mean) / std
        terms.append(np.sum(0.5 * error**2 + np.log(std) + 0.5 * np.log(2 * np.pi)))
    loss = learner.loss(state.policy.net, state.policy, batch)
    np.testing.assert_allclose(loss, np.mean(terms), rtol=1e-5)


def test_merlin_hears_the_horizon_unless_it_is_none():
    state, goal = np.zeros((1, 2)), np.ones((1, 2))
    told = merlin_state(horizon=5)[1].policy
    assert (act(told, state, goal, 2.0) != act(told, state, goal, 9.0)).all()
    np.testing.assert_array_equal(act(told, state, goal, None), act(told, state, goal, 5.0))
    deaf = merlin_state(horizon=None)[1].policy
    for horizon in (2.0, 9.0):
        np.testing.assert_array_equal(act(deaf, state, goal, horizon), act(deaf, state, goal, None))
    # The ablation's net has no inputs for it.
    assert deaf.net.layers[0].weight.shape[0] == told.net.layers[0].weight.shape[0] - 32


def test_temperature_scales_the_deviation():
    policy = merlin_state()[1].policy
    state, goal = jnp.zeros(2), jnp.ones(2)
    mean, std = policy.distribution(state, goal)
    np.testing.assert_array_equal(policy(state, goal), mean)
    # So wide bounds that clipping does not matter.
    wide = eqx.tree_at(lambda p: p.action_scale, policy, jnp.full(2, 100.0))
    mean, std = wide.distribution(state, goal)
    sampling = with_temperature(wide, 0.5)
    keys = jax.random.split(jax.random.key(0), 4000)
    actions = np.asarray(jax.vmap(lambda key: sampling(state, goal, None, key))(keys))
    np.testing.assert_allclose(actions.mean(0), mean, atol=5 * 0.5 * std.max() / np.sqrt(4000))
    np.testing.assert_allclose(actions.std(0), 0.5 * std, rtol=0.06)
    with pytest.raises(ValueError, match="give it a key"):
        sampling(state, goal)


def test_sampled_actions_are_clipped():
    hot = with_temperature(trained("merlin", True), 100.0)
    actions = act(hot, np.zeros((200, 2)), np.ones((200, 2)))
    np.testing.assert_allclose(actions.min(0), ASYMMETRIC[0], atol=1e-6)
    np.testing.assert_allclose(actions.max(0), ASYMMETRIC[1], atol=1e-6)


@pytest.mark.parametrize("limit", [0.01, 1e6])
def test_gradients_are_clipped_to_a_norm(limit):
    """Adam hides the size of a gradient, but its first momentum is a tenth of what it was given."""
    learner, state = merlin_state(max_gradient_norm=limit)
    after, metrics = jax.jit(learner.update)(state, tiny_batch([[1.5, 0.1]]), jax.random.key(0))
    norm = float(metrics["gradient_norm"])
    assert 0.01 < norm < 1e6
    given = 10 * optax.tree.norm(optax.tree_utils.tree_get(after.optimiser, "mu"))
    np.testing.assert_allclose(given, min(norm, limit), rtol=1e-4)


def test_normalisers_and_bounds_are_not_trained():
    learner, state = merlin_state()
    after, _ = jax.jit(learner.update)(state, tiny_batch([[1.5, 0.1]]), jax.random.key(0))
    for part in ("observation_normaliser", "goal_normaliser", "action_centre", "action_scale"):
        assert same(getattr(after.policy, part), getattr(state.policy, part)), part
    assert not same(after.policy.net, state.policy.net)


def test_settings_over_tuned_values_over_defaults():
    tuned = {"hindsight_ratio": 0.2, "horizon": 20, "batch_size": 1}
    # The size of batches was not tuned per task, so the registry may not set it.
    assert configure("merlin", {}, tuned).learner == Merlin(hindsight_ratio=0.2, horizon=20)
    given = {"horizon": "none", "hidden": "16,8", "learning_rate": "1e-3"}
    assert configure("merlin", given, tuned).learner == Merlin(
        hindsight_ratio=0.2, horizon=None, hidden=(16, 8), learning_rate=1e-3
    )


def test_presets_stand_between_tuned_values_and_settings(monkeypatch):
    monkeypatch.setattr(Merlin, "presets", {"tiny": {"hidden": (8,), "horizon": 3}})
    tuned = {"hindsight_ratio": 0.2, "horizon": 20}
    made = configure("merlin", {"batch_size": "7"}, tuned, preset="tiny").learner
    assert made == Merlin(hindsight_ratio=0.2, horizon=3, hidden=(8,), batch_size=7)
    assert configure("merlin", {"horizon": "9"}, tuned, preset="tiny").learner.horizon == 9
    with pytest.raises(MerlinError, match="preset: merlin has no preset 'tinny'; did you mean"):
        configure("merlin", preset="tinny")


def test_a_method_without_presets_says_so():
    with pytest.raises(MerlinError, match="gcsl has no presets"):
        configure("gcsl", preset="small")


@pytest.mark.parametrize(
    ("settings", "fragment"),
    [
        ({"horizon": 0}, "horizon: 0"),
        ({"batch_size": 0}, "sizes start at 1"),
        ({"hidden": ()}, "sizes start at 1"),
        ({"hidden": (8, 0)}, "sizes start at 1"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": float("inf")}, "learning_rate"),
        ({"max_gradient_norm": -1.0}, "max_gradient_norm"),
        ({"max_gradient_norm": float("nan")}, "max_gradient_norm"),
        ({"hindsight_ratio": 1.5}, "hindsight_ratio: 1.5"),
    ],
)
def test_impossible_settings_are_refused(settings, fragment):
    with pytest.raises(MerlinError, match=fragment):
        Merlin(**settings)


class TestAveragedParameters:
    def test_the_decay_rises_to_its_limit(self):
        moved = lambda step: running_average(  # noqa: E731
            jnp.float32(1.0), jnp.float32(0.0), jnp.int32(step), decay=0.9
        )
        assert moved(1) == pytest.approx(2 / 11)
        assert moved(10) == pytest.approx(11 / 20)
        assert moved(1000) == pytest.approx(0.9)

    def test_merlin_acts_with_the_average_of_what_it_learns(self):
        data, key = random_walks(False), jax.random.key(0)
        averaging, plain = (dataclasses.replace(small("merlin"), average=a) for a in (0.9, 0.0))
        spec = make_spec(data, plain.sampling, TOLERANCE)
        states = {learner: learner.init(key, spec) for learner in (averaging, plain)}
        expected = states[plain].policy.net
        for step in range(3):
            batch = tiny_batch([[0.1 * step, -0.5], [0.3, 0.2 * step]])
            states = {one: one.update(state, batch, key)[0] for one, state in states.items()}
            expected = running_average(
                expected, states[plain].policy.net, jnp.int32(step + 1), decay=0.9
            )
        assert same(states[averaging].policy.net, states[plain].policy.net)
        assert same(plain.policy(states[plain]).net, states[plain].policy.net)
        acting = averaging.policy(states[averaging]).net
        for one, other in zip(jax.tree.leaves(acting), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
        assert not same(acting, states[plain].policy.net)

    def test_the_paper_does_not_average(self):
        assert configure("merlin", preset="paper").learner.average == 0.0
        with pytest.raises(MerlinError, match="average"):
            Merlin(average=1.0)
