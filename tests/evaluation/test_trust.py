"""Trust in a policy: true where an environment tells the truth."""

import json
import re
from contextlib import closing
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import merlin
from helpers.log_data import write_log
from helpers.sizes import SCHEDULE
from merlin.cli import main
from merlin.data.goal_table import check_goals, read_goals
from merlin.data.nearness import Nearness, nearness
from merlin.data.splits import hold_out, take
from merlin.envs.batch import make_batch
from merlin.envs.registry import find
from merlin.envs.rollout import rollout
from merlin.errors import MerlinError
from merlin.evaluation.evaluate import FINAL_SEED
from merlin.evaluation.support import lacks, passing, spread
from merlin.evaluation.trust import CARE, NOT, READY, trust, verdict, word
from merlin.learners import Merlin, distance
from merlin.policies.base import FunctionPolicy

OUTSIDE = np.array([[9, 0], [-8, 8], [0, -12]], np.float32)


@pytest.fixture(scope="module", autouse=True)
def small():
    """Fit a small model of the steps to a goal, to less data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distance, "HIDDEN", (64, 64))
        patch.setattr(distance, "PAIRS", 30_000)
        yield


@eqx.filter_jit
def towards(policy, states, goal):
    return jax.vmap(policy.act, (0, None))(states, goal)


def successes(policy, task, goals, episodes):
    """For each goal, the share of episodes that end near it when the policy is given that goal."""
    seeds = range(FINAL_SEED, FINAL_SEED + episodes)
    with closing(make_batch(task, episodes)) as batch:
        for goal in np.asarray(goals, np.float32):

            def act(seen, _, goal=goal):
                return towards(policy, np.float32(seen["observation"]), goal)

            ends = rollout(batch, act, seeds, task.episode_steps).achieved_goals[:, -1]
            near = task.success_tolerance or task.tolerance
            yield np.mean(np.linalg.norm(ends - goal, axis=1) <= near)


@pytest.fixture(scope="module")
def reach(tmp_path_factory):
    path = tmp_path_factory.mktemp("reach") / "data"
    merlin.save(merlin.collect("PointReach", "random", episodes=200), path)
    return merlin.load(path)


@pytest.fixture(scope="module")
def run(reach, tmp_path_factory):
    learner = Merlin(hidden=(64, 64), batch_size=256, learning_rate=3e-3, horizon=1)
    folder = tmp_path_factory.mktemp("trust") / "run"
    how = {**SCHEDULE, "eval_every": 400, "log_every": 400, "checkpoint_every": 400}
    return merlin.train(learner, reach, updates=400, held_out=0.2, out=folder, **how)


@pytest.fixture(scope="module")
def found(run):
    inside = spread(run_goals(run), 8, np.ones(2))
    return run.trust(np.concatenate([inside, OUTSIDE]))


def run_goals(run):
    return hold_out(merlin.load(run.config.data.path), run.config.held_out)[1].achieved_goals


def test_ready_goals_are_reached_and_those_outside_are_not_supported(run, found):
    ready = [goal for goal in found.goals if goal.word == READY]
    beyond = found.goals[-len(OUTSIDE) :]
    assert len(ready) >= 4
    assert all(goal.word == NOT and goal.support == 0 for goal in beyond)
    assert all(goal.recorded_within == 0 for goal in beyond)
    assert min(goal.recorded_within for goal in ready) > 0
    reached, missed = (
        list(successes(run.policy, find("PointReach"), [g.goal for g in goals], 20))
        for goals in (ready, beyond)
    )
    assert np.mean(reached) >= 0.8
    assert max(missed) == 0


def test_what_is_told_of_a_goal_agrees_with_itself(found):
    for goal in found.goals:
        assert goal.word == word(goal.support, goal.confidence, found.useful)
        assert goal.ci95[0] <= goal.confidence + 1e-9 <= goal.ci95[1] + 2e-9
        assert (goal.steps is None) == (goal.reached == 0)
    near = min(found.goals[:8], key=lambda goal: np.linalg.norm(goal.goal))
    assert near.steps < 10


def test_a_policy_predicts_better_than_the_baselines(found):
    soon = next(row for row in found.prediction if (row["from"], row["to"]) == (1, 5))
    assert found.useful
    for name in ("other_goal", "nearest_state", "nearest_state_and_goal", "mean_action"):
        assert soon["policy"]["ci95"][1] < soon[name]["ci95"][0]
    assert found.held_out_episodes == 40
    assert found.steps["rank_correlation"] > 0.7
    assert max(row["error"] for row in found.steps["within"]) < 0.1


def test_a_useless_policy_is_ready_for_nothing(reach):
    idle = FunctionPolicy(lambda observation, goal, horizon, key: jnp.zeros(2) + 0 * goal)
    goals = reach.achieved_goals[:3]
    found = trust(idle, *hold_out(take(reach, range(50)), 0.2), goals=goals, tolerance=1.0)
    assert not found.useful
    assert READY not in {goal.word for goal in found.goals}
    assert "no better with the right goal" in verdict(found)


def test_data_that_is_not_that_of_the_run_is_refused(reach):
    learner = Merlin(hidden=(8,), batch_size=8)
    trained = merlin.train(learner, replace(reach, task=None), updates=1, eval_every=1)
    with pytest.raises(MerlinError, match="changed since"):
        trained.trust(data=take(reach, range(20)))


def test_where_staying_counts_a_policy_that_passes_has_not_reached_the_goal():
    rng = np.random.default_rng(0)
    walks = [rng.uniform(-1, 1, (25, 2)).cumsum(0) for _ in range(60)]
    parts, goals = hold_out(episodes(walks), 0.2), np.zeros((1, 2), np.float32)
    policies = {
        "passes": lambda observation, goal, horizon, key: jnp.array([1.0, 0.0]) + 0 * goal,
        "stays": lambda observation, goal, horizon, key: jnp.clip(goal - observation, -1, 1),
    }
    shares = {}
    for name, act in policies.items():
        for stay in (False, True):
            found = trust(FunctionPolicy(act), *parts, goals=goals, tolerance=1.5, stay=stay)
            assert found.stay == stay
            shares[name, stay] = found.goals[0].reached / found.goals[0].rehearsals
    assert shares["stays", True] == shares["stays", False] == 1
    assert shares["passes", False] == 1
    assert shares["passes", True] == 0


def episodes(paths, **about):
    made = [
        merlin.Episode(path, np.diff(path, axis=0)[:, :2], path, about.get("goal"))
        for path in (np.asarray(path, np.float32) for path in paths)
    ]
    return merlin.Dataset.from_episodes(made, action_low=-9, action_high=9)


LINE = [[0, 0], [1, 0], [2, 0], [3, 0]]


def test_support_counts_episodes_not_states():
    data = episodes([LINE, LINE[::-1], [[0, 5], [1, 5], [2, 5]]])
    close = Nearness(np.ones(2), 0.5, "")
    found, after = passing(data, np.array([2, 0]), close)
    assert found.tolist() == [0, 1]
    assert after.tolist() == [2, 1]
    assert len(passing(data, np.array([2, 9]), close)[0]) == 0


def test_near_is_a_step_and_never_from_one_episode_to_the_next():
    data = episodes([LINE, np.array(LINE) + np.array([500, 0])])
    close = nearness(data, None)
    np.testing.assert_allclose(close.radius * close.scale[0], 1.0, rtol=1e-3)
    assert nearness(data, 0.25).radius == 0.25


def test_what_the_data_lacks():
    data = episodes([LINE, LINE, [[0, 5], [1, 5], [2, 5], [3, 5]]], goal=np.array([2, 0]))
    said = " / ".join(lacks(data, Nearness(np.ones(2), 0.5, "")))
    assert "33% of achieved goals are visited by only one episode" in said
    assert "1 of 3 episodes (33%) never come near their desired goal" in said
    assert "action 1 never changes" in said


def test_farthest_points():
    goals = np.array([[0.0], [1.0], [10.0], [5.0], [5.0]])
    assert spread(goals, 3, np.ones(1)).ravel().tolist() == [5.0, 0.0, 10.0]
    assert len(spread(goals, 99, np.ones(1))) == 4


@pytest.mark.parametrize(
    ("support", "confidence", "useful", "told"),
    [
        *[(9, 0.9, True, READY), (9, 0.9, False, CARE), (3, 0.9, True, CARE)],
        *[(9, 0.5, True, CARE), (1, 0.9, True, NOT), (9, 0.1, True, NOT)],
    ],
)
def test_words(support, confidence, useful, told):
    assert word(support, confidence, useful) == told


def test_goals_from_a_file(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n")
    assert read_goals(tmp_path / "a.csv", 2).tolist() == [[1, 2], [3, 4]]
    np.save(tmp_path / "a.npy", np.array([5.0, 6.0]))
    assert read_goals(tmp_path / "a.npy", 2).tolist() == [[5, 6]]


@pytest.mark.parametrize("text", ["", "x,y\n", "1,2,3\n", "1,2\n3\n", "1,nan\n", "1,two\n", "\x00"])
def test_a_file_without_goals_is_refused(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(MerlinError, match=r"goals .*a\.csv"):
        read_goals(tmp_path / "a.csv", 2)
    with pytest.raises(MerlinError, match="neither"):
        read_goals(tmp_path / "a.txt", 2)


def test_a_typing_error_in_the_first_goal_is_no_header(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("O.5,1\n3,4\n")
    with pytest.raises(MerlinError, match="cannot be read as numbers"):
        read_goals(tmp_path / "a.csv", 2)
    with pytest.raises(MerlinError, match=r"goals .*b\.csv: no such file"):
        read_goals(tmp_path / "b.csv", 2)


@pytest.mark.parametrize("goals", [[[0, np.nan]], [[0, 1, 2]], [0], [], "goals.csv", [[0, 1], [2]]])
def test_goals_in_python_are_checked_as_those_in_a_file(goals):
    with pytest.raises(MerlinError, match=r"^goals: "):
        check_goals(goals, 2)
    assert check_goals([1, 2], 2).tolist() == [[1, 2]]


def test_pickles_are_not_goals(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(MerlinError, match="cannot be read"):
        read_goals(tmp_path / "a.npy", 2)


def test_the_command_prints_and_writes_a_page(run, tmp_path, capsys):
    (tmp_path / "goals.csv").write_text("0,0\n9,9\n")
    words = ["trust", str(run.folder), "--goals", str(tmp_path / "goals.csv")]
    main([*words, "--html", str(tmp_path / "page.html")])
    assert "not supported" in capsys.readouterr().out
    page = (tmp_path / "page.html").read_text()
    assert "not supported" in page
    values = re.findall(r'<text class="value"[^>]*>([^<]*)</text>', page)
    assert values == [*"02468", *"02468", "dimension 0", "dimension 1"]
    assert "<script" not in page
    assert "http://" not in page.replace("http-equiv", "")
    main([*words, "--json"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["goals"][1]["word"] == "not supported"
    assert told["goals"][0]["support"] > told["goals"][1]["support"] == 0


def refusal(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(["trust", *map(str, words)])
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_runs_without_held_out_episodes_are_refused(run_folder, capsys):
    assert "has no held-out episodes" in refusal(capsys, run_folder)


@pytest.mark.parametrize("option", [["--out", "x"], ["--updates", "9"], ["--phi", "0:2"]])
def test_a_run_is_not_trained_again(run, capsys, option):
    assert f"{option[0]}: is for data" in refusal(capsys, run.folder, *option)


def test_data_is_trained_on_first(rng, tmp_path, capsys):
    """And what is kept with --out is a run, of which trust says the same again."""
    log, _, _ = write_log(tmp_path, "csv", rng, (30, 20, 25))
    words = [str(log), "--phi", "0:2", "--updates", "5"]
    assert "best is kept in a run" in refusal(capsys, *words, "--checkpoint", "best")
    main(["trust", *words, "--json"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["training_episodes"], told["held_out_episodes"], told["run"]) == (2, 1, None)
    assert {path.name for path in tmp_path.iterdir()} == {log.name}
    folder = tmp_path / "run"
    main(["trust", *words, "--out", str(folder), "--json"])
    kept = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert kept == {**told, "run": str(folder)}
    main(["trust", str(folder), "--json"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == kept


def test_images_are_refused_before_anything_is_trained(tmp_path, capsys):
    merlin.save(merlin.collect("PointReach", "random", episodes=3, pixels=True), tmp_path / "data")
    assert "observations are images" in refusal(capsys, tmp_path / "data")


@pytest.mark.more
def test_the_words_are_true():
    task = find("FetchReach")
    few = {"eval_every": 1000, "eval_episodes": 5, "final_episodes": 5}
    data = merlin.collect(task, "random", episodes=400)
    learner = Merlin(hidden=(64, 64), batch_size=256, learning_rate=3e-3, horizon=1)
    trained = merlin.train(learner, data, updates=1000, held_out=0.1, **few)
    held_out = hold_out(data, 0.1)[1].achieved_goals
    inside = spread(held_out[:: len(held_out) // 2000 + 1], 12, np.ones(data.goal_dim))
    low, high = data.achieved_goals.min(0), data.achieved_goals.max(0)
    found = trained.trust(np.stack([*inside, high + (high - low), low - (high - low)]), data=data)
    ready = [goal for goal in found.goals if goal.word == READY]
    assert {goal.word for goal in found.goals[-2:]} == {NOT}
    assert len(ready) >= 4
    asked = [goal.goal for goal in (*ready, *found.goals[-2:])]
    *reached, one, other = successes(trained.policy, task, asked, 10)
    assert np.mean(reached) >= 0.75
    assert one == other == 0
