"""The six methods of OGBench: losses against numbers worked out by hand, goals and settings."""

import dataclasses
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.learner_data import floats, fresh, rows
from merlin.data.goals import Goals
from merlin.data.offsets import Fixed, Geometric
from merlin.errors import MerlinError
from merlin.learners import CRL, GCBC, GCIQL, GCIVL, HIQL, LEARNERS, QRL
from merlin.learners.crl import contrastive_loss
from merlin.learners.hiql import unit_length
from merlin.learners.ogbench import awr_loss, evaluate_twins, ivl_loss
from merlin.learners.qrl import lagrangian, union_length
from merlin.types import Batch, DrawnGoals

NAMES = ("gcbc", "gcivl", "gciql", "qrl", "crl", "hiql")
LOG_2_PI = 1.837877


def batch(n=4, *names, reached=False) -> Batch:
    """Random states in a batch with goals of such names."""
    one, other, goal, subgoal = (rows(n, seed=seed) for seed in range(4))
    drawn = DrawnGoals(
        goal=goal,
        observation=goal,
        horizon=jnp.ones(n),
        reached=jnp.full(n, reached),
        relabelled=jnp.ones(n, bool),
        subgoal=subgoal,
        subgoal_observation=subgoal,
    )
    return Batch(
        observation=one,
        action=0.1 * rows(n, seed=5),
        next_observation=other,
        achieved_goal=one,
        next_achieved_goal=other,
        first_observation=one,
        goals=dict.fromkeys(names, drawn),
    )


@lru_cache
def compiled_loss(learner):
    return jax.jit(lambda s, b: learner.loss(s.policy, s.value, s.target, b))


def losses(learner, batch, state=None):
    """The metrics of one update with a learner's fresh networks, or those of a state."""
    state = fresh(learner) if state is None else state
    total, metrics = compiled_loss(learner)(state, batch)
    return float(total), {name: float(value) for name, value in metrics.items()}


def silent(tree):
    """Networks that answer zero, whatever they are given."""
    return jax.tree.map(jnp.zeros_like, tree)


def test_ivl_by_hand():
    """Discount 0.5, expectile 0.9, targets -4 and -2 at s, and at s' -6 and -2; not reached.

    Wanted are -1 - 3 = -4 and -1 - 1 = -2. The advantage is min(-4, -2) + 3 = -1, so both errors
    count 0.1: values of -3 and -4 are off by -1 and 2, which costs 0.1 * (1 + 4).
    At the goal 0 is wanted of both and the advantage is 3: 0.9 * (9 + 16) for the same values.
    """
    twins = lambda one, other: floats([one, one], [other, other])  # noqa: E731
    targets = {"target_values": twins(-4, -2), "next_target_values": twins(-6, -2)}
    settings = {"discount": 0.5, "expectile": 0.9}

    def loss(*reached):
        return ivl_loss(twins(-3, -4), **targets, reached=jnp.asarray(reached), **settings)

    np.testing.assert_allclose(loss(False, False), 0.5, rtol=1e-5)
    np.testing.assert_allclose(loss(True, True), 22.5, rtol=1e-5)
    np.testing.assert_allclose(loss(False, True), 11.5, rtol=1e-5)


def test_awr_by_hand():
    """exp(2 * 0.5) = 2.718282, and exp(2 * 9), which is held at 100."""
    loss = awr_loss(floats(0.5, 9), floats(-1, -0.1), 2.0)
    np.testing.assert_allclose(loss, (2.718282 + 10.0) / 2, rtol=1e-5)


def test_contrast_by_hand():
    """Logits 2 and 1 are of true pairs, 0 and -1 of false ones; the second critic says 0 to all.

    softplus(-2) + softplus(-1) + softplus(0) + softplus(-1) = 0.126928 + 0.313262 + 0.693147 +
    0.313262; of the second, four times 0.693147.
    """
    logits = floats([[2, 0], [-1, 1]], [[0, 0], [0, 0]])
    np.testing.assert_allclose(contrastive_loss(logits), (1.446599 + 2.772589) / 8, rtol=1e-5)


@pytest.mark.parametrize(
    ("begin", "end", "length"),
    [
        ([0, 5], [2, 6], 3),  # apart
        ([0, 1], [2, 4], 4),  # overlapping
        ([0, 1], [9, 2], 9),  # one inside the other
        ([0, 2], [2, 3], 3),  # touching
        ([3, 0], [1, 2], 2),  # one leads backwards: it is empty
        ([1, 1], [2, 4], 3),  # the same begin
        ([1, 2], [4, 4], 3),  # the same end
        ([2, 2], [5, 5], 3),  # the same
        ([2, 1], [2, 3], 2),  # empty, within the other
    ],
)
def test_intervals_by_hand(begin, end, length):
    assert union_length(floats(*begin), floats(*end)) == length


def test_intervals_against_a_sweep(rng):
    x, y = rng.normal(size=(2, 50, 8)).astype(np.float32)
    for row, found in enumerate(union_length(jnp.asarray(x), jnp.asarray(y))):
        covered, reach = 0.0, -np.inf
        for begin, end in sorted(zip(x[row], np.maximum(x[row], y[row]), strict=True)):
            covered += max(0.0, end - max(begin, reach))
            reach = max(reach, end)
        np.testing.assert_allclose(found, covered, rtol=1e-4)


def test_the_distance_is_a_quasimetric():
    """Zero to itself, the triangle inequality, and there is not as far as back."""
    value = fresh(QRL(hidden=(8,), rep_dim=32)).value
    x, y, z = (rows(64, 32, seed) for seed in range(3))
    np.testing.assert_array_equal(value.distance(x, x), np.zeros(64))
    direct, detour = value.distance(x, z), value.distance(x, y) + value.distance(y, z)
    assert (direct <= detour + 1e-5).all()
    assert (np.abs(value.distance(x, y) - value.distance(y, x)) > 1e-3).any()


def test_the_multiplier_ascends():
    """exp(0) = 1: loss 7 + 0.3 + (0.05 - 0.3); its slope is 0.05 - 0.3 times the multiplier."""
    loss = lambda *x: lagrangian(*x, slack=0.05)[0]  # noqa: E731
    at = floats(7)[0], floats(0.3)[0], floats(0)[0]
    np.testing.assert_allclose(loss(*at), 7.05, rtol=1e-6)
    slopes = jax.grad(loss, (0, 1, 2))(*at)
    np.testing.assert_allclose(slopes, [1.0, 1.0, -0.25], rtol=1e-6)


def test_representations_have_one_length():
    np.testing.assert_allclose(
        unit_length(floats(3, 0, 4, 0)), [1.2, 0.0, 1.6, 0.0], rtol=1e-6
    )  # 5 becomes 2
    np.testing.assert_array_equal(unit_length(floats(0, 0)), [0, 0])
    assert np.isfinite(jax.jacobian(unit_length)(floats(0, 0))).all()


def test_gcbc_by_hand():
    """Bounds (-0.5, -0.2) to (2, 0.6): (2, 0.6) is (1, 1) in their units, and the mean is 0."""
    learner = GCBC(hidden=(8,))
    state = fresh(learner)
    state = eqx.tree_at(lambda s: s.policy.net, state, silent(state.policy.net))
    rows = batch(2, "actor")._replace(action=floats([2, 0.6], [0.75, 0.2]))
    total, metrics = losses(learner, rows, state)
    np.testing.assert_allclose(total, LOG_2_PI + 0.5 * (2 + 0) / 2, rtol=1e-5)
    np.testing.assert_allclose(metrics["squared_error"], 0.5, rtol=1e-5)


MIDDLE = [[0.75, 0.2]] * 2
"""Actions in the middle of their bounds: 0 in units of them."""


def quiet(learner):
    """A state whose networks answer zero."""
    parts = lambda s: (s.policy.net, s.value, s.target)  # noqa: E731
    state = fresh(learner)
    return eqx.tree_at(parts, state, silent(parts(state)))


def test_gcivl_with_silent_networks_by_hand():
    """Both values are off by the reward, -1, which is no advantage: 0.1 each."""
    learner = GCIVL(hidden=(8,))
    rows = batch(2, "value", "actor")._replace(action=floats(*MIDDLE))
    _, metrics = losses(learner, rows, quiet(learner))
    np.testing.assert_allclose(metrics["value_loss"], 0.2, rtol=1e-5)
    np.testing.assert_allclose(metrics["actor_loss"], LOG_2_PI, rtol=1e-5)


def test_hiql_with_silent_networks_by_hand():
    """The same with expectile 0.7. Representations have four numbers, and all are right."""
    learner = HIQL(hidden=(8,), rep_dim=4)
    rows = batch(2, "value", "high", "low")._replace(action=floats(*MIDDLE))
    _, metrics = losses(learner, rows, quiet(learner))
    np.testing.assert_allclose(metrics["value_loss"], 0.6, rtol=1e-5)
    np.testing.assert_allclose(metrics["low_loss"], LOG_2_PI, rtol=1e-5)
    np.testing.assert_allclose(metrics["high_loss"], 2 * LOG_2_PI, rtol=1e-5)


def test_gciql_with_silent_networks_by_hand():
    """Q and V are 0: V is right, both Q are off by the reward -1, cloning costs alpha log 2 pi."""
    learner = GCIQL(hidden=(8,), alpha=0.5)
    rows = batch(2, "value", "actor")._replace(action=floats(*MIDDLE))
    _, metrics = losses(learner, rows, quiet(learner))
    np.testing.assert_allclose(metrics["value_loss"], 0.0, atol=1e-6)
    np.testing.assert_allclose(metrics["critic_loss"], 2.0, rtol=1e-5)
    np.testing.assert_allclose(metrics["actor_loss"], 0.5 * LOG_2_PI, rtol=1e-5)


@pytest.mark.parametrize("name", ["gcivl", "gciql", "crl", "hiql", "qrl"])
def test_actors_do_not_train_values(name):
    """With all of the actor's weight taken away, the values' gradients are the same."""
    sizes = {"hidden": (8,)} | ({"rep_dim": 16} if name in ("crl", "qrl") else {})
    learner = LEARNERS[name](**sizes)
    alphas = {f.name: 0.7 for f in dataclasses.fields(learner) if f.name.endswith("alpha")}
    other, state = dataclasses.replace(learner, **alphas), fresh(learner)
    rows = batch(4, "value", "actor", "high", "low")

    def gradient(learner):
        loss = lambda value: learner.loss(state.policy, value, state.target, rows)[0]  # noqa: E731
        return jax.tree.leaves(jax.jit(jax.grad(loss))(state.value))

    one, two = gradient(learner), gradient(other)
    assert max(np.abs(leaf).max() for leaf in one) > 0
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_target_networks_follow_by_tau():
    learner = GCIQL(hidden=(8,), tau=0.25)
    state = fresh(learner)
    after, _ = jax.jit(learner.update)(state, batch(4, "value", "actor"), jax.random.key(0))
    trees = (state.target, after.value.twins, after.target)
    for old, new, found in zip(*map(jax.tree.leaves, trees), strict=True):
        np.testing.assert_allclose(found, 0.75 * old + 0.25 * new, rtol=1e-5, atol=1e-7)


def test_twins_differ():
    twins = fresh(GCIVL(hidden=(8,))).value
    one, other = evaluate_twins(twins, rows(4, 4))
    assert (one != other).all()


def test_the_low_level_goes_where_the_high_level_points():
    """However far the high actor points, the low actor is told the direction alone."""
    policy = fresh(HIQL(hidden=(8,))).policy
    longer = eqx.tree_at(
        lambda p: (p.net.high.layers[-1].weight, p.net.high.layers[-1].bias),
        policy,
        replace_fn=lambda leaf: 3.0 * leaf,
    )
    observation, goal = rows(2, 2)
    np.testing.assert_allclose(
        policy(observation, goal), longer(observation, goal), rtol=1e-5, atol=1e-6
    )


def test_published_settings():
    made = {name: LEARNERS[name]() for name in NAMES}
    assert all(learner.hidden == (512,) * 3 for learner in made.values())
    assert {learner.batch_size for learner in made.values()} == {1024}
    assert {learner.learning_rate for learner in made.values()} == {3e-4}
    assert all("small" in LEARNERS[name].presets for name in NAMES)
    value = Goals(current=0.2, future=0.5, random=0.3, offsets=Geometric(0.99))
    later = Goals(future=1.0)
    for name in ("gcivl", "gciql"):
        assert made[name].sampling.goals == {"value": value, "actor": later}
    assert made["gcbc"].sampling.goals == {"actor": later}
    assert made["qrl"].sampling.goals == {"value": Goals(random=1.0), "actor": later}
    assert made["crl"].sampling.goals["value"] == Goals(future=1.0, offsets=Geometric(0.99))
    assert made["hiql"].sampling.goals == {
        "value": value,
        "high": Goals(future=1.0, subgoal=25),
        "low": Goals(future=1.0, offsets=Fixed(25)),
    }
    stitch = HIQL(actor_random=0.5, subgoal_steps=10).sampling.goals["high"]
    assert stitch == Goals(future=0.5, random=0.5, subgoal=10)
    assert all(learner.sampling.steps == "transitions" for learner in made.values())


@pytest.mark.parametrize(
    ("method", "settings", "fragment"),
    [
        (GCBC, {"actor_random": 1.5}, "actor_random: 1.5 is not a fraction"),
        (GCIVL, {"value_current": 0.8}, r"value_current, value_random: 0.8 and 0.3"),
        (GCIVL, {"expectile": -0.1}, "expectile"),
        (GCIVL, {"tau": 2.0}, "tau: 2.0"),
        (GCIQL, {"discount": 1.0}, "discount: 1.0"),
        (GCIQL, {"alpha": -1.0}, "alpha"),
        (CRL, {"rep_dim": 0}, "sizes start at 1"),
        (QRL, {"rep_dim": 12}, "rep_dim: 12 is not a positive multiple of 8"),
        (QRL, {"slack": 0.0}, "slack"),
        (HIQL, {"subgoal_steps": 0}, "subgoal_steps"),
        (HIQL, {"hidden": ()}, "sizes start at 1"),
    ],
)
def test_impossible_settings_are_refused(method, settings, fragment):
    with pytest.raises(MerlinError, match=fragment):
        method(**settings)
