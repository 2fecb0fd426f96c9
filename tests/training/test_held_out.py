"""Episodes that are kept aside, and what is chosen by them."""

import json
from dataclasses import replace

import numpy as np
import pytest

import merlin
from helpers.training_runs import policy_bytes, rows, train, without_speed
from merlin.data.splits import hold_out, take
from merlin.errors import MerlinError
from merlin.evaluation.held_out import draw_pairs
from merlin.training.folder import read_config
from merlin.training.train import resume

HOW = {"eval_every": 20}


@pytest.fixture(scope="module")
def log_path(point_data, tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "data"
    merlin.save(replace(point_data, task=None, source=None), path)
    return path


@pytest.fixture(scope="module")
def run_of_log(log_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("held-out") / "run"
    return train(merlin.load(log_path), folder, **HOW)


def test_a_split_shares_no_episode_and_loses_none(point_data):
    kept, aside = hold_out(point_data, 0.25)
    assert len(aside) == round(0.25 * len(point_data))
    assert len(kept) + len(aside) == len(point_data)
    whole = {point_data.episode(i).observations.tobytes() for i in range(len(point_data))}
    parts = [part.episode(i) for part in (kept, aside) for i in range(len(part))]
    assert {episode.observations.tobytes() for episode in parts} == whole
    for one, other in zip(take(point_data, [3]).episode(0), point_data.episode(3), strict=True):
        np.testing.assert_array_equal(one, other)


def test_pairs_are_of_one_episode(point_data):
    pairs = draw_pairs(point_data, 500, 7)
    assert 1 <= pairs.horizon.min() <= pairs.horizon.max() <= 7
    for rows_of in (pairs.state, pairs.goal):
        found = np.searchsorted(point_data.starts, rows_of, side="right") - 1
        np.testing.assert_array_equal(found, pairs.episode)
    np.testing.assert_array_equal(pairs.action, pairs.state - pairs.episode)


def test_without_a_task_best_has_the_least_held_out_error(run_of_log):
    looks = [row for row in rows(run_of_log.folder) if "held_out/action_error" in row]
    assert [row["step"] for row in looks] == [20, 40, 60]
    best = min(looks, key=lambda row: row["held_out/action_error"])
    told = run_of_log.result.held_out
    assert told["share"] == 0.1
    assert told["best"]["action_error"] == best["held_out/action_error"]
    assert told["best"]["log_likelihood"] == best["held_out/log_likelihood"]
    assert told["final"]["action_error"] == looks[-1]["held_out/action_error"]
    assert looks[-1]["held_out/action_error"] < looks[0]["held_out/action_error"]
    again = merlin.load_run(run_of_log.folder, "best")
    assert again.result == run_of_log.result


def test_a_run_that_is_stopped_ends_as_if_it_was_not(log_path, run_of_log, tmp_path):
    train(merlin.load(log_path), tmp_path / "run", updates=40, **HOW)
    resume(tmp_path / "run", updates=60)
    for name in ("policy", "best"):
        assert policy_bytes(tmp_path / "run", 0, name) == policy_bytes(run_of_log.folder, 0, name)
    found = [without_speed(rows(folder)) for folder in (tmp_path / "run", run_of_log.folder)]
    assert found[0] == found[1]


def test_with_a_task_nothing_is_held_out_unless_asked(point_data, tmp_path):
    train(point_data, tmp_path / "usual", updates=1)
    assert "held_out" not in json.loads((tmp_path / "usual" / "run.json").read_text())
    run = train(point_data, tmp_path / "asked", updates=1, held_out=0.2)
    assert read_config(tmp_path / "asked").held_out == 0.2
    row = next(row for row in rows(tmp_path / "asked") if "held_out/action_error" in row)
    assert "eval/return" in row
    assert run.result.final is not None
    assert run.result.held_out["share"] == 0.2


@pytest.mark.parametrize("share", [-0.1, 1.0, 0.99, float("nan")])
def test_a_share_that_leaves_nothing_is_refused(point_data, share):
    with pytest.raises(MerlinError, match="held_out"):
        train(take(point_data, range(5)), held_out=share)


def test_a_single_episode_is_all_trained_on(point_data):
    run = train(replace(take(point_data, [0]), task=None), updates=1)
    assert run.config.held_out is None
