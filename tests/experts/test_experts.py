"""Experts: the pieces of DDPG+HER, exact resume, controllers, shipped weights and their data."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import merlin
from helpers.breaking import plain_json
from merlin.collection.behaviour import Expert, play_episodes
from merlin.envs.registry import TASKS
from merlin.errors import MerlinError
from merlin.experts import controllers, library
from merlin.experts.actor import Actor
from merlin.experts.ddpg import DDPG, Replay, Scaling, to_numpy, track
from merlin.experts.plans import PLANS, Plan
from merlin.experts.training import train_expert
from merlin.nets.layers import Normaliser
from merlin.nets.td import act
from merlin.types import Moments

TINY = Plan(
    cycles=6,
    episodes=4,
    updates=5,
    learner=DDPG(tolerance=1.0, hidden=(16, 16), batch_size=32),
    eval_every=2,
    eval_episodes=8,
)


def scaled_by(observation_std, goal_std, observation_mean=0.0, goal_mean=0.0):
    sizes = (observation_mean, observation_std), (goal_mean, goal_std)
    parts = (np.broadcast_arrays(mean, np.asarray(std, np.float32)) for mean, std in sizes)
    return Scaling(*(Normaliser(Moments(*part), epsilon=0.0) for part in parts))


def replay(episodes=3, steps=5):
    """Achieved goals count 100 * episode + step, so that they can be read off a sample."""
    marks = 100.0 * np.arange(episodes)[:, None] + np.arange(steps + 1)
    marks = jnp.asarray(marks[..., None], jnp.float32)
    return Replay(
        observations=marks,
        actions=marks[:, :-1] / 1000,
        achieved_goals=marks,
        desired_goals=jnp.full((episodes, 1), -1.0),
        filled=jnp.int32(episodes - 1),
    )


def test_hindsight_goals_come_from_the_future_of_the_same_episode():
    batch = DDPG(tolerance=0.5, hindsight=0.8).sample(replay(), jax.random.key(0), 20_000)
    state, goal = np.asarray(batch.observation)[:, 0], np.asarray(batch.goal)[:, 0]
    assert set(state // 100) == {0.0, 1.0}  # the third episode is not filled
    relabelled = goal >= 0
    assert abs(relabelled.mean() - 0.8) < 0.02
    ahead = (goal - state)[relabelled]
    t = (state % 100)[relabelled]
    assert ((ahead >= 1) & (t + ahead <= 5)).all()
    # Uniform over what is left of the episode.
    assert abs(ahead[t == 0].mean() - 3.0) < 0.1
    np.testing.assert_array_equal(np.asarray(batch.next_observation)[:, 0], state + 1)
    reached = np.abs(state + 1 - goal) <= 0.5
    np.testing.assert_array_equal(np.asarray(batch.reward), np.where(reached, 0.0, -1.0))


def test_target_networks_follow_slowly():
    learner = DDPG(tolerance=1.0, hidden=(4,))
    state = learner.init(jax.random.key(0), 2, 2, 2)
    other = learner.init(jax.random.key(1), 2, 2, 2)
    mixed = eqx.tree_at(
        lambda s: (s.target_actor, s.target_critic), state, (other.actor, other.critic)
    )
    moved = track(mixed, 0.75)
    expected = jax.tree.map(lambda a, b: 0.75 * a + 0.25 * b, other.critic, state.critic)
    for found, wanted in zip(
        jax.tree.leaves(moved.target_critic), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, moved.actor, state.actor))


@pytest.mark.parametrize(("sign", "cloned"), [(1.0, True), (-1.0, False)])
def test_demonstrations_are_cloned_where_the_critic_prefers_them(sign, cloned):
    """The critic is held at Q = sign * relu(action): it prefers 0.7 to less, or less to 0.7."""
    learner = DDPG(
        tolerance=0.5,
        hidden=(4,),
        cloning_weight=100.0,
        batch_size=8,
        action_penalty=0.0,
        learning_rate=1e-2,
    )
    state = learner.init(jax.random.key(0), 1, 1, 1)
    first, last = state.critic.layers
    critic = eqx.tree_at(
        lambda c: [c.layers[0].weight, c.layers[0].bias, c.layers[1].weight, c.layers[1].bias],
        state.critic,
        [
            jnp.zeros_like(first.weight).at[2, 0].set(1.0),
            jnp.zeros_like(first.bias),
            jnp.zeros_like(last.weight).at[0, 0].set(sign),
            jnp.zeros_like(last.bias),
        ],
    )
    scaling = scaled_by([1.0], [1.0])
    shown = replay()._replace(actions=jnp.full((3, 5, 1), 0.7))
    update = jax.jit(learner.update)
    for step in range(200):
        held = eqx.tree_at(lambda s: s.critic, state, critic)
        state, _ = update(held, shown, shown, scaling, jax.random.key(step))
    mine = act(state.actor, scaling(shown.observations[0, :5], shown.achieved_goals[0, 1:6]))
    assert (float(jnp.min(mine)) > 0.6) == cloned


def test_advice_is_followed_for_the_goal_that_was_asked_for():
    """The actions taken say 0.0 to 0.1, the advice 0.5: the actor does what it was advised."""
    learner = DDPG(
        tolerance=0.5,
        hidden=(16,),
        cloning_weight=1000.0,
        batch_size=8,
        advice_batch=32,
        action_penalty=0.0,
        learning_rate=1e-2,
    )
    state = learner.init(jax.random.key(0), 1, 1, 1)
    scaling = scaled_by([100.0], [1.0])
    advised = replay()._replace(advice=jnp.full((3, 5, 1), 0.5))
    update = jax.jit(learner.update)
    for step in range(200):
        state, _ = update(state, advised, None, scaling, jax.random.key(step))
    mine = act(state.actor, scaling(advised.observations[0, :5], jnp.full((5, 1), -1.0)))
    np.testing.assert_allclose(mine, 0.5, atol=0.05)
    far = learner.disagreement(state.actor, advised, scaling, jax.random.key(0))
    other = advised._replace(advice=jnp.full((3, 5, 1), -0.5))
    assert far < 0.01 < 0.9 < learner.disagreement(state.actor, other, scaling, jax.random.key(0))


def test_in_the_end_an_actor_clones_nobody():
    plan = replace(PLANS["FetchPush"], alone_from=3)
    first, last = plan.learner_at(2), plan.learner_at(3)
    assert first == plan.learner
    assert first.cloning_weight > last.cloning_weight == 0 == last.action_penalty
    assert 0 < last.learning_rate < first.learning_rate
    assert replace(plan, alone_from=None).learner_at(99) == plan.learner


def test_the_numpy_actor_is_the_jax_actor(tmp_path):
    learner = DDPG(tolerance=1.0)
    state = learner.init(jax.random.key(0), 5, 3, 2)
    rng = np.random.default_rng(0)
    scaling = scaled_by(*(rng.uniform(0.5, 2, size) for size in (5, 3, 5, 3)))
    actor = to_numpy(state.actor, scaling)
    observation = rng.normal(0, 3, (64, 5)).astype(np.float32)
    goal = rng.normal(0, 3, (64, 3)).astype(np.float32)
    expected = act(state.actor, scaling(jnp.asarray(observation), jnp.asarray(goal)))
    np.testing.assert_allclose(actor(observation, goal), expected, atol=1e-6)
    actor.save(tmp_path / "actor.safetensors")
    again = Actor.load(tmp_path / "actor.safetensors")
    np.testing.assert_array_equal(again(observation, goal), actor(observation, goal))


ADVISED = Plan(
    **{
        **vars(TINY),
        "controller": "towards",
        "demonstrations": 8,
        "advised": True,
        "fine_tuning": 5,
    }
)


@pytest.mark.more
@pytest.mark.parametrize(("plan", "episodes"), [(TINY, 24), (ADVISED, 32)])
def test_a_resumed_expert_is_the_one_that_was_not_stopped(tmp_path, monkeypatch, plan, episodes):
    towards = lambda observation, goal: np.clip(goal - observation, -1.0, 1.0)  # noqa: E731
    monkeypatch.setitem(controllers.CONTROLLERS, "towards", towards)
    task = TASKS["PointReach"]
    whole = train_expert(task, tmp_path / "whole", plan=plan)
    shorter = Plan(**{**vars(plan), "cycles": 4})
    train_expert(task, tmp_path / "parts", plan=shorter)
    resumed = train_expert(task, tmp_path / "parts", plan=plan, resume=True)
    same = lambda card: (card["success"], card["return"])  # noqa: E731
    assert same(resumed) == same(whole)
    folder = tmp_path / "parts" / "replay"
    states, goals = (np.load(folder / f"{name}.npy") for name in ("observations", "desired_goals"))
    assert len(states) == episodes
    if plan.advised:
        expected = towards(states[:, :-1], goals[:, None])
        np.testing.assert_array_equal(np.load(folder / "advice.npy"), expected)
    for name in ("actor.safetensors", "replay/observations.npy"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    curve = (tmp_path / "parts" / "curve.jsonl").read_text().splitlines()
    assert [json.loads(line)["cycle"] for line in curve] == [2, 4, 6] + [6] * plan.advised


def test_an_expert_s_folder_is_not_written_over(tmp_path):
    task = TASKS["PointReach"]
    train_expert(task, tmp_path / "a", plan=TINY)
    with pytest.raises(MerlinError, match="`resume=True`"):
        train_expert(task, tmp_path / "a", plan=TINY)
    # Earlier versions called the updates at the end by another name.
    at = tmp_path / "a" / "expert.json"
    older = plain_json(at)
    older["plan"]["settling"] = older["plan"].pop("fine_tuning")
    at.write_text(json.dumps(older))
    train_expert(task, tmp_path / "a", plan=TINY, resume=True)
    other = Plan(**{**vars(TINY), "noise": 0.1})
    with pytest.raises(MerlinError, match="other settings"):
        train_expert(task, tmp_path / "a", plan=other, resume=True)


@pytest.mark.parametrize(
    ("name", "controller", "least"),
    [
        ("FetchPush", "fetch_push", 0.9),
        ("FetchPick", "fetch_pick", 0.8),
        ("FetchSlide", "fetch_slide", 0.5),
        ("SawyerDoor", "sawyer_door", 0.9),
        ("HandReach", "hand_reach", 0.4),
    ],
)
def test_controllers_reach_goals(name, controller, least):
    behaviour = Expert(controllers.CONTROLLERS[controller], noise=0.0, uniform=0.0)
    played = play_episodes({}, TASKS[name], behaviour, 0, range(20), 50)
    assert played.success[:, -1].mean() >= least


def test_expert_noise_is_the_benchmark_s():
    """Gaussian deviation 0.2 on 70 % of the steps, whole actions uniform on the others."""
    task = TASKS["PointReach"]
    still = lambda observation, goal: np.zeros_like(goal)  # noqa: E731
    behaviour = Expert(still, noise=0.2, uniform=0.3)
    streams = [np.random.default_rng(i) for i in range(4000)]
    action = behaviour(task, streams, 1)(
        {"observation": np.zeros((4000, 2)), "desired_goal": np.zeros((4000, 2))}, 0
    )
    far = np.abs(action) > 0.8  # four deviations: only uniform actions
    assert abs(far.mean() - 0.3 * 0.2) < 0.01
    assert abs((far[:, 0] & far[:, 1]).mean() - 0.3 * 0.04) < 0.006
    near = action[(np.abs(action) < 0.6).all(axis=1)]
    assert 0.2 < near.std() < 0.26


@pytest.mark.more
def test_collection_goes_on_after_a_kill(tmp_path):
    command = [sys.executable, "-c", "from merlin.cli import main; main()", "collect", "FetchReach"]
    options = ["--variant", "random", "--episodes", "160", "--seed", "3", "--out"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [*command, *options, str(tmp_path / "killed")],
        env=environment,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    parts = tmp_path / ".killed.parts"
    deadline = time.monotonic() + 60
    while len(list(parts.glob("part-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = {path.name: path.stat().st_mtime_ns for path in parts.glob("part-*")}
    assert 2 <= len(finished) < 8
    assert not (tmp_path / "killed").exists()

    from merlin.collection.collect import collect_to

    how = {"episodes": 160, "seed": 3}
    collect_to(tmp_path / "killed", TASKS["FetchReach"], "random", **how)
    collect_to(tmp_path / "whole", TASKS["FetchReach"], "random", **how)
    files = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "killed").iterdir())
    for name in files:
        killed, whole = (tmp_path / folder / name for folder in ("killed", "whole"))
        assert killed.read_bytes() == whole.read_bytes()
    assert not parts.exists()


def test_every_shipped_expert_has_a_card_and_fits():
    names = sorted(path.stem for path in library.folder().glob("*.safetensors"))
    assert names
    for name in names:
        task, card = TASKS[name], library.card(TASKS[name])
        path = library.folder() / f"{name}.safetensors"
        assert path.stat().st_size <= 1_000_000
        actor = library.shipped(task)
        action = actor(np.zeros((3, task.observation_dim)), np.zeros((3, task.goal_dim)))
        assert action.shape == (3, task.action_dim)
        assert card["task"] == name
        assert card["episodes"] == 200
        assert {"success", "return", "environment_steps", "seconds", "command", "date"} <= set(card)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(p.stem for p in library.folder().glob("*.json")))
def test_shipped_experts_are_as_good_as_their_cards(name):
    from merlin.experts.training import CARD_SEED, Players, evaluate_actor

    card = library.card(TASKS[name])
    with Players(TASKS[name]) as opened:
        returns, success = evaluate_actor(opened, library.shipped(TASKS[name]), 200, CARD_SEED)
    assert success.mean() == pytest.approx(card["success"], abs=0.03)
    assert returns.mean() == pytest.approx(card["return"], abs=1.0)


def test_expert_data_reaches_its_goals():
    data = merlin.collect("PointReach", "expert", episodes=200)
    from merlin.data.describe import reached

    at_goal = reached(data, 1.0).reshape(200, 50)
    # The published expert data has 0.84 at the end.
    assert 0.7 < at_goal[:, -1].mean() < 0.95
    assert data.provenance["expert"]
