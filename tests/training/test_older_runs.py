"""Run folders that an earlier version wrote still load, evaluate, resume and export.

tests/fixtures/older_runs has PointReach data of four episodes, finished runs of forty updates with
nets of two layers of eight, and a run that was stopped by Ctrl-C after twenty.
"""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import onnxruntime
import pytest

import merlin
from merlin.training.train import resume

OLDER = Path(__file__).parents[1] / "fixtures" / "older_runs"
FINISHED = ("merlin", "merlin-np", "merlin-plus", "wgcsl")


@pytest.fixture
def older(tmp_path):
    """The folders, with the path of their data as it is here."""
    shutil.copytree(OLDER, tmp_path / "older")
    for path in (tmp_path / "older").glob("*/run.json"):
        content = json.loads(path.read_text())
        content["data"]["path"] = str(tmp_path / "older" / "data")
        path.write_text(json.dumps(content))
    return tmp_path / "older"


@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_run_loads_and_scores_what_it_said(older, name):
    run = merlin.load_run(older / name)
    assert run.config.algo == name
    assert run.config.schedule.updates == 40
    assert (run.result.algo, run.result.updates) == (name, 40)
    assert run.result.to_json() == json.loads((older / name / "result.json").read_text())
    for policy, seed in zip(run.policies, run.result.seeds, strict=True):
        scores = merlin.evaluate(policy, "PointReach", episodes=10)
        assert scores.returns.mean() == pytest.approx(seed.final.mean_return, abs=1e-3)
        assert 0 < seed.best.step <= 40


@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_run_is_exported(older, name, call, tmp_path):
    call("export", older / name, "--out", tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    assert {"observation", "goal"} <= {given.name for given in session.get_inputs()}


def test_the_command_line_evaluates_it(older, call):
    said = json.loads(call("eval", older / "merlin", "--episodes", 5, "--json").out)
    assert (said["algo"], said["task"], said["seeds"]) == ("merlin", "PointReach", 2)


def test_a_stopped_run_is_resumed_to_what_it_would_have_been(older):
    stopped, whole = resume(older / "stopped"), merlin.load_run(older / "merlin")
    for one, other in zip(_arrays(stopped.policy), _arrays(whole.policies[0]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    text = (older / "stopped" / "seed-0" / "metrics.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["step"] for row in rows if "loss" in row] == [8, 16, 24, 32, 40]
    assert [row["step"] for row in rows if "eval/return" in row] == [20, 40]


def test_its_made_trajectories_are_used_again(older):
    before = (older / "merlin-np/seed-0/augmented/meta.json").read_bytes()
    run = resume(older / "merlin-np", updates=44)
    assert (older / "merlin-np/seed-0/augmented/meta.json").read_bytes() == before
    assert run.result.updates == 44


def _arrays(policy):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(policy)]
