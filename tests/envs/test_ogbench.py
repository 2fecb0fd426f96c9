"""OGBench's datasets as tasks: sizes, seeds, the five goals, and how they are scored."""

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from merlin.envs import ogbench
from merlin.envs.batch import LocalBatch, make_single
from merlin.envs.registry import OGBENCH, TASKS, choose, find
from merlin.envs.rollout import rollout
from merlin.errors import MerlinError
from merlin.evaluation.evaluate import Evaluation, summarise

MEDIUM = "ogbench:pointmaze-medium-navigate-v0"
# One dataset of each environment: an arm takes seconds to build.
ENVIRONMENTS = {size.env: name for name, size in ogbench.SIZES.items()}
QUICK = [name for env, name in ENVIRONMENTS.items() if "maze" in env]
SLOW = [name for name in ENVIRONMENTS.values() if name not in QUICK]


def test_there_are_the_state_based_datasets():
    assert len(OGBENCH) == 47
    assert len([name for name in OGBENCH if "pointmaze" in name]) == 8
    assert not set(OGBENCH) & set(TASKS)
    assert find("cube-single-play-v0") is OGBENCH["ogbench:cube-single-play-v0"]
    made = [name for name, task in OGBENCH.items() if "regenerated" in task.variants]
    assert {name.split("-")[0].removeprefix("ogbench:") for name in made} == {
        *("pointmaze", "cube", "scene", "puzzle")
    }


def check_sizes(name):
    task = find(name)
    env = make_single(task)
    assert gymnasium.spec(ogbench.SIZES[name].env).max_episode_steps == task.episode_steps
    observation, info = env.reset(seed=2)
    plain = env.unwrapped._env
    assert plain.num_tasks == task.goal_count == 5
    assert info["task_id"] == plain.cur_task_id == 3
    assert observation["observation"].shape == (task.observation_dim,)
    assert observation["desired_goal"].shape == (task.goal_dim,)
    assert plain.action_space.shape == (task.action_dim,)
    low, high = task.bounds()
    np.testing.assert_array_equal(plain.action_space.low, low)
    np.testing.assert_array_equal(plain.action_space.high, high)
    env.close()


@pytest.mark.parametrize("name", QUICK)
def test_the_table_describes_the_mazes(name):
    check_sizes(name)


@pytest.mark.more
@pytest.mark.parametrize("name", SLOW)
def test_the_table_describes_the_other_environments(name):
    check_sizes(name)


def episode(env, seed, actions):
    observation, _ = env.reset(seed=seed)
    seen = [observation["observation"], observation["desired_goal"]]
    for action in actions:
        observation, *_ = env.step(action)
        seen.append(observation["observation"])
    return np.concatenate(seen)


@pytest.mark.parametrize("name", ["pointmaze-teleport-stitch-v0", "cube-single-play-v0"])
def test_the_same_seed_and_actions_give_the_same_episode(name):
    task = find(name)
    env, other = make_single(task), make_single(task)
    actions = np.random.default_rng(0).uniform(-1, 1, (30, task.action_dim)).astype(np.float32)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = episode(env, 3, actions)
    episode(env, 4, actions[:7])
    np.testing.assert_array_equal(episode(env, 3, actions), first)
    np.testing.assert_array_equal(episode(other, 3, actions), first)
    # The same goal, at another place nearby.
    assert not np.array_equal(episode(other, 8, actions), first)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def straight_to_the_goal(observation, _):
    ahead = observation["desired_goal"] - observation["observation"]
    return np.clip(5 * ahead, -1, 1).astype(np.float32)


def test_no_warning_without_a_display():
    """In a new process, since GLFW is imported once."""
    program = "from merlin.envs.ogbench_env import make_plain; make_plain('cube-single-play-v0')"
    hidden = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "MUJOCO_GL")}
    command = [sys.executable, "-W", "always", "-c", program]
    ended = subprocess.run(command, env=hidden, capture_output=True, text=True, check=True)
    assert "GLFW" not in ended.stderr


def test_an_episode_ends_at_its_goal_and_that_is_success():
    task = find(MEDIUM)
    batch = LocalBatch(task, 2)
    played = rollout(batch, straight_to_the_goal, [2, 0], 200)
    batch.close()
    near = np.linalg.norm(played.achieved_goals - played.desired_goals[:, None], axis=-1) <= 1.0
    np.testing.assert_array_equal(played.success[:, -1], near.any(1))
    assert near.any(1).tolist() == [False, True]
    assert played.lengths[0] == 200
    assert played.lengths[1] == np.flatnonzero(near[1])[0] < 200


def test_what_ended_early_is_not_played_on():
    task = find(MEDIUM)
    batch = LocalBatch(task, 1)
    env = batch._envs[0].unwrapped
    asked = []

    def act(observation, t):
        asked.append(t)
        # Put it next to its goal: the next step ends the episode.
        env._env.set_xy(observation["desired_goal"][0] + 0.1)
        return np.zeros((1, 2), np.float32)

    played = rollout(batch, act, [0], 30)
    batch.close()
    assert asked == [0]
    assert played.lengths.tolist() == [1]
    assert played.rewards[0].tolist() == [1.0] + [0.0] * 29
    assert played.success[0].all()
    assert played.observations.shape == (1, 31, 2)


def test_success_is_told_for_each_goal():
    success = np.array([1.0, 0.0, 1.0, 1.0])
    found = Evaluation(np.zeros(4), success, np.array([1, 2, 1, 2]))
    assert found.goal_success() == {"1": 1.0, "2": 0.5}
    other = Evaluation(np.zeros(4), np.zeros(4), np.array([1, 2, 1, 2]))
    assert summarise([found, other])["goals"] == {"1": 0.5, "2": 0.25}
    assert "goals" not in Evaluation(np.zeros(4), success).summary()


def test_a_dataset_named_in_a_file_needs_no_consent():
    assert choose(MEDIUM, None) is find(MEDIUM)


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("ogbench:pointmaze-medum-navigate-v0", "did you mean ogbench:pointmaze-medium-navigate"),
        ("pointmaze-medum-navigate-v0", "did you mean ogbench:pointmaze-medium-navigate"),
        ("ogbench:visual-antmaze-medium-navigate-v0", "no state-based dataset"),
        ("ogbench:", "no state-based dataset"),
    ],
)
def test_an_unknown_dataset_is_refused(name, fragment):
    with pytest.raises(MerlinError, match=fragment):
        find(name)
