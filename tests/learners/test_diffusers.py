"""The diffusion methods one by one: losses by hand, windows, averages, memory, refusals."""

import dataclasses
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import merlin
from helpers.labelled_goals import compiled
from helpers.learner_data import floats
from merlin.data import Dataset, Episode
from merlin.data.spec import make_spec
from merlin.errors import MerlinError
from merlin.evaluation.evaluate import play
from merlin.learners import GDQL, Beso, DecisionDiffuser
from merlin.learners.gdql import td_target
from merlin.policies.base import Policy
from merlin.training.runs import load_policy, save_policy
from merlin.types import Segment

TINY_BESO = {"hidden": (8,), "width": 8, "layers": 1, "heads": 2, "batch_size": 8}
TINY_DD = {
    "window": 6,
    "diffusion_steps": 5,
    "sampling_steps": 2,
    "channels": 8,
    "multipliers": (1, 2),
    "inverse_hidden": (8,),
    "batch_size": 8,
}
TINY = {
    "beso": Beso(backbone="mlp", window=1, **TINY_BESO),
    "dd": DecisionDiffuser(**TINY_DD),
    "g-dql": GDQL(hidden=(8,), candidates=3, batch_size=8),
}


def walks(lengths) -> Dataset:
    rng = np.random.default_rng(0)
    episodes = []
    for length in lengths:
        actions = rng.uniform(-1, 1, (length - 1, 2))
        states = np.cumsum(np.vstack([np.zeros(2), actions]), 0)
        episodes.append(Episode(states, actions, states, states[-1]))
    low, high = np.array([-1.0, -1.0]), np.array([1.0, 1.0])
    return Dataset.from_episodes(episodes, action_low=low, action_high=high)


def prepare(learner, data, tolerance=0.5):
    spec = make_spec(data, learner.sampling, tolerance)
    state = learner.init(jax.random.key(0), spec)
    draw = compiled(learner.sampling, learner.batch_size)
    batch = draw(data.on_device(), jax.random.key(1))
    return spec, state, batch


@lru_cache
def compiled_update(learner):
    return jax.jit(learner.update)


def updated(learner, state, batch):
    return compiled_update(learner)(state, batch, jax.random.key(2))


# Averages that act


def test_the_average_of_beso_warms_up():
    """After one update the average is nine tenths of the way: 1 - (1 + 0) / (10 + 0)."""
    learner = TINY["beso"]
    _, state, batch = prepare(learner, walks([9] * 20))
    update = compiled_update(learner)
    after, _ = update(state, batch, jax.random.key(2))
    old, new, average = (
        tree.net.layers[0].weight for tree in (state.net, after.net, after.policy.net)
    )
    np.testing.assert_allclose(average, old + 0.9 * (new - old), atol=1e-6)
    late = eqx.tree_at(lambda s: s.step, state, jnp.int32(10**6))
    after, _ = update(late, batch, jax.random.key(2))
    new, average = after.net.net.layers[0].weight, after.policy.net.net.layers[0].weight
    np.testing.assert_allclose(average, old + 0.001 * (new - old), atol=1e-6)


def test_the_learning_rate_of_beso_falls_to_its_end():
    learner = dataclasses.replace(TINY["beso"], decay_updates=100, weight_decay=0.0)
    _, state, batch = prepare(learner, walks([9] * 20))

    update = compiled_update(learner)

    def moved(step):
        at = eqx.tree_at(lambda s: s.step, state, jnp.int32(step))
        after, _ = update(at, batch, jax.random.key(2))
        return float(abs(after.net.net.layers[0].bias - state.net.net.layers[0].bias).max())

    first = moved(0)
    assert moved(50) / first == pytest.approx(np.sqrt(0.018), rel=0.02)
    assert moved(100) / first == pytest.approx(0.018, rel=0.05)
    assert moved(10_000) == pytest.approx(moved(100), rel=0.05)


@pytest.mark.parametrize("name", TINY)
def test_what_acts_is_outside_the_optimiser(name):
    """Optimiser states hold as many numbers as the nets that are trained, twice and a count."""
    learner = TINY[name]
    _, state, _ = prepare(learner, walks([9] * 20))
    count = lambda tree: sum(leaf.size for leaf in jax.tree.leaves(tree))  # noqa: E731
    if name == "g-dql":
        pairs = [
            (state.actor_optimiser, state.policy.net),
            (state.critic_optimiser, state.critics),
        ]
    else:
        pairs = [(state.optimiser, state.net if name == "beso" else state.model)]
    for optimiser, trained in pairs:
        assert count(optimiser) == 2 * count(trained) + 1


@pytest.mark.parametrize("name", TINY)
def test_policies_are_saved_and_need_a_key(name, tmp_path):
    learner, data = TINY[name], walks([9] * 20)
    spec, state, _ = prepare(learner, data)
    policy = learner.policy(state)
    save_policy(tmp_path / "policy.safetensors", policy, learner, spec, {})
    again = load_policy(tmp_path / "policy.safetensors")
    arguments = (np.zeros(2, np.float32), np.ones(2, np.float32))
    acts = eqx.filter_jit(lambda policy, key: policy(*arguments, key=key))
    key = jax.random.key(5)
    np.testing.assert_array_equal(acts(again, key), acts(policy, key))
    with pytest.raises(MerlinError, match="key: is missing"):
        policy(*arguments)


# Decision Diffuser


def test_plans_begin_with_the_present_state():
    learner = TINY["dd"]
    _, state, _ = prepare(learner, walks([9] * 20))
    plan = eqx.filter_jit(state.policy.plan)(floats(0.3, -0.4), floats(1.0, 1.0), jax.random.key(0))
    assert plan.shape == (6, 2)
    np.testing.assert_allclose(plan[0], [0.3, -0.4])


def test_what_lies_beyond_an_episode_does_not_count():
    """Episodes of 4 states are shorter than the window of 6: what fills it up is arbitrary."""
    learner = TINY["dd"]
    _, state, batch = prepare(learner, walks([4] * 20))
    window = batch.ahead
    assert not window.valid.all(1).any()
    # The U-Net mixes over time, so one that sees each state alone is needed to tell.
    blind = eqx.tree_at(lambda m: m.planner.unet, state.model, replace_fn=lambda _: Alone())
    junk = jnp.where(window.valid[:, :, None], 0.0, 7.0)
    other = batch._replace(
        ahead=window._replace(
            observations=window.observations + junk, actions=window.actions + junk
        )
    )
    loss = jax.jit(learner.loss)
    one, _ = loss(blind, state.policy, batch, jax.random.key(3))
    two, _ = loss(blind, state.policy, other, jax.random.key(3))
    np.testing.assert_allclose(one, two, rtol=1e-5)


class Alone(eqx.Module):
    def __call__(self, x, embedding):
        return x


def test_inverse_loss_by_hand():
    """A model of zeros: the mean of (1 + 9) / 2 = 5 over the one step that is inside."""
    _, state, _ = prepare(TINY["dd"], walks([9] * 20))
    model = jax.tree.map(jnp.zeros_like, state.model)
    unit = floats([1.0, 3.0], [5.0, 5.0])
    loss = DecisionDiffuser.inverse_loss(
        model,
        jnp.ones((1, 3, 2)),
        jnp.pad(unit, ((0, 1), (0, 0)))[None],
        jnp.array([[1, 1, 0]]) > 0,
    )
    assert loss == pytest.approx(5.0)


# g-DQL


def test_targets_by_hand():
    found = td_target(floats(0.0, 1.0, 1.0, 0.0), floats(10.0, 10.0, 90.0, -3.0), 0.98)
    np.testing.assert_allclose(found, [9.8, 10.8, 50.0, 0.0], rtol=1e-5)


def test_critic_loss_by_hand():
    """Critics of zeros against targets 1 and 2: both are off by 1 and by 2."""
    _, state, _ = prepare(TINY["g-dql"], walks([9] * 20))
    zeros = jax.tree.map(jnp.zeros_like, state.critics)
    loss = GDQL.critic_loss(zeros, jnp.ones((2, 4)), jnp.ones((2, 2)), floats(1.0, 2.0))
    assert loss == pytest.approx((2 * 1 + 2 * 4) / 2)


def test_the_critic_chooses_among_candidates():
    """With a critic that is 100 times the first component, the largest of many is taken."""
    learner = dataclasses.replace(TINY["g-dql"], candidates=64)
    _, state, _ = prepare(learner, walks([9] * 20))
    judged = eqx.tree_at(lambda p: p.critics, state.policy, (Steep(), Steep()))
    keys = jax.random.split(jax.random.key(0), 50)

    def first(policy):
        act = lambda key: policy(np.zeros(2, np.float32), np.ones(2, np.float32), key=key)  # noqa: E731
        return np.asarray(jax.jit(jax.vmap(act))(keys))[:, 0]

    assert first(judged).mean() > first(state.policy).mean() + 0.3


class Steep(eqx.Module):
    def __call__(self, x):
        return 100.0 * x[-2:-1]


def test_values_push_the_policy():
    """The gradient of the value reaches the net through every step of the chain."""
    learner = dataclasses.replace(TINY["g-dql"], eta=5.0)
    _, state, batch = prepare(learner, walks([9] * 20))
    inputs = jax.vmap(state.policy.joined)(batch.observation, batch.goal)
    unit = state.policy.actions.to_unit(batch.action)

    def slope(eta):
        noise = jax.random.normal(jax.random.key(1), (8, 5, 2))
        loss = lambda net: dataclasses.replace(learner, eta=eta).actor_loss(  # noqa: E731
            net, (Steep(), Steep()), inputs, unit, noise, noise[:, 0], jax.random.key(0)
        )[0]
        return jax.jit(jax.grad(loss))(state.policy.net).net.layers[-1].bias

    assert (abs(slope(5.0) - slope(0.0)) > 1e-4).any()


def test_g_dql_asks_how_near_is_near():
    learner = TINY["g-dql"]
    with pytest.raises(MerlinError, match=r"tolerance=0\.05"):
        prepare(learner, walks([9] * 20), tolerance=None)
    own = dataclasses.replace(learner, tolerance=0.25)
    assert prepare(own, walks([9] * 20), tolerance=1.0)[1].tolerance == 0.25
    assert prepare(learner, walks([9] * 20), tolerance=1.0)[1].tolerance == 1.0


# BESO and its memory


def test_beso_remembers_a_window():
    learner = Beso(window=3, **TINY_BESO)
    _, state, batch = prepare(learner, walks([9] * 20))
    policy = state.policy
    memory = policy.begin()
    assert not memory.valid.any()
    seen = []
    step = eqx.filter_jit(
        lambda memory, at, key: policy.step(memory, at, floats(1.0, 1.0), key=key)
    )
    for t in range(4):
        observation = floats(0.1 * t, 0.5)
        action, memory = step(memory, observation, jax.random.key(t))
        seen.append((policy.observation_normaliser(observation), policy.actions.to_unit(action)))
        assert int(memory.valid.sum()) == min(t + 1, 3)
    for row, (state_seen, action_seen) in enumerate(seen[1:]):
        np.testing.assert_allclose(memory.observations[row], state_seen, atol=1e-6)
        np.testing.assert_allclose(memory.actions[row], action_seen, atol=1e-5)
    # Without a history it acts as in a first step.
    alone = policy(floats(0.0, 0.5), floats(1.0, 1.0), key=jax.random.key(0))
    np.testing.assert_allclose(policy.actions.to_unit(alone), seen[0][1], atol=1e-5)
    # What acting shows the net is what training shows it: the window that ends now.
    assert batch.behind.observations.shape == (8, 3, 2)
    np.testing.assert_array_equal(batch.behind.observations[:, -1], batch.observation)
    np.testing.assert_array_equal(batch.behind.actions[:, -1], batch.action)
    _, metrics = updated(learner, state, batch)
    assert np.isfinite(metrics["loss"])


def test_guidance_of_one_is_the_answer_with_the_goal():
    _, state, _ = prepare(TINY["beso"], walks([9] * 20))
    seen = Segment(jnp.ones((1, 2)), jnp.zeros((1, 2)), jnp.ones(1, bool))
    x, sigma, goal = floats(0.3, 0.1), jnp.float32(0.5), floats(0.2, 0.9)

    def at(guidance):
        policy = dataclasses.replace(state.policy, guidance=guidance)
        return policy.denoiser(seen, goal)(x, sigma)

    without = at(0.0)
    np.testing.assert_allclose(at(2.5), without + 2.5 * (at(1.0) - without), atol=1e-5)
    assert (at(1.0) != without).any()


class Counter(Policy):
    """Moves by how often it acted in this episode."""

    def begin(self):
        return jnp.float32(0.0)

    def step(self, memory, observation, goal, horizon=None, key=None):
        return jnp.stack([memory / 100, jnp.float32(0.0)]), memory + 1

    def act(self, observation, goal, horizon=None, key=None):
        return self.step(self.begin(), observation, goal, horizon, key)[0]


def test_evaluation_carries_memory_and_clears_it():
    # More episodes than are played at once.
    actions = play(Counter(), "PointReach", episodes=103).actions[..., 0]
    np.testing.assert_allclose(actions, np.tile(np.arange(50) / 100, (103, 1)), atol=1e-6)


@pytest.mark.more
def test_a_run_with_memory_ends_with_scores(point_data):
    learner = Beso(window=2, **TINY_BESO)
    run = merlin.train(learner, point_data, updates=2, eval_episodes=1, final_episodes=1)
    assert np.isfinite(run.result.final["return"]["mean"])


# Refusals


@pytest.mark.parametrize(
    ("method", "settings", "fragment"),
    [
        (Beso, {"backbone": "cnn"}, "backbone: 'cnn'"),
        (Beso, {"backbone": "mlp"}, "window: the mlp takes one state"),
        (Beso, {"heads": 7}, "heads: the width 360 is not divisible by 7"),
        (Beso, {"sigma_min": 2.0}, "sigma_min"),
        (Beso, {"goal_dropout": 0.0}, "guidance: needs the unconditional"),
        (Beso, {"goal_dropout": 1.0}, "goal_dropout: 1.0"),
        (Beso, {"decay_updates": 0}, "decay_updates"),
        (Beso, {"hidden": ()}, "hidden"),
        (Beso, {"learning_rate": -1.0}, "learning_rate"),
        (Beso, {"weight_decay": -1.0}, "weight_decay"),
        (DecisionDiffuser, {"window": 1}, "window: a plan needs at least 2"),
        (DecisionDiffuser, {"sampling_steps": 201}, "sampling_steps: 201"),
        (DecisionDiffuser, {"channels": 12}, "channels: 12"),
        (DecisionDiffuser, {"multipliers": ()}, "multipliers"),
        (DecisionDiffuser, {"condition_dropout": 0.0}, "guidance: needs"),
        (DecisionDiffuser, {"average_decay": 1.0}, "average_decay: 1.0"),
        (DecisionDiffuser, {"temperature": -1.0}, "temperature: -1"),
        (DecisionDiffuser, {"learning_rate": 0.0}, "learning_rate"),
        (DecisionDiffuser, {"batch_size": 0}, "batch_size"),
        (GDQL, {"candidates": 0}, "candidates"),
        (GDQL, {"tolerance": 0.0}, "tolerance: 0.0"),
        (GDQL, {"discount": 1.0}, "discount: 1.0"),
        (GDQL, {"target_keep": 1.0}, "target_keep: 1.0"),
        (GDQL, {"eta": float("nan")}, "eta: nan"),
        (GDQL, {"max_gradient_norm": 0.0}, "max_gradient_norm: 0.0"),
        (GDQL, {"average_start": -1}, "average_start: -1"),
    ],
)
def test_impossible_settings_are_refused(method, settings, fragment):
    with pytest.raises(MerlinError, match=fragment):
        method(**settings)


@pytest.mark.parametrize("name", TINY)
def test_images_are_refused(name):
    spec, *_ = prepare(TINY[name], walks([9] * 20))
    with pytest.raises(MerlinError, match="observations: are images"):
        TINY[name].init(jax.random.key(0), spec._replace(observation_shape=(8, 8, 3)))


@pytest.mark.parametrize("method", [Beso, DecisionDiffuser, GDQL])
def test_the_small_preset_is_one(method):
    assert method(**method.presets["small"]) != method()
