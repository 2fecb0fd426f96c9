"""Formats: nothing is lost on the way there and back."""

import io
import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.testing
import pytest

import merlin
from helpers.format_data import (
    assert_same,
    buffer,
    episodes,
    maze,
    pickled,
    saved,
    write,
)
from merlin.cli import main
from merlin.data import describe, load, save_as
from merlin.data.formats import FORMATS, format_of, is_data
from merlin.errors import MerlinError

ANY_LENGTH = ("ogbench", "minari", "native")
FEW = [
    "--algo",
    "merlin",
    "--updates",
    "4",
    "--set",
    "hidden=16",
    "batch_size=16",
    "--eval-every",
    "4",
]
FEW += ["--eval-episodes", "2", "--final-episodes", "2", "--log-every", "2"]


@pytest.mark.parametrize("image", [False, True])
@pytest.mark.parametrize("second", FORMATS)
@pytest.mark.parametrize("first", FORMATS)
def test_what_is_written_is_read_and_written_on(rng, tmp_path, first, second, image):
    data = episodes(rng, image=image)
    once = load(write(data, tmp_path, first))
    assert_same(once, data)
    assert_same(load(write(once, tmp_path, second, "again")), data)
    assert once.fingerprint() == data.fingerprint()


@pytest.mark.parametrize("goal", [False, True])
@pytest.mark.parametrize("form", ANY_LENGTH)
def test_episodes_of_any_length_with_and_without_goals(rng, tmp_path, form, goal):
    data = episodes(rng, (2, 9, 4), goal=goal)
    bounds = np.array([-1.0, -2.0], np.float32), np.array([3.0, 1.5], np.float32)
    data = replace(data, action_low=bounds[0], action_high=bounds[1])
    assert_same(load(write(data, tmp_path, form)), data)


@pytest.mark.parametrize("form", ["minari", "native"])
def test_these_formats_keep_what_is_known_of_the_data(rng, tmp_path, form):
    about = {"task": "FetchReach", "variant": "expert", "provenance": {"robot": "arm 7"}}
    found = load(write(replace(episodes(rng), **about), tmp_path, form))
    assert {key: getattr(found, key) for key in about} == about


@pytest.mark.parametrize("form", FORMATS)
def test_the_source_loads_the_same_data_again(rng, tmp_path, form, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = write(episodes(rng), Path(), form)
    data = load(name)
    assert Path(data.source).is_absolute()
    monkeypatch.chdir("/")
    assert load(data.source).fingerprint() == data.fingerprint()


def test_formats_are_told_by_name_and_by_what_is_there(rng, tmp_path):
    data = episodes(rng)
    for name, form in (("a.pkl", "wgcsl"), ("a.npz", "ogbench"), ("a", "native")):
        assert format_of(save_as(data, tmp_path / name)) == form
        assert is_data(str(tmp_path / name))
    assert format_of(write(data, tmp_path, "minari", "m")) == "minari"
    # A folder is a folder, whatever it is called.
    assert format_of(save_as(data, tmp_path / "b.npz", format="native")) == "native"
    assert load(tmp_path / "b.npz").fingerprint() == data.fingerprint()
    assert not is_data("PointReach")
    with pytest.raises(MerlinError, match="none is called 'csv'"):
        save_as(data, tmp_path / "c", format="csv")


@pytest.mark.parametrize("name", ["a.pkl", "a.npz", "a", "minari:mine/a-v0"])
def test_overwriting_must_be_asked_for_and_leaves_nothing_behind(rng, tmp_path, name):
    name = name if ":" in name else str(tmp_path / name)
    first, second = episodes(rng), episodes(rng)
    save_as(first, name)
    with pytest.raises(MerlinError, match="already exists"):
        save_as(second, name)
    save_as(second, name, overwrite=True)
    assert load(name).fingerprint() == second.fingerprint()
    assert not list(tmp_path.rglob(".*"))


# The benchmark's pickles


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_of_every_protocol_and_number_type(rng, tmp_path, protocol):
    content = buffer(rng)
    content["o"] = np.asfortranarray(content["o"])
    content["ag"] = content["ag"].astype(">f8")
    content["u"] = np.sign(content["u"]).astype(np.int8)
    data = load(pickled(tmp_path / "buffer.pkl", content, protocol))
    assert (len(data), data.lengths.tolist()) == (3, [5, 5, 5])
    flat = {key: array.reshape(-1, array.shape[2]) for key, array in content.items()}
    np.testing.assert_array_equal(data.observations, flat["o"].astype(np.float32))
    np.testing.assert_array_equal(data.actions, flat["u"])
    np.testing.assert_array_equal(data.achieved_goals, flat["ag"].astype(np.float32))
    np.testing.assert_array_equal(data.desired_goals, content["g"][:, 0].astype(np.float32))
    assert (data.action_low.tolist(), data.action_high.tolist()) == ([-1, -1], [1, 1])


def test_pickles_of_older_numpy(rng, tmp_path):
    content = buffer(rng)
    text = pickle.dumps({**content, "reward": np.float64(0.5)}, protocol=2)
    assert b"numpy._core" in text
    path = tmp_path / "buffer.pkl"
    path.write_bytes(text.replace(b"numpy._core", b"numpy.core"))
    assert len(load(path)) == 3


def test_pickled_actions_beyond_one_widen_the_bounds(rng, tmp_path):
    content = buffer(rng)
    content["u"][1, 2, 0] = -2.5
    data = load(pickled(tmp_path / "buffer.pkl", content))
    assert (data.action_low.tolist(), data.action_high.tolist()) == ([-2.5, -1], [1, 1])


def test_what_a_pickle_cannot_hold_is_refused(rng, tmp_path):
    with pytest.raises(MerlinError, match=r"d\.pkl: this format needs desired goals"):
        save_as(episodes(rng, goal=False), tmp_path / "d.pkl")
    with pytest.raises(MerlinError, match="episode 1 has 4 states and episode 0 has 6"):
        save_as(episodes(rng, (6, 4)), tmp_path / "d.pkl")
    assert not list(tmp_path.iterdir())


def test_an_archive_as_ogbench_writes_it(rng, tmp_path):
    content = maze(rng)
    data = load(saved(tmp_path / "maze.npz", content))
    assert data.starts.tolist() == [0, 4, 7]
    np.testing.assert_array_equal(data.observations, content["observations"])
    np.testing.assert_array_equal(data.actions, content["actions"][[0, 1, 2, 4, 5]])
    np.testing.assert_array_equal(data.achieved_goals, content["observations"])
    assert data.desired_goals is None
    assert data.task is None


@pytest.mark.parametrize(
    ("phi", "kept", "text"),
    [
        ("0:2", [0, 1], "0:2"),
        ("4,0", [4, 0], "4,0"),
        ("2", [2], "2:3"),
        ([1, 2, 3], [1, 2, 3], "1:4"),
    ],
)
def test_phi_says_which_part_of_a_state_is_its_goal(rng, tmp_path, phi, kept, text):
    content = maze(rng)
    path = saved(tmp_path / "maze.npz", content)
    data = load(path, phi=phi)
    np.testing.assert_array_equal(data.achieved_goals, content["observations"][:, kept])
    assert data.source == f"{path}#phi={text}"
    assert load(data.source).fingerprint() == data.fingerprint()
    assert data.provenance == {"read_from": data.source}


@pytest.mark.parametrize(
    "phi", ["", "a", "2:2", "3:1", "-1", "0:2:1", "0:999999", "0,,1", [-1], []]
)
def test_a_phi_that_is_none_is_refused(rng, tmp_path, phi):
    path = saved(tmp_path / "maze.npz", maze(rng))
    with pytest.raises(MerlinError, match=r"phi .*: does not name columns of a state"):
        load(path, phi=phi)


def test_a_phi_that_does_not_fit_is_refused(rng, tmp_path):
    path = saved(tmp_path / "maze.npz", maze(rng))
    with pytest.raises(MerlinError, match=r"phi 3:6: .*maze\.npz has states of only 5 numbers"):
        load(path, phi="3:6")
    for form in FORMATS:
        name = write(episodes(rng), tmp_path, form, f"with-{form}")
        with pytest.raises(MerlinError, match="records the achieved goals itself"):
            load(name, phi="0:2")


# Whatever is broken


def test_a_buffer_trains_with_the_task_named(tmp_path, call):
    data = merlin.collect("FetchPush", "random", episodes=4, workers=1)
    path = save_as(data, tmp_path / "buffer.pkl")
    about = json.loads(
        call(
            "train", path, "--task", "FetchPush", "--variant", "random", *FEW,
            "--out", tmp_path / "run", "--json",
        ).out.splitlines()[-1]
    )  # fmt: skip
    assert about["task"] == "FetchPush"
    assert about["settings"]["hindsight_ratio"] == 0.2  # tuned for the task
    assert "final" in about


def test_data_without_desired_goals_trains_and_says_so(tmp_path, call):
    data = replace(merlin.collect("PointReach", "random", episodes=4), desired_goals=None)
    path = save_as(data, tmp_path / "point.npz")
    # The tuned value would ask for desired goals.
    about = ["train", path, "--task", "PointReach", "--variant", "expert", *FEW]
    printed = call(*about, "--out", tmp_path / "run", "--json")
    said = [line for line in printed.err.splitlines() if "hindsight_ratio" in line]
    assert said == ["the data has no desired goals: training with hindsight_ratio=1"]
    result = json.loads(printed.out.splitlines()[-1])
    assert result["settings"]["hindsight_ratio"] == 1.0
    assert "final" in result


def test_phi_survives_a_resume(rng, tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "maze.npz", maze(rng, (8, 9)))
    start = ["train", "maze.npz", "--phi", "0:2", "--checkpoint-every", "2"]
    call(*start, *FEW, "--out", "whole", "--updates", "8")
    call(*start, *FEW, "--out", "parts")
    monkeypatch.chdir("/")
    call("train", "--out", tmp_path / "parts", "--resume", "--updates", "8")
    config = json.loads((tmp_path / "parts" / "run.json").read_text())
    assert config["data"]["path"] == f"{tmp_path}/maze.npz#phi=0:2"
    policies = [tmp_path / run / "seed-0" / "policy.safetensors" for run in ("whole", "parts")]
    assert policies[0].read_bytes() == policies[1].read_bytes()
    assert merlin.load_run(tmp_path / "parts").policy(np.zeros(5), np.zeros(2)).shape == (2,)


def test_convert_from_format_to_format(tmp_path, call):
    data = merlin.collect("PointReach", "random", episodes=4)
    first = save_as(data, tmp_path / "buffer.pkl")
    steps = [tmp_path / "a.npz", "minari:mine/point-v0", tmp_path / "folder"]
    for source, destination in zip([first, *steps[:-1]], steps, strict=True):
        said = call("convert", source, destination, "--task", "PointReach").out
        assert said.startswith(f"{destination}: PointReach")
    assert load(steps[-1]).fingerprint() == data.fingerprint()
    again = ["convert", first, tmp_path / "folder", "--task", "PointReach", "--variant", "expert"]
    found = json.loads(call(*again, "--overwrite", "--json").out)
    assert (found["source"], found["path"]) == (first, str(tmp_path / "folder"))
    assert (found["task"], found["variant"], found["episodes"]) == ("PointReach", "expert", 4)
    there = load(tmp_path / "folder")
    assert (there.task, there.variant) == ("PointReach", "expert")
    assert there.provenance == {"read_from": first}


# Descriptions


def test_returns_are_those_of_an_evaluation(rng):
    """Worked out by hand: at the goal in the states 2 and 3 of four, and in none of three."""
    data = episodes(rng, (4, 3))
    achieved = np.array([[9], [9], [0], [0.5], [0], [9], [9]], np.float32)
    data = replace(
        data, task="PointReach", achieved_goals=achieved, desired_goals=np.zeros((2, 1), "f4")
    )
    about = describe.describe(data)
    assert about["reached"] == {"ever": 1.0, "at_the_end": 0.5}
    assert about["returns"]["mean"] == pytest.approx((0.98 + 0.98**2) / 2)
    assert about["returns"]["std"] == pytest.approx((0.98 + 0.98**2) / 2)
    assert about["returns"]["quantiles"]["0.5"] == pytest.approx(about["returns"]["mean"])
    assert about["length_histogram"] == {"edges": [3, 4, 5], "counts": [1, 1]}


def test_a_column_that_hardly_varies_is_described(point_data):
    states = point_data.observations.copy()
    states[:, 0] = np.float32(1.5)
    states[3, 0] = np.nextafter(np.float32(1.5), np.float32(2))
    about = describe.describe(replace(point_data, observations=states))
    column = about["ranges"]["observations"][0]
    assert column["max"] > column["min"]
    assert sum(column["histogram"]) > 0


@pytest.mark.parametrize("values", [np.zeros(5), np.arange(100.0), np.array([3, 3, 60, 51])])
def test_a_histogram_counts_everything_once(values):
    found = describe.histogram(values)
    assert sum(found["counts"]) == len(values)
    assert len(found["edges"]) == len(found["counts"]) + 1 <= 9
    assert found["edges"][0] == values.min()
    assert sorted(found["edges"]) == found["edges"]


@pytest.mark.parametrize("form", FORMATS)
def test_info_draws_every_format(rng, tmp_path, call, form):
    data = merlin.collect("PointReach", "random", episodes=12)
    name = write(data, tmp_path, form)
    text = call("info", name, "--task", "PointReach").out
    assert "12 episodes of 50 states" in text
    assert "goal reached at the end of" in text
    assert "█" in text
    found = json.loads(call("info", name, "--task", "PointReach", "--json").out)
    assert sum(found["returns"]["histogram"]["counts"]) == 12
    assert found["returns"]["quantiles"].keys() == {"0.05", "0.25", "0.5", "0.75", "0.95"}


def test_info_draws_lengths_that_vary_and_keeps_wide_data_short(rng, tmp_path, call):
    path = saved(
        tmp_path / "maze.npz", maze(rng, (4, 30, 7), observations=rng.normal(size=(41, 60)))
    )
    text = call("info", path).out
    assert "states per episode" in text
    assert "and 54 more, see --json" in text
    assert len(text.splitlines()) < 45


def test_bars_need_no_unicode(rng, tmp_path, monkeypatch):
    path = save_as(merlin.collect("PointReach", "random", episodes=3), tmp_path / "d")
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", plain)
    main(["info", path])
    plain.flush()
    assert b"####" in plain.buffer.getvalue()


def test_drawn_steps_survive_in_a_folder_and_are_not_lost_elsewhere(tmp_path, point_data):
    data = replace(point_data, drawn_steps=3)
    merlin.save(data, tmp_path / "made")
    assert merlin.load(tmp_path / "made").drawn_steps == 3
    assert merlin.load(tmp_path / "made").transitions == 3 * len(data)
    with pytest.raises(MerlinError, match="first 3 steps"):
        save_as(data, tmp_path / "made.npz")
    assert not (tmp_path / "made.npz").exists()


@pytest.mark.parametrize("wrong", ["2", 1.5, True, 0, -1])
def test_drawn_steps_are_a_positive_number(tmp_path, point_data, wrong):
    folder = merlin.save(replace(point_data, drawn_steps=3), tmp_path / "made")
    meta = json.loads((folder / "meta.json").read_text())
    del meta["sha256"]
    (folder / "meta.json").write_text(json.dumps({**meta, "drawn_steps": wrong}))
    with pytest.raises(MerlinError, match="drawn_steps"):
        merlin.load(folder)
