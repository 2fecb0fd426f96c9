"""Environments with mistakes: refused in one sentence, or used rightly all the same."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import merlin
from helpers import odd_envs, own_envs
from merlin.envs.registry import find
from merlin.errors import MerlinError
from merlin.evaluation.evaluate import evaluate

ODD = "helpers.odd_envs:odd/"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Images", r"its observation is Box\(.*must be a vector"),
        ("DiscreteGoal", r"its achieved_goal is Discrete\(5\).*must be a vector"),
        ("Discrete", r"action space is Discrete\(3\).*continuous actions"),
        ("Matrix", "must be a one-dimensional Box"),
        ("NoAction", "must be a one-dimensional Box"),
        ("Fixed", "lower bound of its action space is not below"),
        ("Integers", "its actions are integers"),
        ("Larger", r"observation of shape \(3,\), but its observation space says \(1,\)"),
        ("Nan", "observation with nan, infinity or numbers too large"),
        ("Huge", "numbers too large for float32"),
        ("Words", "no numbers as observation"),
        ("Text", r"info\['is_success'\] is 'False', which is neither true nor false"),
        ("Share", r"is 0\.3, which is neither"),
        ("Several", "neither true nor false; give another key with `success_key`"),
        ("Nothing", "is None, which is neither"),
        ("NoSeed", r"reset\(seed=\.\.\.\) failed \(TypeError"),
        ("TwoEnds", r"its step returned array\(\[False,  True\]\) as terminated"),
        ("NoEnd", "its step returned None as terminated, which is not one number"),
        ("Short", "time limit of 1 step.*`max_steps`"),
        ("Breaks-Exit", r"cannot be made \(SystemExit: 3, in line \d+ of .*odd_envs.py"),
        ("Breaks-Reset", r"failed \(RuntimeError: no robot here, in line \d+ of .*odd_envs.py"),
        ("Breaks-OldReset", "must return an observation and info"),
        ("Breaks-Step", r"step failed \(RuntimeError: robot fell, in line \d+ of .*odd_envs.py"),
        ("Breaks-OldStep", "must return observation, reward, terminated, truncated and info"),
        ("Breaks-ComputeReward", r"compute_reward failed .*\(RuntimeError: no reward"),
    ],
)
def test_what_cannot_be_used_is_refused(name, said):
    with pytest.raises(MerlinError, match=said) as refusal:
        find(f"{ODD}{name}-v0")
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith(f"task {ODD}{name}-v0: ")


def test_every_odd_environment_is_tried():
    cases = test_what_cannot_be_used_is_refused.pytestmark[0].args[1]
    rest = {"WholeGoal", "One", "InPlace", "Drifting", "Strict", "Breaks-Late"}
    rest |= {"AtOnce", "UnseededStart", "UnseededNoise"}
    assert {name for name, _ in cases} | rest == set(odd_envs.ODD)


@pytest.mark.parametrize("name", ["UnseededStart", "UnseededNoise"])
def test_what_cannot_be_repeated_is_said(name, capsys):
    find(f"{ODD}{name}-v0")
    assert "the same seed and actions do not give the same episode again" in capsys.readouterr().err


def test_an_environment_that_can_be_repeated_says_nothing(capsys):
    find("helpers.own_envs:own/Keyed-v0?max_steps=7")
    assert capsys.readouterr().err == ""


def test_episodes_that_end_at_once_have_one_step():
    data = merlin.collect(f"{ODD}AtOnce-v0", "random", episodes=3, workers=1)
    assert np.diff(data.starts).tolist() == [2, 2, 2]
    go = lambda observation, goal, horizon=None, key=None: jnp.zeros(1)  # noqa: E731
    assert set(evaluate(go, f"{ODD}AtOnce-v0", episodes=9).returns) <= {0.0, 1.0}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_environment_that_breaks_later_is_one_sentence(workers):
    task = find(f"{ODD}Breaks-Late-v0?max_steps=30")
    with pytest.raises(MerlinError, match=r"step failed \(RuntimeError: robot fell, in line"):
        merlin.collect(task, "random", episodes=45, workers=workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_arrays_that_the_environment_changes_do_not_change_the_data(workers):
    """The data is that of the environment that copies."""
    options = {"episodes": 45, "seed": 5, "workers": workers}
    data = merlin.collect(f"{ODD}InPlace-v0", "random", **options)
    copied = merlin.collect("helpers.own_envs:own/Keyed-v0", "random", **options)
    assert np.ptp(data.actions) > 0.5
    np.testing.assert_array_equal(data.actions, copied.actions)
    np.testing.assert_array_equal(data.observations, copied.observations)
    np.testing.assert_array_equal(data.desired_goals, copied.desired_goals)


def test_a_goal_that_moves_in_place_is_refused():
    with pytest.raises(MerlinError, match="goal changes within an episode"):
        merlin.collect(f"{ODD}Drifting-v0", "random", episodes=2, workers=1)


def test_bounds_are_kept_to_the_last_digit():
    """0.1 is larger in float32 than in float64."""
    assert float(np.float32(0.1)) > 0.1
    top = lambda observation, goal, horizon=None, key=None: jnp.float32([0.1])  # noqa: E731
    bottom = lambda observation, goal, horizon=None, key=None: -jnp.float32([0.1])  # noqa: E731
    for policy in (top, bottom):
        assert len(evaluate(policy, f"{ODD}Strict-v0", episodes=2).returns) == 2


def test_a_broken_compute_reward_is_not_needed():
    task = find(f"{ODD}Breaks-ComputeReward-v0?goal_reward=1")
    assert task.scoring.goal_reward == 1.0


def test_whole_goals_and_success_in_an_array_are_understood():
    data = merlin.collect(f"{ODD}WholeGoal-v0?args.size=5", "random", episodes=9, workers=1)
    assert data.desired_goals.dtype == np.float32
    assert set(np.unique(data.desired_goals)) <= set(range(-5, 6))
    go = lambda observation, goal, horizon=None, key=None: jnp.zeros(1)  # noqa: E731
    assert evaluate(go, f"{ODD}One-v0", episodes=2).success.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("max_steps=1", "max_steps: 1 is below 2"),
        ("goal_reward=nan", "goal_reward: nan is not a number"),
        ("goal_reward=inf", "goal_reward: inf is not a number"),
        ("goal_reward=1&success_key=is_success", "cannot be combined with success_key"),
        ("args.size=x", "reset.* failed .TypeError"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, said):
    with pytest.raises(MerlinError, match=said):
        find(f"helpers.own_envs:own/Keyed-v0?{options}")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def f(:\n", r"SyntaxError: invalid syntax, in line 1 of .*the_world.py"),
        ("import sys\nsys.exit(4)\n", r"SystemExit: 4, in line 2 of .*the_world.py"),
        ("import not_there\n", "No module named 'not_there'.; the_world needs it, so install it"),
        ("from os import nothing_like_it\n", r"ImportError: .*in line 1 of .*the_world.py"),
    ],
)
def test_a_module_that_cannot_be_imported(tmp_path, monkeypatch, code, said):
    (tmp_path / "the_world.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MerlinError, match=said):
        find("the_world:X-v0")


@pytest.mark.parametrize("name", ["../the_world:X-v0", ".x:X-v0", "a/b:X-v0"])
def test_what_is_no_module(name):
    with pytest.raises(MerlinError, match=re.escape(f"task {name}: ") + ".*not the name of a mod"):
        find(name)


def test_successes_are_recorded_with_the_data():
    """As the environment tells them, since its tolerance is not known."""
    task = find("helpers.own_envs:own/Ends-v0")
    data = merlin.collect(task, "random", episodes=60, workers=1, seed=3)
    told = data.provenance["success"]
    assert told["told_by"] == "info['is_success']"
    ends = data.achieved_goals[data.starts[1:] - 1] - data.desired_goals
    share = float(np.mean(np.abs(ends) <= own_envs.NEAR))
    assert 0.3 < share < 1.0
    assert (told["ever"], told["at_the_end"]) == (share, share)
    stays = merlin.collect("helpers.own_envs:own/Keyed-v0", "random", episodes=60, workers=1)
    told = stays.provenance["success"]
    assert 0.0 < told["at_the_end"] < told["ever"] < 1.0
    assert "success" not in merlin.collect("PointReach", "random", episodes=2).provenance
