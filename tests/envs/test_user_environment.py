"""Environments that nobody here wrote: understood rightly, or refused."""

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

import merlin
from helpers import own_envs
from merlin.collection.behaviour import Uniform, play_episodes
from merlin.envs import names
from merlin.envs.batch import make_batch, make_single
from merlin.envs.registry import TASKS, choose, find
from merlin.envs.scoring import Scoring, infer
from merlin.errors import MerlinError
from merlin.evaluation.evaluate import DISCOUNT, evaluate

OWN = "helpers.own_envs:own/"


def straight(observation, goal, horizon=None, key=None):
    """Walk towards the goal on the line, whatever the size of the observation."""
    return jnp.clip(goal - observation[:1], -0.5, 0.5)


def scored_independently(env_id, policy, seeds, reached, *, ends, steps):
    """A plain loop, as a stranger would write it: discounted steps at the goal, success at last."""
    env = gymnasium.make(env_id).env.env  # without time limit and order enforcing
    returns, successes = [], []
    for seed in seeds:
        seen, _ = env.reset(seed=seed)
        total, success = 0.0, False
        for step in range(steps):
            told = (np.float32(seen[key]) for key in ("observation", "desired_goal"))
            action = np.asarray(policy(*told), np.float32)
            seen, reward, terminated, truncated, info = env.step(action)
            success = bool(reached(seen, reward, info))
            total += DISCOUNT**step * success
            if ends and (terminated or truncated):
                break
        returns.append(total)
        successes.append(float(success))
    return np.array(returns), np.array(successes)


def near(seen, reward, info):
    return np.abs(seen["achieved_goal"] - seen["desired_goal"])[0] <= own_envs.NEAR


TOLD = ["Keyed", "KeyedMinus", "KeyedDense", "ZeroOne", "MinusZero", "ComputedFar", "ComputedMinus"]


@pytest.mark.parametrize("name", [*TOLD, "Ends", "Rescaled", "Wrapped"])
def test_scores_agree_with_a_plain_loop(name):
    task = find(f"{OWN}{name}-v0")
    assert task.episode_steps == 20
    scores = evaluate(straight, task, episodes=20, seed=100)
    returns, success = scored_independently(
        f"own/{name}-v0", straight, range(100, 120), near, ends=True, steps=20
    )
    np.testing.assert_allclose(scores.returns, returns, rtol=1e-12)
    np.testing.assert_array_equal(scores.success, success)
    if "Computed" not in name:  # where goals are too far away to be met
        assert success.mean() > 0.9


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Keyed", Scoring("is_success")),
        ("KeyedDense", Scoring("success")),
        ("ZeroOne", Scoring(goal_reward=1.0, rewards=(0.0, 1.0))),
        ("MinusZero", Scoring(goal_reward=0.0, rewards=(-1.0, 0.0))),
        ("ComputedFar", Scoring(goal_reward=1.0, rewards=(0.0, 1.0))),
        ("ComputedMinus", Scoring(goal_reward=0.0, rewards=(-1.0, 0.0))),
    ],
)
def test_how_success_is_told(name, expected):
    assert find(f"{OWN}{name}-v0").scoring == expected


@pytest.mark.parametrize("name", ["Silent", "SilentFar", "Dense", "Other"])
def test_what_does_not_tell_is_refused(name):
    """A reward that is always 0 may mean anything; a dense one tells no success."""
    with pytest.raises(MerlinError, match=r"`success_key`.*`goal_reward`") as refusal:
        find(f"{OWN}{name}-v0")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("Other", "success_key=arrived"),
        ("Dense", "goal_reward=-0.25"),
        ("ZeroOne", "goal_reward=1"),
    ],
)
def test_the_user_can_say_it(name, option):
    scores = evaluate(straight, f"{OWN}{name}-v0?{option}", episodes=20, seed=100)
    expected = evaluate(straight, f"{OWN}Keyed-v0", episodes=20, seed=100)
    np.testing.assert_array_equal(scores.returns, expected.returns)
    np.testing.assert_array_equal(scores.success, expected.success)


def test_a_key_that_is_not_there_is_refused():
    with pytest.raises(MerlinError, match=r"success_key.*'arived'.*arrived"):
        find(f"{OWN}Other-v0?success_key=arived")


def test_a_key_that_is_missing_in_one_step_is_said():
    scoring = Scoring("is_success")
    with pytest.raises(MerlinError, match="is_success"):
        scoring("some task", 0.0, {"other": 1})


def test_a_reward_outside_the_convention_is_said():
    task = find(f"{OWN}ZeroOne-v0")
    with pytest.raises(MerlinError, match=r"reward 0\.5, not 0 or 1"):
        task.scoring(task.name, 0.5, {})


@pytest.mark.parametrize(
    ("rewards", "at_goal"), [({0.0}, None), ({0.0, 1.0}, 0.0), ({-1.0}, -1.0), ({-1.0, 1.0}, None)]
)
def test_ambiguous_rewards_are_refused(rewards, at_goal):
    with pytest.raises(MerlinError, match="not known when its goal is reached"):
        infer("x", set(), rewards, at_goal)


def test_wrappers_of_the_user_stay_and_time_limits_go():
    task = find(f"{OWN}Wrapped-v0")
    assert (task.observation_dim, task.action_low, task.action_high) == (2, (-1.0,), (1.0,))
    env = make_single(task)
    assert isinstance(env, own_envs.Doubled)
    data = merlin.collect(task, "random", episodes=5, workers=1)
    # Recorded are the actions of the user, twice as large as those of the line itself.
    moved = np.diff(data.observations[:20, 0])
    np.testing.assert_allclose(moved, data.actions[:19, 0] / 2, atol=1e-6)


def test_the_tasks_of_the_paper_are_bare():
    for name in ("FetchReach", "Reacher"):
        env = make_single(TASKS[name])
        assert env.unwrapped is env
        env.close()


def test_episodes_end_where_the_environment_ends_them():
    task = find(f"{OWN}Ends-v0")
    assert task.ends
    data = merlin.collect(task, "random", episodes=60, workers=2, seed=3)
    assert data.lengths.min() < 20 == data.lengths.max()
    for index in range(len(data)):
        episode = data.episode(index)
        at_goal = np.abs(episode.achieved_goals - episode.desired_goal)[:, 0] <= own_envs.NEAR
        # It ends at the first state after the start that is at the goal, or in time.
        assert not at_goal[1:-1].any()
        assert at_goal[-1] or len(at_goal) == 20
    played = play_episodes({}, task, Uniform(), 3, range(60), 19)
    assert (played.lengths + 1).tolist() == data.lengths.tolist()


def test_an_ended_episode_stands_still():
    task = find(f"{OWN}Ends-v0")
    batch = make_batch(task, 4, workers=2)
    try:
        seen = batch.reset([0, 1, 2, 3])
        for _ in range(8):
            answer = batch.step(straight_rows(seen))
            seen = answer.observation
        assert answer.ended.all()
        assert answer.success.all()
        again = batch.step(np.full((4, 1), 0.5, np.float32))
        np.testing.assert_array_equal(again.observation["observation"], seen["observation"])
        assert (again.reward == 0).all()
        assert again.success.all()
    finally:
        batch.close()


def straight_rows(seen):
    return np.clip(seen["desired_goal"] - seen["observation"], -0.5, 0.5).astype(np.float32)


def test_a_goal_that_moves_is_refused():
    with pytest.raises(MerlinError, match="goal changes within an episode"):
        merlin.collect(f"{OWN}Wandering-v0", "random", episodes=2, workers=1)


def test_without_a_time_limit_one_is_asked_for():
    with pytest.raises(MerlinError, match=r"no time limit.*`max_steps=100`"):
        find(f"{OWN}Endless-v0")
    assert find(f"{OWN}Endless-v0?max_steps=7").episode_steps == 7


def test_arguments_reach_the_environment():
    task = find(f"{OWN}Keyed-v0?args.size=5&max_steps=9")
    assert task.episode_steps == 9
    assert make_single(task).size == 5
    with pytest.raises(MerlinError, match=r"cannot be made.*no_such"):
        find(f"{OWN}Keyed-v0?args.no_such=5")


@pytest.mark.parametrize(
    "name",
    [
        names.EnvName("own/Ring-v0"),
        names.EnvName("own/Ring-v0", "ring.world", 5, "done & dusted"),
        names.EnvName("own/Ring-v0", "ring.world", 5, goal_reward=-0.5),
        names.EnvName("Env-v1", arguments={"a": 1, "b": "two", "c": True, "d": "1", "e": "x=y&z"}),
    ],
)
def test_names_are_read_back(name):
    assert names.parse(str(name)) == name


def test_a_file_names_no_code(tmp_path, monkeypatch):
    (tmp_path / "trap_world.py").write_text("open('sprung', 'w')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MerlinError, match=r"`task='trap_world:own/Trap-v0'`"):
        choose("trap_world:own/Trap-v0?max_steps=3", None)
    for known in ("merlin/PointReach-v0", "CartPole-v1", TASKS["PointReach"].env_id):
        with pytest.raises(MerlinError, match="whose code is not run"):
            choose(f"trap_world:{known}", None)
    assert not (tmp_path / "sprung").exists()
    # What the user names, too, is imported, with the options that were recorded.
    own = "helpers.own_envs:own/Endless-v0"
    assert choose(f"{own}?max_steps=3", own).episode_steps == 3
    assert choose("PointReach", None).name == "PointReach"
    assert choose("PointReach", "none") is None


def test_broken_environments_are_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "broken_world.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MerlinError, match=r"ZeroDivisionError.*line 1 of .*broken_world.py"):
        find("broken_world:X-v0")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("gymnasium_robotics:PointMaze_UMaze-v3", "success"),
        ("gymnasium_robotics:AntMaze_UMaze-v5", "success"),
        ("gymnasium_robotics:FetchReachDense-v4", "is_success"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_environments_of_gymnasium_robotics(name, key):
    task = find(f"{name}?max_steps=40")
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(task.action_dim, task.goal_dim)).astype(np.float32)

    def policy(observation, goal, horizon=None, key=None):
        return jnp.clip(jnp.sum(matrix * goal, axis=1), -1.0, 1.0)

    scores = evaluate(policy, task, episodes=4, seed=7)
    told = lambda seen, reward, info: info[key]  # noqa: E731
    env_id = name.partition(":")[2]
    expected = scored_independently(env_id, policy, range(7, 11), told, ends=True, steps=40)
    np.testing.assert_allclose(scores.returns, expected[0], rtol=1e-12)
    np.testing.assert_array_equal(scores.success, expected[1])
