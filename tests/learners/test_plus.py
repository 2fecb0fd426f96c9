"""Merlin-plus: the mixture, what judges its proposals, and that it contains Merlin."""

import dataclasses
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import spearmanr

import merlin.runtime
from helpers.learner_data import floats, random_walks, rows, tiny_batch
from merlin.data import Dataset, Episode
from merlin.data.spec import make_spec
from merlin.errors import MerlinError
from merlin.evaluation.evaluate import with_temperature
from merlin.learners import Merlin, MerlinPlus
from merlin.learners.plus import DISTANCES
from merlin.learners.registry import configure
from merlin.nets.layers import mixture_log_prob
from merlin.policies.mixture import densest, draw, log_density
from merlin.training.loop import compiled_chunk
from merlin.training.plan import method_for
from merlin.training.runs import save_policy
from merlin.training.train import train

SMALL = MerlinPlus(
    hidden=(64, 64),
    model_hidden=(64,),
    distance_hidden=(64,),
    guide_hidden=(64,),
    batch_size=256,
    learning_rate=2e-3,
)


def train_on(learner, data, updates, seed=0):
    spec = learner.survey(data, make_spec(data, learner.sampling))
    state = learner.init(jax.random.key(seed), spec)
    advance = compiled_chunk(learner, together=False)
    state, metrics = advance(state, data.on_device(), jax.random.key(seed), 0, updates)
    return learner.policy(state), metrics


@eqx.filter_jit
def act(policy, observations, goals, horizon=None):
    return jax.vmap(policy, (0, 0, None))(observations, goals, horizon)


# It contains Merlin


@pytest.mark.parametrize(("horizon", "average"), [(1, 0.0), (7, 0.99)])
def test_one_component_and_a_fixed_horizon_are_merlin_to_the_bit(horizon, average):
    data, sizes = random_walks(True), {"hidden": (32, 32), "batch_size": 64, "average": average}
    merlin = Merlin(hindsight_ratio=0.3, horizon=horizon, **sizes)
    plus = MerlinPlus(components=1, candidates=0, hindsight_ratio=0.3, horizon=horizon, **sizes)
    one, measured = train_on(merlin, data, 150)
    other, again = train_on(plus, data, 150)
    assert measured == again
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
    states, goals = rows(300), rows(300, seed=1)
    for told in (None, jnp.float32(3)):
        np.testing.assert_array_equal(
            act(one, states, goals, told), act(other, states, goals, told)
        )
    key = jax.random.key(5)
    hot = [with_temperature(policy, 0.7)(states[0], goals[0], None, key) for policy in (one, other)]
    np.testing.assert_array_equal(*hot)


def test_a_single_state_of_training_has_no_judge_where_none_is_asked():
    policy, metrics = train_on(dataclasses.replace(SMALL, candidates=0), random_walks(), 3)
    assert policy.judge is None
    assert set(metrics) == {"loss", "gradient_norm"}


def test_hazards_are_those_fitted_before_training():
    """The same after any number of updates, and none where nothing asks for them."""
    data, untrained = random_walks(), dataclasses.replace(SMALL, distance="classes")
    spec = make_spec(data, SMALL.sampling)
    assert untrained.survey(data, spec).hazard is None
    assert dataclasses.replace(SMALL, candidates=0).survey(data, spec).hazard is None
    fitted = SMALL.survey(data, spec).hazard.net
    judge = train_on(SMALL, data, 20)[0].judge
    for a, b in zip(jax.tree.leaves(fitted), jax.tree.leaves(judge.distance), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_judge_does_not_change_what_the_policy_learns():
    with_judge, _ = train_on(SMALL, random_walks(), 30)
    without, _ = train_on(dataclasses.replace(SMALL, candidates=0), random_walks(), 30)
    for a, b in zip(jax.tree.leaves(with_judge.net), jax.tree.leaves(without.net), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


# The mixture


@lru_cache
def controller_and_noise() -> Dataset:
    """Half of the actions step towards the goal by 0.8, half are anything; the goals are far."""
    rng = np.random.default_rng(0)
    low, high = np.full(2, -1.0), np.full(2, 1.0)
    episodes = []
    for _ in range(600):
        states, goal = [rng.normal(0, 0.3, 2)], rng.choice([-9.0, 9.0], 2)
        actions = []
        for _ in range(6):
            way = 0.8 * np.sign(goal - states[-1])
            actions.append(way if rng.random() < 0.5 else rng.uniform(-1, 1, 2))
            states.append(states[-1] + actions[-1])
        states = np.stack(states)
        episodes.append(Episode(states, np.stack(actions), states, goal))
    return Dataset.from_episodes(episodes, action_low=low, action_high=high)


def test_a_mixture_acts_like_the_controller_where_one_gaussian_acts_like_the_average():
    data = controller_and_noise()
    goals = jnp.asarray([[9.0, 9.0], [9.0, -9.0], [-9.0, 9.0], [-9.0, -9.0]])
    wanted = 0.8 * np.sign(goals)
    errors = {}
    for components in (1, 3):
        learner = dataclasses.replace(
            SMALL, components=components, candidates=0, hindsight_ratio=0.0, horizon=5
        )
        policy, _ = train_on(learner, data, 600)
        errors[components] = np.abs(act(policy, jnp.zeros((4, 2)), goals) - wanted).max()
    # The average of the controller and of noise is half the controller's action.
    assert 0.25 < errors[1] < 0.55
    assert errors[3] < 0.1


def test_temperature_is_the_deviation_of_the_chosen_component():
    policy, _ = train_on(dataclasses.replace(SMALL, candidates=0), random_walks(), 5)
    policy = eqx.tree_at(lambda p: p.action_scale, policy, jnp.full(2, 100.0))
    state, goal = jnp.zeros(2), jnp.ones(2)
    mean, std = densest(policy.distribution(state, goal), policy.action_scale)
    hot, keys = with_temperature(policy, 0.5), jax.random.split(jax.random.key(0), 4000)
    actions = np.asarray(jax.vmap(lambda key: hot(state, goal, None, key))(keys))
    np.testing.assert_allclose(actions.mean(0), mean, atol=5 * 0.5 * std.max() / np.sqrt(4000))
    np.testing.assert_allclose(actions.std(0), 0.5 * std, rtol=0.06)
    with pytest.raises(ValueError, match="give it a key"):
        hot(state, goal)


# The judge


@lru_cache
def judged(distance="hazards"):
    learner = dataclasses.replace(SMALL, hindsight_ratio=1.0, distance=distance)
    return train_on(learner, random_walks(), 1500)[0]


def test_the_forward_model_learns_where_actions_lead():
    policy = judged()
    states, actions = rows(200), jnp.asarray(np.random.default_rng(3).uniform(-1, 1, (200, 2)))
    guess = jax.vmap(policy.judge.next_state)(
        jax.vmap(policy.observation_normaliser)(states), actions.astype(jnp.float32)
    )
    truth = jax.vmap(policy.observation_normaliser)(states + actions.astype(jnp.float32))
    error = np.abs(np.asarray(guess) - np.asarray(truth))
    assert error.mean() < 0.05


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_temporal_distance_grows_with_the_distance(distance):
    policy = judged(distance)
    goals = rows(300, seed=4)
    way = np.linspace(0.2, 4.0, 300)[:, None] * np.array([0.6, 0.8])
    x = policy.state_goal(goals + way.astype(np.float32), goals)
    steps = jax.vmap(lambda row: policy.judge.steps(row, 0.9))(x)
    assert spearmanr(steps, way[:, 0]).statistic > 0.8


# Looking ahead


def test_looking_ahead_walks_to_the_goal_without_a_horizon():
    policy = judged()
    places = rows(200, seed=5)
    angles = np.random.default_rng(6).uniform(0, 2 * np.pi, 200)
    way = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    goals = places + 2.5 * way
    actions = np.asarray(act(policy, places, goals))
    cosine = (actions * way).sum(1) / np.linalg.norm(actions, axis=1)
    assert cosine.mean() > 0.9
    for _ in range(4):
        places = places + np.asarray(act(policy, places, goals))
    assert np.linalg.norm(places - goals, axis=1).mean() < 0.8


def test_the_judges_word_is_weighed_against_how_likely_a_proposal_is():
    policy = dataclasses.replace(judged(), caution=0.0)
    error = float(policy.judge.square_error)
    assert 0 < error < 1
    agreed = 0
    for state, goal in zip(rows(8, seed=7), rows(8, seed=8), strict=True):
        mixture, chances = policy.distribution(state, goal), policy.chances(None)
        drawn = [draw(mixture, jnp.ones(2), *luck)[0] for luck in zip(*chances, strict=True)]
        assert len(drawn) == policy.candidates - 2
        first = densest(mixture, jnp.ones(2))[0]
        quick = densest(policy.distribution(state, goal, 1.0), jnp.ones(2))[0]
        actions = jnp.clip(jnp.stack([first, quick, 2 * quick, *drawn]), -1.0, 1.0)
        standard = policy.observation_normaliser(state), policy.goal_normaliser(goal)
        steps = jnp.stack([policy.steps_along(policy.judge, *standard, a) for a in actions])
        likely = jnp.stack([log_density(mixture, a, jnp.ones(2)) for a in actions])
        for caution, best in (
            (0.0, jnp.argmin(steps)),
            (0.5 / error, jnp.argmin(steps - 0.5 * likely)),
            (1e6 / error, jnp.argmax(likely)),
        ):
            cautious = dataclasses.replace(policy, caution=caution)
            np.testing.assert_allclose(cautious(state, goal), actions[best], atol=1e-6)
        agreed += int(jnp.argmin(steps)) == int(jnp.argmax(likely))
    assert agreed < 8


def test_steps_along_a_walk_by_hand():
    """The first step by the model, the end by the guide."""
    policy = judged()
    state, goal = jnp.zeros(2), jnp.asarray([1.5, 0.0])
    action = jnp.asarray([0.5, 0.5])
    first = policy.judge.next_state(state, action)
    end = first + policy.judge.guide(jnp.concatenate([first, goal]))
    near, far = (
        float(policy.judge.steps(jnp.concatenate([place, goal]), policy.discount))
        for place in (first, end)
    )
    assert abs(near - far) > 0.1
    found = policy.steps_along(policy.judge, state, goal, action)
    np.testing.assert_allclose(found, 0.2 * near + 0.8 * far, rtol=1e-5)
    short = dataclasses.replace(policy, depth=1)
    found = short.steps_along(policy.judge, state, goal, action)
    np.testing.assert_allclose(found, near, rtol=1e-5)


def test_walks_are_made_step_by_step():
    policy = judged()
    states, goals = jnp.asarray(rows(5, seed=1)), jnp.asarray(rows(5, seed=2))
    walks = policy.walks(policy.judge, states, goals)
    np.testing.assert_array_equal(walks.state, states)
    np.testing.assert_array_equal(walks.goal, goals)
    for state, goal, end in zip(states, goals, walks.end, strict=True):
        for _ in range(policy.depth - 1):
            mixture = policy.mixture(jnp.concatenate([state, goal, policy.embed(None)]))
            state = policy.judge.next_state(state, densest(mixture, jnp.ones(2))[0])
        np.testing.assert_allclose(end, state, rtol=1e-4, atol=1e-5)


def test_the_guide_tells_where_walks_end():
    """To a small part of how far they go."""
    policy = judged()
    states, goals = jnp.asarray(rows(300, seed=1)), jnp.asarray(rows(300, seed=2))
    walks = policy.walks(policy.judge, states, goals)
    told = jax.vmap(policy.judge.walk_end)(states, goals)
    error = np.linalg.norm(told - walks.end, axis=1).mean()
    assert error < 0.25 * np.linalg.norm(walks.end - states, axis=1).mean()


def test_keys_draw_other_actions_and_the_same_key_the_same():
    policy = dataclasses.replace(judged(), caution=0.0)
    states, goals = rows(50, seed=9), rows(50, seed=10)
    play = jax.jit(lambda key: jax.vmap(lambda s, g: policy(s, g, None, key))(states, goals))
    one, again, other = (play(jax.random.key(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_who_tells_a_horizon_is_listened_to():
    policy, fixed = judged(), dataclasses.replace(judged(), judge=None)
    states, goals = rows(50, seed=9), rows(50, seed=10)
    for told in (1.0, 4.0):
        one, other = (act(p, states, goals, jnp.float32(told)) for p in (policy, fixed))
        np.testing.assert_array_equal(one, other)


# As every learner


@pytest.mark.more
def test_trains_on_stitched_data_and_resumes(tmp_path):
    """Killed after 20 of 40 updates and resumed is the same to the byte as never killed."""
    data = random_walks()
    method = configure_with_stitching()
    how = {"augment": method.augmentation, "checkpoint_every": 20}
    train(method.learner, data, updates=40, out=tmp_path / "whole", **how)
    train(method.learner, data, updates=20, out=tmp_path / "parts", **how)
    train(method.learner, data, updates=40, out=tmp_path / "parts", resume=True, **how)
    one, other = (
        (tmp_path / name / "seed-0" / "policy.safetensors").read_bytes()
        for name in ("whole", "parts")
    )
    assert one == other


def configure_with_stitching():
    judge = {f"{net}_hidden": "16" for net in ("model", "distance", "guide")}
    small = {"hidden": "16", "batch_size": "32", **judge}
    stitch = {"trajectories": "20", "encoder_hidden": "16", "threshold": "0.99"}
    return configure("merlin-plus+reverse-stitch", {**small, **stitch})


def test_on_episodes_longer_than_its_goals_it_is_merlin():
    shared = {field.name for field in dataclasses.fields(Merlin)}
    for steps, long in ((100, False), (101, True)):
        walk = np.zeros((steps + 1, 2), np.float32)
        episode = Episode(walk, walk[1:], walk, walk[-1])
        data = Dataset.from_episodes([episode], action_low=-1, action_high=1)
        plus = method_for("merlin-plus", data, None).learner
        merlin = method_for("merlin", data, None).learner
        assert (plus == MerlinPlus()) != long
        if long:
            assert (plus.components, plus.candidates) == (1, 0)
            assert {k: getattr(plus, k) for k in shared} == {k: getattr(merlin, k) for k in shared}
            own = method_for("merlin-plus", data, None, settings={"candidates": "2"}).learner
            assert own == dataclasses.replace(plus, candidates=2)


def test_nothing_is_tuned_per_task():
    """What was tuned for Merlin may not reach it."""
    tuned = {"hindsight_ratio": 0.2, "horizon": 20}
    assert configure("merlin-plus", {}, tuned).learner == MerlinPlus()


@pytest.mark.parametrize(
    ("settings", "fragment"),
    [
        ({"components": 0}, "components"),
        ({"horizon": 0}, "horizon: 0"),
        ({"candidates": -1}, "candidates"),
        ({"caution": float("nan")}, "caution"),
        ({"depth": 0}, "depth"),
        ({"temperature": -0.1}, "temperature"),
        ({"discount": 1.0}, "discount"),
        ({"distance": "far"}, "distance: 'far' is not one of hazards, classes"),
        ({"model_hidden": ()}, "model_hidden"),
        ({"distance_hidden": (0,)}, "distance_hidden"),
        ({"guide_hidden": ()}, "guide_hidden"),
        ({"max_gradient_norm": 0.0}, "max_gradient_norm"),
    ],
)
def test_impossible_settings_are_refused(settings, fragment):
    with pytest.raises(MerlinError, match=fragment):
        MerlinPlus(**settings)


def test_the_loss_is_that_of_the_policy_that_acts(rng):
    policy, _ = train_on(dataclasses.replace(SMALL, candidates=0), random_walks(), 5)
    batch = tiny_batch(rng.uniform(-1, 1, (4, 2)), observation=rows(4), goal=rows(4, seed=1))
    terms = [
        mixture_log_prob(
            batch.action[i], *policy.distribution(batch.observation[i], batch.goal[i], 1)
        )
        for i in range(4)
    ]
    loss = MerlinPlus.loss(policy.net, policy, batch)
    np.testing.assert_allclose(loss, -np.mean(terms), rtol=1e-5)


def test_long_episodes_are_told_apart_step_by_step(tmp_path):
    """The longest horizon bounds classes and embedding, in training and in the runtime alike."""
    learner = MerlinPlus(hidden=(8,), max_horizon=40)
    spec = make_spec(random_walks(), learner.sampling)
    assert learner.init(jax.random.key(0), spec).policy.max_period == spec.max_horizon
    policy = learner.init(jax.random.key(0), spec._replace(max_horizon=1001)).policy
    assert (policy.max_period, policy.judge.bins, policy.judge.width) == (40.0, 40, 1)
    # A horizon beyond it, that of a desired goal, is told as the longest.
    far, longest = policy.embed_all(floats(900, 40))
    np.testing.assert_array_equal(far, longest)
    path = tmp_path / "policy.safetensors"
    save_policy(path, policy, learner, spec._replace(max_horizon=1001), {})
    weights = merlin.runtime.read(path)
    assert weights.max_period == 40.0
    np.testing.assert_allclose(weights.embed(np.float32(7)), policy.embed(7), atol=1e-6)
    with pytest.raises(MerlinError, match="max_horizon: 0 is not a size"):
        MerlinPlus(max_horizon=0)
