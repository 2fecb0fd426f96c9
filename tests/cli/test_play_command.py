"""What the page is told of recorded episodes, and the command that makes it."""

import json
import re

import numpy as np
import pytest

import merlin
from helpers.policy_files import write_policy
from merlin.deploy.play import write_page
from merlin.deploy.play.policy_data import policy_data, recorded
from merlin.envs.rollout import Rollout
from merlin.learners import MerlinPlus


@pytest.mark.parametrize(("size", "views", "points"), [(1, 1, 1), (2, 1, 1), (3, 2, 1), (15, 2, 5)])
def test_goals_of_any_size_have_a_view(size, views, points, rng):
    episodes, steps = 3, 7
    played = Rollout(
        observations=np.zeros((episodes, steps + 1, 2), np.float32),
        actions=np.zeros((episodes, steps, 1), np.float32),
        achieved_goals=rng.normal(size=(episodes, steps + 1, size)).astype(np.float32),
        desired_goals=rng.normal(size=(episodes, size)).astype(np.float32),
        rewards=np.zeros((episodes, steps)),
        success=np.arange(episodes)[:, None] <= np.arange(steps) - steps + 2,  # 2 of 3 at the end
        lengths=np.full(episodes, steps),
    )
    # As the page gets it: through JSON.
    shown = json.loads(json.dumps(recorded(played, merlin.TASKS["FetchReach"])))
    assert shown["summary"] == "2 of 3 successful"
    assert shown["success"] == played.success.tolist()
    assert len(shown["views"]) == views
    for view in shown["views"]:
        paths, goals = np.array(view["paths"]), np.array(view["goals"])
        assert paths.shape == (episodes, points, steps + 1, 2)
        assert goals.shape == (episodes, points, 2)
        every = np.concatenate([paths.reshape(-1, 2), goals.reshape(-1, 2)])
        assert (every >= view["low"]).all()
        assert (every <= view["high"]).all()
    # The last point of a goal, from above and from the side, or its only number over time.
    first = {1: [None, 0], 2: [0, 1], 3: [0, 1], 15: [12, 13]}[size]
    second = {3: [0, 2], 15: [12, 14]}.get(size)
    for view, axes in zip(shown["views"], filter(None, (first, second)), strict=True):
        for place, axis in enumerate(axes):
            time = np.broadcast_to(np.arange(steps + 1), (episodes, steps + 1))
            ways = time if axis is None else played.achieved_goals[..., axis]
            goals = np.zeros(episodes) if axis is None else played.desired_goals[:, axis]
            np.testing.assert_allclose(np.array(view["paths"])[:, -1, :, place], ways, atol=1e-4)
            np.testing.assert_allclose(np.array(view["goals"])[:, -1, place], goals, atol=1e-4)


def test_a_replay_among_walls_shows_them(rng, tmp_path):
    rooms = merlin.TASKS["PointRooms"]
    write_policy(tmp_path / "plus", rooms, MerlinPlus(hidden=(8,), candidates=0), rng)
    shown = policy_data(tmp_path / "plus", rooms, episodes=2)
    (view,) = shown["recorded"]["views"]
    walls = np.array(view["walls"])
    assert walls.shape[1] == 4
    assert (walls[:, :2] < walls[:, 2:]).all()
    assert (view["low"], view["high"]) == ([-5, -5], [5, 5])


def test_the_command(run_folder, tmp_path, call):
    out = tmp_path / "page.html"
    said = json.loads(call("play", run_folder, "--out", out, "--seed", "1", "--json").out)
    assert said["policies"] == [
        {"name": "point", "task": "PointReach", "algo": "merlin", "seed": 1, "kind": "live"}
    ]
    assert said["bytes"] == out.stat().st_size
    words = call("play", run_folder, run_folder, "--out", out, "--overwrite").out
    assert "point (live), point (live)" in words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "--out", "a.html"], "no such run folder"),
        (["--out", "a.html"], "RUN"),
        (["RUN", "--out", "a.txt"], r"--out: a\.txt does not end in \.html"),
        (["RUN", "--out", "a.html", "--seed", "7"], "--seed: .* has no seed 7; it has 0, 1"),
        (["RUN", "--out", "a.html", "--checkpoint", "worst"], "--checkpoint: 'worst'"),
        (["RUN", "--out", "there.html"], "already exists"),
    ],
)
def test_bad_requests_for_a_page(arguments, words, run_folder, tmp_path, monkeypatch, call, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.html").touch()
    with pytest.raises(SystemExit) as stop:
        call("play", *(run_folder if a == "RUN" else a for a in arguments))
    assert stop.value.code == 2
    assert re.search(words, capsys.readouterr().err)


def test_a_page_that_would_be_too_large_is_refused(run_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("merlin.deploy.play.page.MAX_BYTES", 1000)
    with pytest.raises(merlin.MerlinError, match="give fewer than 1 runs"):
        write_page([run_folder], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
