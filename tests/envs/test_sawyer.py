"""SawyerReach and SawyerDoor: episodes, control, reward, reset, solvability, frames."""

import pickle
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv
from gymnasium.wrappers import TimeLimit

from merlin.envs import gl
from merlin.envs.sawyer import SawyerDoorEnv, SawyerReachEnv
from merlin.errors import MerlinError

BOTH = pytest.mark.parametrize("make", [SawyerReachEnv, SawyerDoorEnv])


def random_actions(seed, steps):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, 3)).astype(np.float32)


def play(env, seed, actions):
    """All that an episode returns, as one array with a row per state."""
    observation, info = env.reset(seed=seed)
    rows = [[*np.concatenate(list(observation.values())), 0.0, info["is_success"]]]
    for action in actions:
        observation, reward, _, _, info = env.step(action)
        rows.append([*np.concatenate(list(observation.values())), reward, info["is_success"]])
    return np.array(rows)


@BOTH
def test_keeps_gymnasiums_contract(make):
    spec = EnvSpec("Sawyer-v0", entry_point=make, kwargs={"width": 64, "height": 48})
    env = gymnasium.make(spec, render_mode="rgb_array")
    check_env(env.unwrapped)  # warnings are errors here
    env.reset(seed=0)
    assert env.render().shape == (48, 64, 3)
    env.close()


@pytest.mark.parametrize(
    ("make", "observation_size", "goal_size"), [(SawyerReachEnv, 3, 3), (SawyerDoorEnv, 4, 1)]
)
def test_sizes_and_goals(make, observation_size, goal_size):
    env = make()
    goals = np.array([env.reset(seed=seed)[0]["desired_goal"] for seed in range(300)])
    assert env.observation_space["observation"].shape == (observation_size,)
    assert goals.shape == (300, goal_size)
    width = np.subtract(env.goal_high, env.goal_low)
    assert np.all(goals >= np.float32(env.goal_low))
    assert np.all(goals <= np.float32(env.goal_high))
    np.testing.assert_allclose(goals.std(axis=0), width / np.sqrt(12), rtol=0.15)
    np.testing.assert_allclose(goals.mean(axis=0), env.goal_low + width / 2, atol=0.1 * width.max())


@BOTH
def test_same_seed_and_actions_give_the_same_episode_bit_for_bit(make):
    env = make()
    actions = random_actions(1, 40)
    first = play(env, 7, actions)
    # Other episodes in between, the last one broken off with the hand somewhere else.
    play(env, 8, -actions)
    play(env, 9, np.tile(np.float32([0, -1, -1]), (7, 1)))
    np.testing.assert_array_equal(play(env, 7, actions), first)
    np.testing.assert_array_equal(play(make(), 7, actions), first)
    assert len(np.unique(first[:, 0])) > 30, "the hand does not move"


@BOTH
def test_rendering_leaves_the_episode_alone(make):
    actions = random_actions(2, 10)
    expected = play(make(), 3, actions)
    env = make(render_mode="rgb_array", width=16, height=16)
    env.reset(seed=3)
    for row, action in zip(expected[1:], actions, strict=True):
        env.render()
        observation = env.step(action)[0]
        np.testing.assert_array_equal(np.concatenate(list(observation.values())), row[:-2])
    env.close()


@BOTH
def test_a_pickled_copy_continues_the_episode(make):
    env = make(render_mode="rgb_array", width=16, height=16)
    play(env, 4, random_actions(4, 10))
    env.render()
    copy = pickle.loads(pickle.dumps(env))
    for action in random_actions(5, 10):
        original, copied = env.step(action), copy.step(action)
        np.testing.assert_array_equal(original[0]["observation"], copied[0]["observation"])
        np.testing.assert_array_equal(original[0]["desired_goal"], copied[0]["desired_goal"])
    np.testing.assert_array_equal(copy.render(), env.render())
    env.close()
    copy.close()


def test_runs_in_worker_processes():
    actions = random_actions(6, 5)
    # Spawned, since forking a process in which another test started JAX is not safe.
    envs = AsyncVectorEnv([lambda: TimeLimit(SawyerDoorEnv(), 5)] * 2, context="spawn")
    envs.reset(seed=[11, 12])
    for action in actions:
        observation, _, _, truncated, _ = envs.step(np.stack([action, -action]))
    envs.close()
    assert truncated.all()
    alone = play(SawyerDoorEnv(), 12, -actions)
    np.testing.assert_array_equal(observation["observation"][1], alone[-1, :4].astype(np.float32))


def test_reach_starts_below_its_workspace():
    env = SawyerReachEnv()
    starts = [env.reset(seed=seed)[0]["observation"] for seed in (0, 1)]
    np.testing.assert_array_equal(*starts)
    # Held at (0, 0.5, 0.02), fingers on the table.
    np.testing.assert_allclose(starts[0], (0.0, 0.5, 0.03), atol=0.015)
    # The first action, whatever it is, carries the hand into the box.
    hand = env.step(np.float32([0.5, -1, -1]))[0]["observation"]
    np.testing.assert_allclose(hand, (0.01, 0.55, 0.05), atol=0.002)


def test_door_starts_closed_with_the_hook_above_the_gap_behind_the_bar():
    env = SawyerDoorEnv()
    play(env, 0, [np.float32([0, 0, -1])] * 3 + [np.float32([0, -1, 0])] * 5)
    observation, _ = env.reset(seed=1)
    np.testing.assert_allclose(observation["observation"], (-0.05, 0.635, 0.225, 0), atol=0.002)
    assert observation["achieved_goal"] == 0.0
    idle = play(env, 1, np.zeros((20, 3), np.float32))
    assert np.abs(idle[:, 3]).max() < 1e-3, "the door moves by itself"


@BOTH
def test_the_hand_stays_in_its_box(make):
    env = make()
    corners = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T.astype(np.float32)
    for corner in corners:
        env.reset(seed=0)
        for _ in range(25):
            hand = env.step(corner * 10)[0]["observation"][:3]  # actions are clipped to 1
            assert np.all(hand > np.subtract(env.hand_low, 0.01))
            assert np.all(hand < np.add(env.hand_high, 0.01))
        expected = np.where(corner > 0, env.hand_high, env.hand_low)
        if make is SawyerReachEnv:  # nothing is in the way
            np.testing.assert_allclose(hand, expected, atol=0.005)


@BOTH
def test_an_action_moves_the_hand_by_two_centimetres(make):
    env = make()
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.float32([0, -1, 1]))
    before = env.step(np.zeros(3, np.float32))[0]["observation"][:3]
    after = env.step(np.float32([-0.5, 0.25, 0.0]))[0]["observation"][:3]
    np.testing.assert_allclose(after - before, (-0.01, 0.005, 0.0), atol=0.001)


@BOTH
def test_reward_is_vectorised_and_uses_the_plain_distance(make):
    env = make()
    size = len(env.goal_low)
    direction = np.ones(size) / np.sqrt(size)
    goals = np.tile(np.array(env.goal_low), (2, 3, 1))
    distances = np.array([[0.0, 0.059, 0.061], [0.3, -0.059, -0.061]])
    achieved = goals + distances[..., None] * direction
    rewards = env.compute_reward(achieved, goals, {})
    assert rewards.dtype == np.float32
    np.testing.assert_array_equal(rewards, [[0, 0, -1], [-1, 0, -1]])
    assert float(env.compute_reward(achieved[0, 1], goals[0, 1], {})) == 0.0
    assert not np.signbit(rewards[0, 0]), "success is rewarded with -0.0"


def test_door_rewards_more_than_it_calls_success():
    env = SawyerDoorEnv()
    assert (env.tolerance, env.success_tolerance) == (0.06, 0.02)
    seen = set()
    for seed in range(60):
        row = play(env, seed, np.zeros((1, 3), np.float32))[-1]
        distance = abs(row[4] - row[5])
        assert row[6] == (0.0 if distance <= 0.06 else -1.0)
        assert row[7] == float(distance < 0.02)
        seen.add((row[6], row[7]))
    assert seen == {(0.0, 1.0), (0.0, 0.0), (-1.0, 0.0)}


def test_a_proportional_controller_reaches_any_position():
    env = SawyerReachEnv()
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        rewards = []
        for _ in range(50):
            error = observation["desired_goal"] - observation["achieved_goal"]
            observation, reward, *_, info = env.step(np.clip(error / 0.02, -1, 1))
            rewards.append(reward)
        assert np.linalg.norm(observation["desired_goal"] - observation["achieved_goal"]) < 0.005
        assert info["is_success"] == 1.0
        # 14 steps at full speed reach the farthest corner.
        assert rewards[14:] == [0.0] * 36


def pull(observation, goal):
    """Lower the hook behind the bar, then pull until the door is open far enough.

    Near its end the workspace allows wide angles only close to the hinge, hence the move along x.
    """
    _, y, z, angle = observation
    if z > 0.176:
        return np.float32([0, 0, -1])
    speed = np.clip(5 * (goal - angle), -1, 1)
    return np.float32([speed if y < 0.5 else 0, -speed, 0])


@pytest.mark.parametrize("goal", [0.0, 0.1, 0.3, 0.5, 0.7, 0.83])
def test_a_scripted_hook_opens_the_door_to_an_angle_and_holds_it(goal):
    env = SawyerDoorEnv()
    observation, _ = env.reset(seed=0)
    angles = []
    for _ in range(50):
        action = pull(observation["observation"], goal) if goal else np.zeros(3, np.float32)
        observation, *_ = env.step(action)
        angles.append(observation["achieved_goal"][0])
    np.testing.assert_allclose(angles[-10:], goal, atol=0.02)


def test_the_hook_cannot_pass_through_the_bar():
    env = SawyerDoorEnv()
    env.reset(seed=0)
    # In front of the bar, down, against it for as long as it takes, and back.
    moves = [(0, -1, 0)] * 4 + [(0, 0, -1)] * 3 + [(0, 1, 0)] * 8
    for move in moves:
        _, y, _, angle = env.step(np.float32(move))[0]["observation"]
    assert y < 0.61
    assert abs(angle) < 0.02
    for _ in range(8):
        angle = env.step(np.float32([0, -1, 0]))[0]["achieved_goal"][0]
    assert angle < 0.06


@pytest.mark.parametrize(
    ("make", "mean_return", "early", "late"),
    [(SawyerReachEnv, 0.75, 0.011, 0.0335), (SawyerDoorEnv, 2.711, 0.0705, 0.0925)],
)
def test_random_play_is_worth_what_it_is_in_the_published_data(make, mean_return, early, late):
    env = make()
    episodes = [play(env, seed, random_actions(seed, 48)) for seed in range(80)]
    first, last = (0, 3) if make is SawyerReachEnv else (3, 4)
    achieved = np.array(episodes)[:, :, first:last]
    # Actions ignore the goal, so every episode can be judged by many goals.
    goals = np.random.default_rng(0).uniform(env.goal_low, env.goal_high, (5000, last - first))
    curve = 1.0 + np.mean(
        [env.compute_reward(achieved, goal, {}).mean(axis=0) for goal in goals], axis=0
    )
    # The published means of 2,000 episodes have standard errors of 0.07, 0.16, 0.002 to 0.006.
    assert curve @ 0.98 ** np.arange(49) == pytest.approx(mean_return, rel=0.25)
    assert curve[1] == pytest.approx(early, abs=0.01)
    assert curve[48] == pytest.approx(late, abs=0.02)


@BOTH
def test_frames_show_hand_and_goal(make):
    env = make(render_mode="rgb_array", width=84, height=84)
    plain = make(render_mode="rgb_array", width=84, height=84, draw_goal=False)
    frames = {}
    for name, one in (("goal", env), ("plain", plain)):
        one.reset(seed=1)
        frames[name] = one.render()
        for _ in range(6):
            one.step(np.float32([-0.5, -1, 0.5]))
        frames[name, "moved"] = one.render()
    first = frames["plain"]
    assert first.shape == (84, 84, 3)
    assert first.dtype == np.uint8
    assert first.std() > 20, "an empty frame"
    changed = np.abs(frames["plain", "moved"].astype(int) - first).max(axis=-1) > 30
    assert 50 < changed.sum() < 84 * 84 / 2
    goal_pixels = np.abs(frames["goal"].astype(int) - first).max(axis=-1) > 10
    assert 3 < goal_pixels.sum() < 400
    env.reset(seed=1)
    np.testing.assert_array_equal(env.render(), frames["goal"])
    env.close()
    plain.close()
    assert make().render() is None


def test_many_cameras_take_turns():
    small = SawyerReachEnv(render_mode="rgb_array", width=32, height=24)
    large = SawyerDoorEnv(render_mode="rgb_array", width=48, height=48)
    for env in (small, large):
        env.reset(seed=0)
    before = small.render()
    assert large.render().shape == (48, 48, 3)
    np.testing.assert_array_equal(small.render(), before)
    large.close()
    np.testing.assert_array_equal(small.render(), before)
    small.close()
    np.testing.assert_array_equal(small.render(), before)  # reopens
    small.close()


def test_an_environment_that_is_never_closed_makes_no_noise_at_exit():
    program = (
        "from merlin.envs.sawyer import SawyerReachEnv\n"
        "env = SawyerReachEnv(render_mode='rgb_array', width=8, height=8)\n"
        "env.reset(seed=0); env.render()\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr


@pytest.fixture
def forgotten_gl():
    """Let `pick_gl` look again, in the test and after it."""
    gl.pick_gl.cache_clear()
    yield
    gl.pick_gl.cache_clear()


def test_without_opengl_one_sentence_names_the_package(monkeypatch, forgotten_gl):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(gl, "_draws", lambda backend: False)
    with pytest.raises(MerlinError, match="libosmesa6"):
        gl.pick_gl()


@pytest.mark.parametrize(
    ("wanted", "used"), [("osmesa", "osmesa"), ("EGL", "egl"), ("glx", "glfw")]
)
def test_mujoco_gl_decides(monkeypatch, forgotten_gl, wanted, used):
    monkeypatch.setenv("MUJOCO_GL", wanted)
    assert gl.pick_gl() == used


def test_unknown_render_mode_is_refused():
    with pytest.raises(ValueError, match="human"):
        SawyerReachEnv(render_mode="human")


def test_never_ends_an_episode_but_lets_a_time_limit_do_it():
    env = gymnasium.make(
        EnvSpec("Sawyer-v0", entry_point=SawyerReachEnv, max_episode_steps=3),
    )
    env.reset(seed=0)
    flags = [env.step(np.zeros(3, np.float32))[2:4] for _ in range(3)]
    assert flags == [(False, False), (False, False), (False, True)]
