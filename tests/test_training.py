"""Training: the same run whether it is cut up, killed, resumed, extended or run with others."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import merlin
from conftest import SCHEDULE, SMALL
from merlin.errors import MerlinError
from merlin.learners import Merlin
from merlin.loop import Schedule
from merlin.training import resume

FILES = {"metrics.jsonl", "policy.safetensors", "best.safetensors", "result.json"}
COMMAND = [sys.executable, "-c", "from merlin.cli import main; main()"]


def train(data, out=None, *, updates=60, **options):
    return merlin.train(Merlin(**SMALL), data, updates=updates, out=out, **SCHEDULE | options)


def leaves(policy):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(policy)]


def assert_same_policy(one, other):
    for a, b in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def policy_bytes(folder: Path, seed=0, name="policy"):
    return (folder / f"seed-{seed}" / f"{name}.safetensors").read_bytes()


def rows(folder: Path, seed=0):
    text = (folder / f"seed-{seed}" / "metrics.jsonl").read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def without_speed(logged):
    """Log rows but for the one number that may differ between two equal runs."""
    return [{k: v for k, v in row.items() if k != "updates_per_second"} for row in logged]


# Schedule


def test_stops_are_all_multiples_and_the_end():
    plan = Schedule(updates=50, log_every=20, eval_every=15, checkpoint_every=40)
    assert list(plan.stops(0)) == [15, 20, 30, 40, 45, 50]


@pytest.mark.parametrize("after", range(51))
def test_stops_after_a_resume_are_those_that_were_left(after):
    plan = Schedule(updates=50, log_every=20, eval_every=15, checkpoint_every=40)
    assert list(plan.stops(after)) == [stop for stop in plan.stops(0) if stop > after]


def test_a_schedule_counts_from_one():
    with pytest.raises(MerlinError, match="--checkpoint-every: 0"):
        Schedule(updates=1, checkpoint_every=0)


# Runs in memory and on disk


def test_run_folder_holds_everything(run_folder, point_data):
    here = {path.name for path in run_folder.iterdir()}
    assert here == {
        "run.json",
        "result.json",
        "checkpoint-0.safetensors",
        "checkpoint-1.safetensors",
        "seed-0",
        "seed-1",
    }
    config = json.loads((run_folder / "run.json").read_text())
    assert (config["algo"], config["task"], config["seeds"]) == ("merlin", "PointReach", [0, 1])
    assert config["settings"]["hidden"] == [32, 32]
    assert config["data"]["path"] == point_data.source
    for seed in (0, 1):
        names = {path.name for path in (run_folder / f"seed-{seed}").iterdir()}
        events = {name for name in names if name.startswith("events.")}
        assert len(events) == 1
        assert names - events == FILES
    assert policy_bytes(run_folder, 0) != policy_bytes(run_folder, 1)

    result = json.loads((run_folder / "result.json").read_text())
    assert result["updates"] == 60
    assert [row["seed"] for row in result["seeds"]] == [0, 1]
    means = [row["final"]["return"] for row in result["seeds"]]
    assert result["final"]["return"]["mean"] == pytest.approx(np.mean(means))
    assert result["final"]["episodes"] == SCHEDULE["final_episodes"]
    low, high = result["final"]["return"]["ci95"]
    assert low <= result["final"]["return"]["mean"] <= high


def test_metrics_are_one_row_per_look(run_folder):
    logged = rows(run_folder)
    losses = [row for row in logged if "loss" in row]
    looks = [row for row in logged if "eval/return" in row]
    assert [row["step"] for row in losses] == [10, 20, 30, 40, 50, 60]
    assert [row["step"] for row in looks] == [30, 60]
    assert all(np.isfinite(value) for row in logged for value in row.values())
    assert losses[-1]["loss"] < losses[0]["loss"]


def test_the_best_policy_is_that_of_the_best_look(run_folder):
    for seed in (0, 1):
        looks = [row for row in rows(run_folder, seed) if "eval/return" in row]
        best = max(looks, key=lambda row: row["eval/return"])
        result = json.loads((run_folder / f"seed-{seed}" / "result.json").read_text())
        assert result["best"]["step"] == best["step"]
        assert result["best"]["return"] == best["eval/return"]


def test_loaded_policies_score_what_the_run_said(run_folder):
    run = merlin.load_run(run_folder)
    assert len(run.policies) == 2
    for policy, row in zip(run.policies, run.result["seeds"], strict=True):
        scores = merlin.evaluate(policy, "PointReach", episodes=SCHEDULE["final_episodes"])
        assert scores.returns.mean() == row["final"]["return"]
    best = merlin.load_run(run_folder, "best")
    assert len(best.policies) == 2


def test_in_memory_is_as_on_disk(run_folder, point_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = train(point_data)
    assert run.folder is None
    assert not list(tmp_path.iterdir())
    assert_same_policy(run.policy, merlin.load_run(run_folder).policy)
    assert run.result["final"]["return"]["mean"] > 0


def test_a_seed_among_many_is_the_seed_alone(run_folder, point_data, tmp_path):
    train(point_data, tmp_path / "alone", seeds=[1])
    for name in ("policy", "best"):
        assert policy_bytes(tmp_path / "alone", 1, name) == policy_bytes(run_folder, 1, name)
    assert without_speed(rows(tmp_path / "alone", 1)) == without_speed(rows(run_folder, 1))


def test_data_without_a_task_is_trained_on_but_not_evaluated(point_data, tmp_path):
    run = train(replace(point_data, task=None), tmp_path / "run")
    assert "final" not in run.result
    assert all("eval/return" not in row for row in rows(tmp_path / "run"))
    assert not (tmp_path / "run" / "seed-0" / "best.safetensors").exists()
    # The same updates as with a task: looking at a policy leaves no trace in it.
    assert_same_policy(run.policy, train(point_data).policy)


@pytest.mark.parametrize("seeds", [[], [0, 0], [-1], 0])
def test_seeds_are_distinct_and_not_negative(point_data, seeds):
    with pytest.raises(MerlinError, match="--seeds"):
        train(point_data, seeds=seeds)


# Resuming


def test_a_finished_run_extends_to_the_long_run(run_folder, point_data, tmp_path):
    train(point_data, tmp_path / "short", updates=35)
    assert policy_bytes(tmp_path / "short") != policy_bytes(run_folder)
    extended = resume(tmp_path / "short", updates=60)
    assert policy_bytes(tmp_path / "short") == policy_bytes(run_folder)
    assert extended.config["updates"] == 60
    # The short run's own end was logged too; otherwise the logs agree.
    logged = [row for row in rows(tmp_path / "short") if row["step"] != 35]
    steps = [row["step"] for row in logged]
    assert steps == [row["step"] for row in rows(run_folder)]


def test_resuming_what_is_done_changes_nothing(point_data, tmp_path):
    folder = tmp_path / "run"
    train(point_data, folder)
    before = {name: policy_bytes(folder, name=name) for name in ("policy", "best")}
    result, logged = (folder / "result.json").read_bytes(), rows(folder)
    resume(folder)
    assert {name: policy_bytes(folder, name=name) for name in ("policy", "best")} == before
    assert (folder / "result.json").read_bytes() == result
    assert rows(folder) == logged


def test_metrics_are_cut_back_to_the_checkpoint(run_folder, point_data, tmp_path):
    """What a kill leaves: rows past the checkpoint and half a line; none is there twice after."""
    folder = tmp_path / "run"
    train(point_data, folder, updates=40)
    log = folder / "seed-0" / "metrics.jsonl"
    with log.open("a") as file:
        file.write('{"step": 50, "loss": 123.0}\n{"step": 60, "lo')
    train(point_data, folder, resume=True)
    found = [row for row in rows(folder) if "eval/return" not in row]
    expected = [row for row in rows(run_folder) if "eval/return" not in row]
    assert without_speed(found) == without_speed(expected)


def test_fewer_updates_than_there_are_is_refused(point_data, tmp_path):
    train(point_data, tmp_path / "run", updates=40)
    with pytest.raises(MerlinError, match="has 40 updates already"):
        resume(tmp_path / "run", updates=20)


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"learner": Merlin(**SMALL, learning_rate=1e-3)}, "settings="),
        ({"seeds": 3}, "seeds="),
        ({"eval_every": 15}, "eval_every=30"),
        ({"task": "PointRooms"}, "task=PointReach"),
        ({"data": "other"}, "other data"),
        ({"resume": False}, "--resume"),
    ],
)
def test_resuming_something_else_is_refused(run_folder, point_data, change, fragment):
    before = (run_folder / "run.json").read_bytes()
    asked = {"learner": Merlin(**SMALL), "seeds": 2, "resume": True, **SCHEDULE, **change}
    data = point_data
    if asked.pop("data", None):
        data = merlin.collect("PointReach", "random", episodes=30, seed=1)
    with pytest.raises(MerlinError, match=fragment):
        merlin.train(data=data, updates=60, out=run_folder, **asked)
    assert (run_folder / "run.json").read_bytes() == before


def test_data_in_memory_cannot_be_found_again(tmp_path):
    data = merlin.collect("PointReach", "random", episodes=3)
    train(data, tmp_path / "run", updates=10)
    with pytest.raises(MerlinError, match="data in memory"):
        resume(tmp_path / "run", updates=20)
    train(data, tmp_path / "run", updates=20, resume=True)


# Several devices


TOGETHER = """
import sys
import jax, merlin
assert jax.device_count() == 2
data = merlin.load(sys.argv[1])
options = dict(updates=50, eval_every=1000, eval_episodes=1, final_episodes=1)
learner = merlin.Merlin(hidden=(32, 32), batch_size=64)
merlin.train(learner, data, seeds=2, out=sys.argv[2], checkpoint_every=20, **options)
# Resuming what is done reads the checkpoint of both seeds back onto both devices.
merlin.train(learner, data, seeds=2, out=sys.argv[2], resume=True, **options)
"""


def test_seeds_together_on_two_devices(point_folder, point_data, tmp_path):
    flags = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, "-W", "error", "-c", TOGETHER, str(point_folder), "run"]
    subprocess.run(command, cwd=tmp_path, env=flags, check=True, timeout=120)
    folder = tmp_path / "run"
    assert json.loads((folder / "run.json").read_text())["together"]
    assert (folder / "checkpoint-0-1.safetensors").exists()
    together = merlin.load_run(folder)
    for seed, policy in enumerate(together.policies):
        assert {path.name for path in (folder / f"seed-{seed}").iterdir()} >= FILES
        alone = train(point_data, seeds=[seed], updates=50, eval_every=1000)
        for a, b in zip(leaves(policy), leaves(alone.policy), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-4)
    # Close to the right seed and not to the other.
    first, second = (np.concatenate([x.ravel() for x in leaves(p)]) for p in together.policies)
    assert abs(first - second).max() > 0.01


# Killed processes

UPDATES = 4000
OPTIONS = ["--set", "hidden=32,32", "batch_size=128", "--updates", str(UPDATES)]
OPTIONS += ["--checkpoint-every", "50", "--log-every", "25", "--eval-every", "1000"]
OPTIONS += ["--eval-episodes", "10", "--final-episodes", "10"]


def start(*arguments):
    return subprocess.Popen(
        [*COMMAND, "train", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_progress(folder: Path, process):
    """Until a checkpoint is written: the process is then amid its updates."""
    checkpoint = folder / "checkpoint-0.safetensors"
    known = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
    for _ in range(6000):
        assert process.poll() is None, process.communicate()
        if checkpoint.exists() and checkpoint.stat().st_mtime_ns != known:
            return
        time.sleep(0.01)
    raise AssertionError("no checkpoint for a minute")


def finish(process):
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output


@pytest.fixture(scope="module")
def uninterrupted(point_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed") / "whole"
    finish(start(point_folder, "--out", folder, *OPTIONS))
    return folder


def assert_same_run(folder, whole):
    for name in ("policy", "best"):
        assert policy_bytes(folder, name=name) == policy_bytes(whole, name=name)
    for name in ("result.json", "seed-0/result.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert without_speed(rows(folder)) == without_speed(rows(whole))


def test_ctrl_c_stops_politely_and_resumes_exactly(point_folder, uninterrupted, tmp_path):
    folder = tmp_path / "run"
    process = start(point_folder, "--out", folder, *OPTIONS)
    wait_for_progress(folder, process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert output == ""
    assert "Traceback" not in errors
    last = errors.splitlines()[-1]
    assert last.startswith("merlin: stopped at update ")
    assert f"`merlin train --out {folder} --resume`" in last
    assert not (folder / "seed-0" / "policy.safetensors").exists()
    finish(start("--out", folder, "--resume"))
    assert_same_run(folder, uninterrupted)


def test_a_run_killed_three_times_is_the_run_that_was_not(point_folder, uninterrupted, tmp_path):
    folder = tmp_path / "run"
    delays = random.Random(5)
    process = start(point_folder, "--out", folder, *OPTIONS)
    for _ in range(3):
        wait_for_progress(folder, process)
        time.sleep(delays.uniform(0.0, 0.15))
        process.kill()
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, "the run was over before it was killed"
        process = start("--out", folder, "--resume")
    finish(process)
    assert_same_run(folder, uninterrupted)
