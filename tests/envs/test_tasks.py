"""Every registered task as a Gymnasium goal environment, and environments of other people."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium_robotics.utils import mujoco_utils

import merlin
from merlin.cli import main
from merlin.envs.batch import LocalBatch, make_batch, make_single
from merlin.envs.registry import TASKS, find
from merlin.errors import MerlinError

each_task = pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))


def episode(env, seed, actions):
    """All that an agent sees of an episode."""
    observation, _ = env.reset(seed=seed)
    seen = [np.concatenate([observation[key] for key in sorted(observation)])]
    for action in actions:
        observation, reward, _, _, info = env.step(action)
        flat = [observation[key] for key in sorted(observation)]
        seen.append(np.concatenate([*flat, [reward, info["is_success"]]]))
    return np.concatenate(seen)


def random_actions(task, steps, seed=0):
    size = (steps, task.action_dim)
    return np.random.default_rng(seed).uniform(-1, 1, size).astype(np.float32)


def test_there_are_the_paper_s_ten_tasks():
    sizes = {
        name: (task.observation_dim, task.action_dim, task.goal_dim) for name, task in TASKS.items()
    }
    assert sizes == {
        "PointReach": (2, 2, 2),
        "PointRooms": (2, 2, 2),
        "Reacher": (11, 2, 2),
        "SawyerReach": (3, 3, 3),
        "SawyerDoor": (4, 3, 1),
        "FetchReach": (10, 4, 3),
        "FetchPush": (25, 4, 3),
        "FetchPick": (25, 4, 3),
        "FetchSlide": (25, 4, 3),
        "HandReach": (63, 20, 15),
    }


@each_task
def test_the_registry_describes_the_environment(task):
    env = gymnasium.make(task.env_id)
    observation, _ = env.reset(seed=0)
    assert observation["observation"].shape == (task.observation_dim,)
    assert observation["desired_goal"].shape == (task.goal_dim,)
    assert env.action_space.shape == (task.action_dim,)
    low, high = task.bounds()
    np.testing.assert_array_equal(env.action_space.low, low)
    np.testing.assert_array_equal(env.action_space.high, high)
    assert env.spec.max_episode_steps == task.episode_steps == 50
    for action in random_actions(task, 5):
        observation, *_ = env.step(action)
        achieved = task.achieved(observation["observation"])
        np.testing.assert_allclose(achieved, observation["achieved_goal"], atol=1e-6)
    env.close()


@each_task
def test_gymnasium_accepts_it(task):
    env = gymnasium.make(task.env_id, render_mode="rgb_array", disable_env_checker=True).unwrapped
    env.spec = None  # the checker would otherwise make further ones without a render mode
    with warnings.catch_warnings():
        # Unbounded observation spaces are the robotics environments' own; the rest must be clean.
        warnings.filterwarnings("ignore", message=".*Box observation space.*infinity.*")
        warnings.filterwarnings("ignore", message=".*not within the observation space.*")
        warnings.filterwarnings("ignore", message=".*different than the unwrapped version.*")
        warnings.filterwarnings("ignore", message=".*alternative render modes.*")
        check_env(env, skip_render_check=True)
    env.close()


@each_task
def test_the_same_seed_and_actions_give_the_same_episode(task):
    env, other = make_single(task), make_single(task)
    actions = random_actions(task, 20)
    first = episode(env, 3, actions)
    # Neither what was played before nor which instance plays may matter.
    episode(env, 4, random_actions(task, 7, seed=1))
    np.testing.assert_array_equal(episode(env, 3, actions), first)
    np.testing.assert_array_equal(episode(other, 3, actions), first)
    # Several, because one in ten HandReach goals is the same: the pose at the start.
    assert not all(np.array_equal(episode(other, seed, actions), first) for seed in (5, 6, 7))


@each_task
def test_rewards_are_vectorised_and_follow_the_tolerance(task):
    env = make_single(task).unwrapped
    goals = np.zeros((2, 3, task.goal_dim))
    offsets = np.array([[0.0, 0.5, 0.99], [1.01, 2.0, 10.0]])
    achieved = goals.copy()
    achieved[..., 0] = offsets * task.tolerance
    reward = env.compute_reward(achieved, goals, {})
    np.testing.assert_array_equal(reward, [[0, 0, 0], [-1, -1, -1]])


@each_task
def test_step_reward_is_that_of_the_reached_state(task):
    env = make_single(task).unwrapped
    env.reset(seed=0)
    for action in random_actions(task, 10):
        observation, reward, terminated, truncated, info = env.step(action)
        goals = observation["achieved_goal"], observation["desired_goal"]
        assert reward == env.compute_reward(*goals, info)
        near = task.success_tolerance or task.tolerance
        assert info["is_success"] == float(np.linalg.norm(goals[0] - goals[1]) < near)
        assert not terminated
        assert not truncated


@each_task
def test_it_runs_in_a_vector_and_truncates(task):
    envs = gymnasium.make_vec(task.env_id, num_envs=2)
    observation, _ = envs.reset(seed=0)
    assert observation["observation"].shape == (2, task.observation_dim)
    for action in random_actions(task, 50):
        *_, truncated, _ = envs.step(np.stack([action, action]))
    assert truncated.all()
    envs.close()


@each_task
def test_it_can_be_drawn(task):
    env = gymnasium.make(task.env_id, render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    assert before.dtype == np.uint8
    assert before.shape == (480, 480, 3)
    assert before.std() > 5  # there is something to see
    for _ in range(5):
        env.step(np.ones(task.action_dim, np.float32))
    assert (env.render() != before).any()
    env.close()


def test_the_door_has_two_tolerances():
    env = make_single(TASKS["SawyerDoor"]).unwrapped
    assert (env.tolerance, env.success_tolerance) == (0.06, 0.02)


def test_reacher_shows_its_target_and_fingertip():
    env = make_single(TASKS["Reacher"]).unwrapped
    observation, _ = env.reset(seed=0)
    state = observation["observation"]
    np.testing.assert_array_equal(state[4:6], observation["desired_goal"])
    np.testing.assert_array_equal(state[8:10], observation["achieved_goal"])
    angles = np.arctan2(state[2:4], state[:2])
    elbow = 0.1 * np.array([np.cos(angles[0]), np.sin(angles[0])])
    reach = angles.sum()
    fingertip = elbow + 0.11 * np.array([np.cos(reach), np.sin(reach)])
    np.testing.assert_allclose(state[8:10], fingertip, atol=1e-6)


def test_imports_are_quiet_and_lazy():
    program = (
        "import sys, merlin, gymnasium\n"
        "assert not {'gymnasium_robotics', 'mujoco', 'metaworld', 'jax'} & set(sys.modules)\n"
        "for name in ('FetchPush', 'HandReach', 'SawyerDoor', 'Reacher'):\n"
        "    gymnasium.make(f'merlin/{name}-v0').reset(seed=0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# The others are played by worker processes, which takes longer.
QUICK = ("PointReach", "PointRooms")


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(task, marks=[] if name in QUICK else [pytest.mark.more], id=name)
        for name, task in TASKS.items()
    ],
)
def test_every_task_trains_from_the_command_line(task, tmp_path, capsys):
    out = tmp_path / "run"
    looks = ["--eval-episodes", "4", "--final-episodes", "4"]
    data = ["--variant", "random", "--episodes", "10"]
    train = ["--algo", "merlin", "--updates", "50", "--seeds", "2", "--out", str(out), "--json"]
    main(["train", task.name, *data, *train, *looks])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    tuned = task.tuned["random"].values("own")
    assert {name: result["settings"][name] for name in tuned} == tuned
    assert [row["seed"] for row in result["seeds"]] == [0, 1]
    assert 0.0 <= result["final"]["return"]["mean"] <= 31.8
    assert (out / "seed-1" / "policy.safetensors").stat().st_size > 100_000


@pytest.mark.parametrize("name", ["FetchReach", "FetchPush", "HandReach"])
def test_the_quick_way_to_read_joints_gives_the_same_numbers(name):
    """Ours against Gymnasium-Robotics' own, which looks every joint up by its name."""
    quick, slow = (make_single(TASKS[name]).unwrapped for _ in range(2))
    slow._utils = mujoco_utils
    assert quick._utils is not slow._utils
    actions = random_actions(TASKS[name], 30)
    np.testing.assert_array_equal(episode(quick, 3, actions), episode(slow, 3, actions))


@pytest.mark.parametrize("name", ["FetchReach", "SawyerDoor"])
def test_batches_do_not_depend_on_the_number_of_workers(name):
    task = TASKS[name]
    actions = np.random.default_rng(0).uniform(-1, 1, (5, 3, task.action_dim)).astype(np.float32)

    def play(batch):
        try:
            seen = [batch.reset([7, 8, 9])["observation"]]
            for action in actions:
                answer = batch.step(action)
                seen += [answer.observation["observation"], answer.reward, answer.success]
        finally:
            batch.close()
        return seen

    one, two = (play(make_batch(task, 3, workers)) for workers in (1, 2))
    for expected, found in zip(one, two, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_collected_data_does_not_depend_on_the_number_of_workers():
    """Nor on how many more episodes were asked for."""
    one = merlin.collect("FetchReach", "random", episodes=25, seed=1, workers=1)
    two = merlin.collect("FetchReach", "random", episodes=27, seed=1, workers=2)
    for name in ("observations", "actions", "achieved_goals", "desired_goals"):
        own = getattr(one, name)
        np.testing.assert_array_equal(getattr(two, name)[: len(own)], own)


@pytest.fixture
def ring(tmp_path, monkeypatch):
    """The environment that docs/tasks.md shows."""
    page = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    assert code.startswith("# ring_world.py")
    (tmp_path / "ring_world.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "ring_world:own/Ring-v0"


def test_your_own_environment_is_a_task(ring):
    task = find(ring)
    assert (task.observation_dim, task.action_dim, task.goal_dim) == (2, 1, 2)
    assert task.episode_steps == 20
    assert (task.action_low, task.action_high) == ((-0.5,), (0.5,))
    data = merlin.collect(task, "random", episodes=300, workers=2)
    assert data.lengths.tolist() == [20] * 300
    run = merlin.train(merlin.Merlin(hidden=(64, 64)), data, updates=500, final_episodes=64)
    assert run.result.task == ring
    # Random turning is at the goal in about a tenth of the steps.
    assert run.result.final["success"]["mean"] > 0.8


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("no_such_module:Env-v0", "no_such_module"),
        ("gymnasium:NoSuch-v0", "NoSuch"),
        ("FetchPsuh", "did you mean FetchPush?"),
        ("CartPole-v1", "is not a goal environment"),
    ],
)
def test_what_is_no_task_is_refused(name, fragment):
    with pytest.raises(MerlinError, match=r"task") as refusal:
        find(name)
    assert fragment in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_reward_that_does_not_tell_is_refused():
    task = TASKS["Reacher"]
    batch = LocalBatch(task, 1)
    batch.reset([0])
    batch._envs[0].step = lambda _: ({}, -0.3, False, False, {})
    with pytest.raises(MerlinError, match="is_success"):
        batch.step(np.zeros((1, 2), np.float32))
