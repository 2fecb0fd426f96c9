"""What a user asks a run: policy, evaluate, export, trust; and what is said of wrong arguments."""

import subprocess
import sys

import numpy as np
import onnx
import pytest

import merlin
from helpers.sizes import SCHEDULE, SMALL


def test_a_run_is_evaluated_as_the_command_does(run_folder):
    run = merlin.load_run(run_folder)
    found = run.evaluate(episodes=8)
    same = merlin.evaluate(run.policy, "PointReach", episodes=8)
    np.testing.assert_array_equal(found.returns, same.returns)
    assert len(run.evaluate().returns) == 200
    assert len(run.evaluate("PointRooms", episodes=3).returns) == 3


def test_a_run_is_exported(run_folder, tmp_path):
    run = merlin.load_run(run_folder, "best")
    told = run.export(tmp_path / "policy.onnx")
    assert told["policy"] == str(run_folder / "seed-0" / "best.safetensors")
    onnx.checker.check_model(onnx.load(tmp_path / "policy.onnx"))
    with pytest.raises(merlin.MerlinError, match="exists"):
        run.export(tmp_path / "policy.onnx")
    run.export(tmp_path / "policy.onnx", overwrite=True)


def test_only_a_folder_can_be_resumed(point_data):
    with pytest.raises(merlin.MerlinError, match="resume: needs the folder of the run"):
        merlin.train(merlin.Merlin(**SMALL), point_data, updates=10, resume=True)


def test_goals_of_trust_are_checked(point_data):
    how = {"task": "none", "held_out": 0.1, **SCHEDULE}
    run = merlin.train(merlin.Merlin(**SMALL), point_data, updates=10, **how)
    with pytest.raises(merlin.MerlinError, match="goals: holds numbers that are not finite"):
        run.trust([[np.nan, 0.0]], data=point_data)
    assert len(run.trust([[0.0, 0.0]], data=point_data).goals) == 1


def test_without_a_folder_or_a_task_it_is_said(point_data, tmp_path):
    data = point_data
    run = merlin.train(merlin.Merlin(**SMALL), data, updates=10, task="none", **SCHEDULE)
    with pytest.raises(merlin.MerlinError, match="run: is only in memory; train with out"):
        run.export(tmp_path / "policy.onnx")
    with pytest.raises(merlin.MerlinError, match="task: the run has none; name one"):
        run.evaluate()
    assert len(run.evaluate("PointReach", episodes=2).returns) == 2
    with pytest.raises(merlin.MerlinError, match="task SawyerDoor: observation, action and goal"):
        run.evaluate("SawyerDoor", episodes=2)
    assert repr(run) == "<Run in memory: merlin on own data, 10 updates, seeds 0>"
    assert run.trust(data=data, tolerance=1.0) is not None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda data: merlin.train(data, "merlin"), "method: is a Dataset, not a learner"),
        (lambda data: merlin.train("wgcls", data), "method: no method is called 'wgcls'; did you"),
        (
            lambda data: merlin.train(merlin.Merlin, data),
            r"method: Merlin is a class; .*Merlin\(\)",
        ),
        (lambda data: merlin.train("merlin", data, updates="5"), "updates: '5' is not an integer"),
        (
            lambda data: merlin.make("gcsl", hidden=8),
            "hidden: 8 is not a tuple, each",
        ),
        (lambda data: merlin.make("merlin", horizon=1.5), "horizon: 1.5 is not an integer or None"),
        (lambda data: merlin.make("hiql", expectile=None), "expectile: None is not a number"),
        (lambda data: merlin.make("am", released_chaining=1), "chaining: 1 is not True or False"),
        (lambda data: merlin.make(None), "method: None is not the name of a method"),
        (lambda data: merlin.export("run", None), "out: None is not a path; give the file"),
        (lambda data: merlin.evaluate(print, "PointReach", episodes="5"), "episodes: '5' is not a"),
        (lambda data: merlin.evaluate(3, "PointReach"), "policy: an object of type int cannot act"),
        (lambda data: merlin.evaluate(print, "PointReech"), "task: 'PointReech' is unknown"),
    ],
)
def test_errors_speak_of_arguments(call, message, point_data):
    with pytest.raises(merlin.MerlinError, match=message):
        call(point_data)


@pytest.mark.parametrize("learner", ["WGCSL(best_percentile='a')", "HIQL(expectile='a')"])
def test_a_class_speaks_of_its_arguments(learner):
    """In a process of its own, because the types of the tests' own are checked on the way."""
    code = f"import merlin\ntry: merlin.{learner}\nexcept merlin.MerlinError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip().endswith(": 'a' is not a number."), done.stderr
