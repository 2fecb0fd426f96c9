"""The same run whether it is cut up, interrupted, killed or run with other seeds."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import merlin
from helpers.training_runs import (
    COMMAND,
    FILES,
    leaves,
    policy_bytes,
    rows,
    train,
    without_speed,
)
from merlin.errors import MerlinError
from merlin.io.interruption import Interrupted
from merlin.training import loop
from merlin.training.checkpoints import Checkpoints
from merlin.training.log import SeedLog
from merlin.training.loop import Group, Pace
from merlin.training.train import resume

# Cut in pieces


class InPiecesOf(Pace):
    """Pieces of the same few updates each time, whatever they take."""

    def __init__(self, updates):
        self.updates = updates

    def measure(self, updates, seconds):
        pass


ODD = {"log_every": 14, "eval_every": 30, "checkpoint_every": 20}
"""No two of these stops agree, so rows of metrics are means over several pieces."""


def assert_same_files(folder, whole):
    for name in ("checkpoint-0", "seed-0/policy", "seed-0/best"):
        one, other = (at / f"{name}.safetensors" for at in (folder, whole))
        assert one.read_bytes() == other.read_bytes(), name
    for name in ("result.json", "seed-0/result.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert without_speed(rows(folder)) == without_speed(rows(whole))


@pytest.fixture(scope="module")
def in_one_piece(point_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "Pace", lambda: InPiecesOf(1000))
        train(point_data, folder, **ODD)
    return folder


@pytest.mark.parametrize("updates", [1, 3, 7])
def test_how_a_run_is_cut_leaves_no_trace(in_one_piece, point_data, tmp_path, monkeypatch, updates):
    monkeypatch.setattr(loop, "Pace", lambda: InPiecesOf(updates))
    train(point_data, tmp_path / "run", **ODD)
    assert_same_files(tmp_path / "run", in_one_piece)


def test_metrics_are_means_since_the_last_row(in_one_piece, point_data, tmp_path):
    every = {**ODD, "log_every": 1}
    train(point_data, tmp_path / "run", **every)
    single = {row["step"]: row["loss"] for row in rows(tmp_path / "run") if "loss" in row}
    logged = [row for row in rows(in_one_piece) if "loss" in row]
    assert [row["step"] for row in logged] == [14, 28, 42, 56, 60]
    for row in logged:
        begin = (row["step"] - 1) // 14 * 14
        mean = np.mean([single[step] for step in range(begin + 1, row["step"] + 1)])
        assert row["loss"] == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("at", [5, 14, 20, 29, 30, 59, 60])
@pytest.mark.parametrize("when", ["updates", "log", "evaluation"])
def test_a_run_interrupted_anywhere_is_the_run_that_was_not(
    in_one_piece, point_data, tmp_path, monkeypatch, at, when
):
    """A signal may arrive in a piece of work, or while it is logged or evaluated."""
    folder = tmp_path / "run"

    def interrupt(function, step_of):
        def replaced(*arguments, **named):
            result = function(*arguments, **named)
            if step_of(*arguments) >= at:
                raise Interrupted
            return result

        return replaced

    with monkeypatch.context() as patch:
        patch.setattr(loop, "Pace", lambda: InPiecesOf(1))
        step_of = lambda group, *_: group.at.step  # noqa: E731
        if when == "updates":
            patch.setattr(Group, "_advance", interrupt(Group._advance, step_of))
        elif when == "log":
            patch.setattr(SeedLog, "write", interrupt(SeedLog.write, lambda _, step, __: step))
        else:
            patch.setattr(Group, "_save_policy", interrupt(Group._save_policy, step_of))
        with pytest.raises(Interrupted, match=r"stopped at update \d+ of 60 .* --resume`"):
            train(point_data, folder, **ODD)
    resume(folder)
    assert_same_files(folder, in_one_piece)


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


@pytest.mark.parametrize(
    ("update_seconds", "save_seconds", "every", "saved"),
    [
        (0.1, 0.009, 5, range(5, 61, 5)),
        (0.1, 0.19, 5, (5, 25, 45, 60)),  # two seconds apart
        (0.1, 9.9, 5, (5, 60)),
        (0.1, 0.19, 20, (20, 40, 60)),
        (61.0, 6.0, 1000, range(1, 61)),  # one a minute, although none is scheduled
        (61.0, 12.0, 1000, range(1, 61, 2)),
    ],
)
def test_saving_takes_a_tenth_of_the_time_and_leaves_no_trace(
    in_one_piece, point_data, tmp_path, monkeypatch, update_seconds, save_seconds, every, saved
):
    clock, steps = Clock(), []
    advance, save = Group._advance, Checkpoints.save

    def slow_advance(*arguments):
        advance(*arguments)
        clock.now += update_seconds

    def slow_save(saves, at, known):
        steps.append(at.step)
        save(saves, at, known)
        clock.now += save_seconds

    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(loop, "Pace", lambda: InPiecesOf(1))
    monkeypatch.setattr(Group, "_advance", slow_advance)
    monkeypatch.setattr(Checkpoints, "save", slow_save)
    train(point_data, tmp_path / "run", **{**ODD, "checkpoint_every": every})
    assert steps == sorted({*saved, 60})
    assert_same_files(tmp_path / "run", in_one_piece)


# Two processes


HOLD = """
import sys, time
from pathlib import Path
from merlin.training.folder import opened
with opened(Path(sys.argv[1]), resume=True):
    print("ready", flush=True)
    time.sleep(60)
"""


def test_two_processes_do_not_train_in_one_folder(point_data, tmp_path):
    folder = tmp_path / "run"
    train(point_data, folder, updates=2)
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"ready\n"
    with pytest.raises(MerlinError, match=rf"run: is in use by process {other.pid} on \S+;"):
        resume(folder, updates=4)
    other.kill()
    other.communicate()
    assert resume(folder, updates=4).config.schedule.updates == 4


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


@pytest.mark.more
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
OPTIONS = ["--algo", "merlin", "--set", "hidden=32,32", "batch_size=128", "--updates", str(UPDATES)]
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


@pytest.mark.more
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


@pytest.mark.more
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
