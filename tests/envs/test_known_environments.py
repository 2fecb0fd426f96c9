"""Environments that many people use, from the command to the score.

Every score is compared with a plain loop that replays the recorded actions in the same episodes and
scores them without merlin. It decides by distances, and checks itself against `info` and
`compute_reward` in every step.
"""

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from merlin.envs.registry import find
from merlin.evaluation.evaluate import FINAL_SEED, evaluate, play
from merlin.training.runs import load_policy

COMMAND = str(Path(sys.executable).with_name("merlin"))
EPISODES = 20
FEW_EPISODES = 5
"""Enough to compare scores to the digit; the others must also have some successes."""
FEW = ["--updates", 20, "--eval-episodes", 5, "--final-episodes", 5, "--set", "hidden=32,32"]


def distance(seen):
    return np.linalg.norm(seen["achieved_goal"] - seen["desired_goal"], axis=-1)


def panda(env, seen, worth, info):
    reached = distance(seen) < 0.05
    assert (worth, bool(info["is_success"])) == (reached - 1.0, reached)
    return reached


def maze(env, seen, worth, info):
    reached = distance(seen) <= 0.45
    assert (worth, bool(info["success"])) == (float(reached), reached)
    return reached


def fetch(env, seen, worth, info):
    reached = distance(seen) < 0.05
    assert worth == -distance(seen)
    assert bool(info["is_success"]) == reached
    return reached


def parking(env, seen, worth, info):
    reached = worth > -env.unwrapped.config["success_goal_reward"]
    assert bool(info["is_success"]) == reached
    return reached


# Options, time limit, and the rule for reaching a goal.
APART = ("panda_gym:PandaReach-v3", "gymnasium_robotics:PointMaze_UMaze-v3")
"""Each command is a process of its own, as a user starts it; the others share the test's."""
KNOWN = {
    "panda_gym:PandaReach-v3": ([], 50, panda),
    "gymnasium_robotics:PointMaze_UMaze-v3": ([], 300, maze),
    "gymnasium_robotics:AntMaze_UMaze-v5": ([], 700, maze),
    "gymnasium_robotics:FetchReachDense-v4": ([], 50, fetch),
    "highway_env:parking-v0": (["--max-steps", 40], 40, parking),
}


def played_plainly(env_id, actions, steps, rule):
    """Replay recorded actions; returns, successes, observations and goals of every step."""
    env = gymnasium.make(env_id, max_episode_steps=-1, disable_env_checker=True)
    returns, successes, told = [], [], []
    for number, sequence in enumerate(actions):
        seen, _ = env.reset(seed=FINAL_SEED + number)
        total, reached = 0.0, False
        for step in range(steps):
            told.append((number, step, seen["observation"], seen["desired_goal"]))
            seen, _, terminated, truncated, info = env.step(sequence[step])
            worth = env.unwrapped.compute_reward(seen["achieved_goal"], seen["desired_goal"], info)
            reached = bool(rule(env, seen, worth, info))
            total += 0.98**step * reached
            if terminated or truncated:
                break
        returns.append(total)
        successes.append(float(reached))
    env.close()
    return np.array(returns), np.array(successes), told


def run(*arguments):
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def skip_unless_installed(name):
    module = name.partition(":")[0]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed; the extra `dev` brings it")


@pytest.mark.more
@pytest.mark.filterwarnings("ignore")  # of the environments
@pytest.mark.parametrize("name", KNOWN)
def test_collect_train_and_eval_agree_with_a_plain_loop(name, tmp_path, monkeypatch, call):
    skip_unless_installed(name)
    monkeypatch.chdir(tmp_path)
    command = run if name in APART else lambda *arguments: call(*arguments).out
    options, steps, rule = KNOWN[name]
    command("collect", name, *options, "--episodes", 5, "--out", "data")
    command("train", "data", "--task", name, *FEW, "--algo", "merlin", "--out", "run")
    asked = ["eval", "run", "--task", name, "--episodes", FEW_EPISODES, "--json"]
    told = json.loads(command(*asked).splitlines()[-1])

    importlib.import_module(name.partition(":")[0])
    task = find(f"{name}?max_steps={steps}")
    policy = load_policy(tmp_path / "run" / "seed-0" / "policy.safetensors")
    scores = evaluate(policy, task, episodes=FEW_EPISODES)
    actions = play(policy, task, episodes=FEW_EPISODES).actions
    returns, successes, seen = played_plainly(task.env_id, actions, steps, rule)
    np.testing.assert_array_equal(scores.returns, returns)
    np.testing.assert_array_equal(scores.success, successes)
    assert told["success"]["mean"] == successes.mean()
    assert told["return"]["mean"] == returns.mean()
    # The actions are those of the policy for what the plain loop saw and wanted.
    for number, step, observation, goal in seen[:: max(1, len(seen) // 50)]:
        own = policy(np.float32(observation), np.float32(goal))
        np.testing.assert_allclose(actions[number, step], own, atol=1e-4)


def drive(observation, goal):
    """Forwards or backwards, whichever brings the car nearer, turning towards the goal."""
    away, heading = goal[:2] - observation[:2], observation[4:6]
    ahead, aside = jnp.dot(away, heading), heading[0] * away[1] - heading[1] * away[0]
    return jnp.stack([jnp.sign(ahead) * 0.5, jnp.sign(ahead) * aside * 5])


EASY_PARKING, EASY_ANT = "helpers.easy_parking:easy/Parking-v0", "helpers.easy_ant:easy/Ant-v0"
EASY = {EASY_PARKING: ("highway_env", 30, parking), EASY_ANT: ("gymnasium_robotics", 60, maze)}
CONTROLLERS = {
    EASY_PARKING: drive,
    EASY_ANT: lambda o, g: jnp.sin(jnp.arange(8.0) + 10 * o[0]),
    "panda_gym:PandaReach-v3": lambda o, g: 5 * (g - o[:3]),
    "gymnasium_robotics:PointMaze_UMaze-v3": lambda o, g: 5 * (g - o[:2]) - o[2:],
    "gymnasium_robotics:FetchReachDense-v4": lambda o, g: jnp.append(8 * (g - o[:3]), 0.0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [n if n == EASY_ANT else pytest.param(n, marks=pytest.mark.more) for n in CONTROLLERS],
)
def test_successes_agree_where_there_are_some(name):
    module, steps, rule = EASY[name] if name in EASY else (name, *KNOWN[name][1:])
    skip_unless_installed(module)

    def policy(observation, goal, horizon=None, key=None):
        return jnp.clip(CONTROLLERS[name](observation, goal), -1.0, 1.0)

    importlib.import_module(name.partition(":")[0])
    task = find(name)
    scores = evaluate(policy, task, episodes=EPISODES)
    actions = play(policy, task, episodes=EPISODES).actions
    returns, successes, _ = played_plainly(task.env_id, actions, steps, rule)
    np.testing.assert_array_equal(scores.returns, returns)
    np.testing.assert_array_equal(scores.success, successes)
    assert successes.mean() >= 0.3
    assert returns.min() < returns.max()
