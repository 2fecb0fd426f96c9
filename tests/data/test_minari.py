"""Minari data: what others recorded, and what is written for them."""

import gc
import importlib
import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import gymnasium
import minari
import numpy as np
import numpy.testing
import pytest

import merlin
from helpers.commands import merlin_command
from helpers.format_data import (
    BOX,
    change_minari,
    episodes,
    replace_by,
    write,
)
from merlin.data import describe, load, save_as
from merlin.data.formats import is_data

FEW = ["--updates", "4", "--set", "hidden=16", "batch_size=16", "--eval-every", "4"]
FEW += ["--eval-episodes", "2", "--final-episodes", "2"]


def test_minari_itself_loads_what_we_write(rng, tmp_path):
    data = merlin.collect("PointReach", "random", episodes=5)
    name = save_as(data, "minari:mine/point-v0")
    theirs = minari.load_dataset("mine/point-v0")
    assert (theirs.total_episodes, theirs.total_steps) == (5, 245)
    assert theirs.env_spec.id == "merlin/PointReach-v0"
    assert theirs.spec.dataset_name == "point"
    assert "mine/point-v0" in minari.list_local_datasets()
    env = theirs.recover_environment().unwrapped
    for index, episode in enumerate(theirs.iterate_episodes()):
        ours = data.episode(index)
        np.testing.assert_array_equal(episode.observations["observation"], ours.observations)
        np.testing.assert_array_equal(episode.observations["achieved_goal"], ours.achieved_goals)
        assert (episode.observations["desired_goal"] == ours.desired_goal).all()
        np.testing.assert_array_equal(episode.actions, ours.actions)
        seen = {key: array[1:] for key, array in episode.observations.items()}
        rewards = env.compute_reward(seen["achieved_goal"], seen["desired_goal"], {})
        np.testing.assert_array_equal(episode.rewards, rewards)
        assert episode.truncations.tolist() == [False] * 48 + [True]
        assert not episode.terminations.any()
    for same in (name, "mine/point-v0", tmp_path / "store" / "mine" / "point-v0"):
        assert load(same).fingerprint() == data.fingerprint()
        assert is_data(str(same))
    assert load("mine/point-v0").source == name


def record(env_id, name, lengths):
    """Random episodes as Minari's own collector records them."""
    with warnings.catch_warnings():
        # What Minari would like to know of the authors, and folders that it does not close.
        warnings.simplefilter("ignore")
        env = minari.DataCollector(gymnasium.make(env_id, max_episode_steps=50))
        env.action_space.seed(0)
        for seed, steps in enumerate(lengths):
            env.reset(seed=seed)
            for _ in range(steps):
                env.step(env.action_space.sample())
        env.create_dataset(name)
        env.close()
        del env
        gc.collect()
    return f"minari:{name}"


def test_only_datasets_are_overwritten(rng, tmp_path, minari_store):
    folder = merlin.data.formats.minari.store() / "mine" / "a-v0"
    folder.mkdir(parents=True)
    (folder / "precious").write_text("")
    with pytest.raises(merlin.MerlinError, match="is no Minari dataset and is not overwritten"):
        save_as(episodes(rng), "minari:mine/a-v0", overwrite=True)
    assert [path.name for path in folder.iterdir()] == ["precious"]


@pytest.fixture
def collected(minari_store):
    return record("merlin/FetchReach-v0", "fetch/reach-v0", (20, 50, 50))


@pytest.mark.parametrize(
    "env_id", ["FetchReach-v4", pytest.param("PointMaze_UMaze-v3", marks=pytest.mark.more)]
)
def test_the_environment_of_other_peoples_recordings_is_suggested(minari_store, tmp_path, env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of gymnasium-robotics' older environments
        gymnasium.register_envs(importlib.import_module("gymnasium_robotics"))
    name = record(env_id, "them/recorded-v0", (6, 8))
    assert load(name).provenance == {
        "read_from": name,
        "environment": f"gymnasium_robotics:{env_id}",
    }
    folder = tmp_path / "my data"
    assert merlin_command("convert", name, folder).returncode == 0
    for data in (name, folder):
        printed = merlin_command("info", data)
        assert printed.returncode == 0, printed.stderr
        assert f"recorded in gymnasium_robotics:{env_id}, 2 episodes" in printed.stdout
        hint = f"pass --task gymnasium_robotics:{env_id} to evaluate in it."
        assert hint in printed.stdout
    # What is suggested works.
    task = hint.split()[2]
    assert f"{folder}: {task}, 2 episodes" in merlin_command("info", folder, "--task", task).stdout


@pytest.mark.parametrize(
    ("spec", "environment"),
    [
        (
            {"id": "own/Ring-v0", "entry_point": "never_imported.envs:Ring"},
            "never_imported:own/Ring-v0",
        ),
        ({"id": "Ring-v0", "entry_point": "__main__:Ring"}, "Ring-v0"),
        ({"id": "Ring-v0", "entry_point": None}, "Ring-v0"),
        ({"id": "Ring-v0; rm -rf ~", "entry_point": "os:system"}, None),
        ({"id": 3}, None),
        ([], None),
    ],
)
def test_a_recorded_environment_is_text_that_is_never_imported(
    rng, tmp_path, monkeypatch, spec, environment
):
    (tmp_path / "never_imported.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    home = Path(write(episodes(rng), tmp_path, "minari")) / "data" / "metadata.json"
    about = {**json.loads(home.read_text()), "env_spec": json.dumps(spec)}
    del about["merlin"]
    home.write_text(json.dumps(about))
    data = load(tmp_path / "data")
    assert data.provenance.get("environment") == environment
    hint = describe.how_to_evaluate(data)
    assert "never_imported" not in sys.modules
    if environment is None:
        assert hint is None
    else:
        module = "" if ":" in environment else "MODULE:"
        assert hint.startswith(f"pass `task='{module}{environment}'` to evaluate in it")


def test_info_counts_successes_of_own_tasks_where_it_can(rng, tmp_path, call):
    data = replace(episodes(rng), task="own:Ring-v0")
    ends = data.starts[1:] - 1
    data.achieved_goals[ends[:2]] = data.desired_goals[:2] + np.float32(0.05)
    folder = save_as(data, tmp_path / "data")
    text = call("info", folder).out
    assert (
        "successes are not counted, since the distance at which a goal counts as reached is" in text
    )
    text = call("info", folder, "--tolerance", "0.1").out
    assert "goal reached at the end of 66.7% of them" in text
    assert "not counted" not in text
    found = json.loads(call("info", folder, "--tolerance", "0.1", "--json").out)
    assert found["reached"]["at_the_end"] == pytest.approx(2 / 3)
    with pytest.raises(SystemExit):
        call("info", folder, "--tolerance", "0")
    told = {"success": {"ever": 1.0, "at_the_end": 0.25, "told_by": "the robot"}}
    folder = save_as(replace(data, provenance=told), tmp_path / "told")
    assert "at the end of 25.0% of them (reported by the robot)" in call("info", folder).out


@pytest.mark.parametrize(
    ("rewards", "infos", "shares"),
    [
        ([[-1, 0, -1], [-1, -1, 0]], None, (1.0, 0.5, "rewards of 0")),
        ([[0, 1, 0], [0, 0, 0]], None, (0.5, 0.0, "rewards of 1")),
        ([[0, 0, 0], [0, 0, 0]], None, None),  # failure or success? nobody knows
        ([[-1, -1, -1], [-1, -1, -1]], None, None),
        ([[-0.3, 0, -1], [-1, -1, 0]], None, None),
        ([[-1, 0, -1], [-1, -1, 0]], [[0, 0, 1], [0, 0, 0]], (0.5, 0.5, "infos/is_success")),
    ],
)
def test_successes_that_minari_recorded(rng, tmp_path, rewards, infos, shares):
    home = Path(write(episodes(rng, (4, 4)), tmp_path, "minari"))

    def change(file):
        for number, values in enumerate(rewards):
            replace_by(f"episode_{number}/rewards", np.array(values, float))(file)
            if infos:
                file[f"episode_{number}/infos/is_success"] = np.array(infos[number], bool)

    change_minari(home, change, merlin=None)
    found = describe.describe(load(home)).get("reached")
    keys = ("ever", "at_the_end", "told_by")
    assert found == (None if shares is None else dict(zip(keys, shares, strict=True)))


def test_training_without_a_task_says_where_to_evaluate(rng, tmp_path, call):
    about = {"environment": "their_robots:Reach-v1"}
    folder = save_as(replace(episodes(rng), provenance=about), tmp_path / "data")
    printed = call("train", folder, "--out", tmp_path / "run", *FEW)
    assert "pass --task their_robots:Reach-v1 to evaluate in it." in printed.err
    assert "final: action error" in printed.out  # on held-out episodes


@pytest.mark.more
def test_training_on_what_minari_collected(collected, tmp_path, call):
    data = load(collected)
    assert (data.task, data.lengths.tolist()) == ("FetchReach", [21, 51, 51])
    assert (data.action_low.tolist(), data.action_high.tolist()) == ([-1] * 4, [1] * 4)
    found = json.loads(
        call("train", collected, "--out", tmp_path / "run", *FEW, "--json").out.splitlines()[-1]
    )
    assert (found["task"], found["updates"]) == ("FetchReach", 4)
    assert "final" in found


def test_plain_minari_observations_without_bounds(rng, tmp_path):
    """Their goals are the states or a part of them, their bounds those of the data."""
    home = Path(write(episodes(rng, (4, 6), goal=False), tmp_path, "minari"))
    states = [rng.normal(size=(n, 5)) for n in (4, 6)]

    def change(file):
        for number, array in enumerate(states):
            replace_by(f"episode_{number}/observations", array)(file)
            file[f"episode_{number}/actions"][:, 1] = 3.0  # never changes

    endless = {**BOX, "low": [-np.inf] * 2, "high": [np.inf] * 2}
    five = {**BOX, "shape": [5], "low": [-9] * 5, "high": [9] * 5}
    spaces = {"observation_space": json.dumps(five), "action_space": json.dumps(endless)}
    change_minari(home, change, **spaces)
    data = load(home, phi="1:3")
    np.testing.assert_array_equal(data.achieved_goals, np.concatenate(states)[:, 1:3].astype("f4"))
    assert load(home).achieved_goals.shape == (10, 5)
    assert data.desired_goals is None
    first = data.actions[:, 0]
    assert (data.action_low.tolist(), data.action_high.tolist()) == (
        [first.min(), 2.0],
        [first.max(), 4.0],
    )
