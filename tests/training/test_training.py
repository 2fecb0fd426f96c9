"""Training: what a run leaves, how it is extended, and what is refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import merlin
from helpers.sizes import SCHEDULE, SMALL
from helpers.training_runs import (
    FILES,
    assert_same_policy,
    policy_bytes,
    rows,
    train,
    without_speed,
)
from merlin.augment import Rollouts
from merlin.errors import MerlinError
from merlin.learners import Merlin
from merlin.learners.registry import configure
from merlin.training.folder import Schedule
from merlin.training.loop import PIECE_SECONDS, Pace
from merlin.training.train import resume

# Schedule


def test_stops_are_all_multiples_and_the_end():
    plan = Schedule(updates=50, log_every=20, eval_every=15, checkpoint_every=40)
    stops = [0]
    while stops[-1] < 50:
        stops.append(plan.next_stop(stops[-1]))
    assert stops[1:] == [15, 20, 30, 40, 45, 50]
    for after in range(50):
        assert plan.next_stop(after) == min(stop for stop in stops if stop > after)


def test_pieces_of_work_take_about_as_long_as_wanted():
    pace = Pace()
    pace.measure(1, 60.0)  # the first update includes compilation
    assert pace.updates == 1
    pace.measure(1, 1e-7)  # too short to time: the next piece is longer, but not by much
    assert pace.updates == 10
    pace.measure(10, 0.04)
    assert pace.updates == 100
    pace.measure(100, 0.4)
    assert pace.updates == int(PIECE_SECONDS / 0.004)
    pace.measure(500, 10.0)  # the machine has become busy
    assert pace.updates == int(PIECE_SECONDS / 0.02)
    pace.measure(1, 14.0)
    assert pace.updates == 1


def test_a_schedule_counts_from_one():
    with pytest.raises(MerlinError, match=r"^checkpoint_every: 0"):
        Schedule(updates=1, checkpoint_every=0)


# Runs in memory and on disk


def test_run_folder_holds_everything(run_folder, point_data):
    here = {path.name for path in run_folder.iterdir()}
    assert here == {
        "run.json",
        "result.json",
        *(f"{kind}-{seed}.safetensors" for kind in ("checkpoint", "previous") for seed in (0, 1)),
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
    assert all(len(row.pop("sha256")) == 64 for row in logged)
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
    for policy, row in zip(run.policies, run.result.seeds, strict=True):
        scores = merlin.evaluate(policy, "PointReach", episodes=SCHEDULE["final_episodes"])
        assert scores.returns.mean() == row.final.mean_return
    best = merlin.load_run(run_folder, "best")
    assert len(best.policies) == 2


def test_in_memory_is_as_on_disk(run_folder, point_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = train(point_data)
    assert run.folder is None
    assert not list(tmp_path.iterdir())
    assert_same_policy(run.policy, merlin.load_run(run_folder).policy)
    assert run.result.final["return"]["mean"] > 0


def test_a_seed_among_many_is_the_seed_alone(run_folder, point_data, tmp_path):
    train(point_data, tmp_path / "alone", seeds=[1])
    for name in ("policy", "best"):
        assert policy_bytes(tmp_path / "alone", 1, name) == policy_bytes(run_folder, 1, name)
    assert without_speed(rows(tmp_path / "alone", 1)) == without_speed(rows(run_folder, 1))


def test_data_without_a_task_is_trained_on_but_not_evaluated(point_data, tmp_path):
    run = train(replace(point_data, task=None), tmp_path / "run", held_out=0)
    assert run.result.final is None
    assert all("eval/return" not in row for row in rows(tmp_path / "run"))
    assert not (tmp_path / "run" / "seed-0" / "best.safetensors").exists()
    # The same updates as with a task: looking at a policy leaves no trace in it.
    assert_same_policy(run.policy, train(point_data).policy)


@pytest.mark.parametrize("seeds", [[], [0, 0], [-1], 0])
def test_seeds_are_distinct_and_not_negative(point_data, seeds):
    with pytest.raises(MerlinError, match=r"^seeds: "):
        train(point_data, seeds=seeds)


# Methods and data by name


def test_a_method_and_data_may_be_named(point_folder, point_data):
    few = {"updates": 2, "eval_episodes": 2, "final_episodes": 2}
    run = merlin.train("gcsl", str(point_folder), **few)
    assert (run.config.algo, run.config.data.path) == ("gcsl", point_data.source)
    tuned = merlin.TASKS["PointReach"].tuned["random"]
    named = merlin.train("merlin", point_data, **few).config
    assert named.settings["hindsight_ratio"] == tuned.hindsight_ratio
    with pytest.raises(MerlinError, match="did you mean 'merlin'"):
        merlin.train("merlim", point_data)
    with pytest.raises(MerlinError, match="data: there is no dataset at data/robot"):
        merlin.train("merlin", "data/robot")
    with pytest.raises(TypeError, match="'upates'"):
        merlin.train("merlin", point_data, upates=3)


def test_data_from_memory_is_checked(point_data):
    actions = np.array(point_data.actions)
    actions[7, 1] = 3.0
    wrong = replace(point_data, source=None, actions=actions)
    with pytest.raises(MerlinError, match=r"row 7 .* is 3 in dimension 1, outside \[-1, 1\]"):
        merlin.train(Merlin(**SMALL), wrong)


def test_a_missing_tolerance_is_said_before_there_is_a_run(point_data, tmp_path):
    learner = configure("g-dql", preset="small").learner
    with pytest.raises(MerlinError, match="tolerance: the data does not say"):
        merlin.train(learner, replace(point_data, task=None), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_phi_is_part_of_the_data_and_survives_a_resume(point_data, tmp_path):
    known = replace(point_data, task=None, phi=(1, 0))
    merlin.save(known, tmp_path / "data")
    data = merlin.load(tmp_path / "data")
    assert data.phi == (1, 0)
    models = Rollouts(proposer_hidden=(8,), dynamics_width=8, model_epochs=1, margin=9.0)
    train(data, tmp_path / "run", updates=2, augment=models)
    shutil.rmtree(tmp_path / "run" / "seed-0" / "augmented")
    (tmp_path / "run" / "checkpoint-0.safetensors").unlink()
    resume(tmp_path / "run")
    made = merlin.load(tmp_path / "run" / "seed-0" / "augmented")
    np.testing.assert_array_equal(made.achieved_goals, made.observations[:, [1, 0]])


# Resuming


def test_a_finished_run_extends_to_the_long_run(run_folder, point_data, tmp_path):
    train(point_data, tmp_path / "short", updates=35)
    assert policy_bytes(tmp_path / "short") != policy_bytes(run_folder)
    extended = resume(tmp_path / "short", updates=60)
    assert policy_bytes(tmp_path / "short") == policy_bytes(run_folder)
    assert extended.config.schedule.updates == 60
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
    with pytest.raises(MerlinError, match="has already done 40 updates"):
        resume(tmp_path / "run", updates=20)


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"learner": Merlin(**SMALL, learning_rate=1e-3)}, "settings="),
        ({"seeds": 3}, "seeds="),
        ({"eval_every": 15}, "eval_every=30"),
        ({"task": "PointRooms"}, "task=PointReach"),
        ({"data": "other"}, "other data"),
        ({"resume": False}, "holds a run already"),
    ],
)
def test_resuming_something_else_is_refused(run_folder, point_data, change, fragment):
    before = (run_folder / "run.json").read_bytes()
    asked = {"learner": Merlin(**SMALL), "seeds": 2, "resume": True, **SCHEDULE, **change}
    data = point_data
    if asked.pop("data", None):
        data = merlin.collect("PointReach", "random", episodes=30, seed=1)
    with pytest.raises(MerlinError, match=fragment):
        merlin.train(asked.pop("learner"), data, updates=60, out=run_folder, **asked)
    assert (run_folder / "run.json").read_bytes() == before


def test_data_in_memory_cannot_be_found_again(tmp_path):
    data = merlin.collect("PointReach", "random", episodes=3)
    train(data, tmp_path / "run", updates=10)
    with pytest.raises(MerlinError, match="data in memory"):
        resume(tmp_path / "run", updates=20)
    train(data, tmp_path / "run", updates=20, resume=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: {"actions": data.actions * 3}, r"actions.*episode \d+.*outside"),
        (lambda data: {"actions": data.actions[:-1]}, "actions.*rows, not the"),
        (lambda data: {"observations": np.full_like(data.observations, np.nan)}, "observations.*"),
    ],
)
def test_data_that_was_changed_after_loading_is_checked(point_data, tmp_path, change, said):
    data = replace(point_data, **change(point_data))
    with pytest.raises(MerlinError, match=f"^dataset.*{said}"):
        merlin.train("merlin", data, updates=1, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
