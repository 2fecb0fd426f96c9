"""The toys: the plane, its walls, walks that lead where actions say, figures and numbers."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from merlin.envs.point import Rectangle
from merlin.toys import drawing, experiments
from merlin.toys.experiments import EXPERIMENTS, ROOMS, Settings, look
from merlin.toys.world import (
    BOUND,
    World,
    diffuse,
    random_directions,
    random_points,
    reached,
    unit,
    walk,
)

OPEN = World()
SMALL = Settings(walks=24, updates=8, rounds=2, hidden=(16,), batch_size=16)


@pytest.fixture(params=[OPEN, ROOMS], ids=["open", "rooms"])
def world(request):
    return request.param


@pytest.fixture
def small(monkeypatch):
    """The same experiments with hardly any training and a coarse grid."""
    for module in (experiments, drawing):
        monkeypatch.setattr(module, "GRID", 8)
    monkeypatch.setattr(experiments, "LIMIT", 5)
    shrunk = {
        name: tuple(dataclasses.replace(part, settings=SMALL) for part in parts)
        for name, parts in EXPERIMENTS.items()
    }
    monkeypatch.setattr(experiments, "EXPERIMENTS", shrunk)


# The plane


def test_every_step_is_one_long_unless_something_is_in_the_way(world, rng):
    starts = random_points(world, 500, rng)
    actions = rng.normal(0, 3, (500, 2))
    ends = world.move(starts, actions)
    clear = world.is_clear(starts, starts + unit(actions))
    inside = (np.abs(starts + unit(actions)) <= BOUND).all(axis=1)
    length = np.linalg.norm(ends - starts, axis=1)
    np.testing.assert_allclose(length[clear & inside], 1.0)
    assert (length < 1.0 + 1e-9).all()
    assert (np.abs(ends) <= BOUND).all()
    assert world.is_free(ends).all()
    assert world.is_clear(starts, ends).all()
    np.testing.assert_array_equal(world.move(starts, np.zeros((500, 2))), starts)


def test_steps_into_a_wall_slide_along_it():
    world = World((Rectangle(0.0, -5.0, 1.0, 5.0),))
    start = np.array([[-0.3, 0.0]])
    found = world.move(start, np.array([[0.8, 0.6]]))
    np.testing.assert_allclose(found, [[-0.3, 0.6]])
    np.testing.assert_array_equal(world.move(start, np.array([[1.0, 0.0]])), start)


def test_what_touches_a_wall_is_what_has_a_point_in_it(rng):
    wall = Rectangle(-1.0, -2.0, 3.0, 1.0)
    starts, ends = rng.uniform(-6, 6, (2, 2000, 2))
    ends[:200, 0] = starts[:200, 0]  # some upright ones, for which a division by zero lurks
    share = np.linspace(0, 1, 400)[:, None, None]
    points = starts + share * (ends - starts)
    inside = ((points > (wall.left, wall.bottom)) & (points < (wall.right, wall.top))).all(axis=2)
    clear = World((wall,)).is_clear(starts, ends)
    # Between the sampled points a corner can be cut; that happens to very few.
    assert not (clear & inside.any(axis=0)).any()
    assert (clear == ~inside.any(axis=0)).mean() > 0.99


def test_the_shortest_way_goes_round_walls():
    goal = np.array([5.0, -5.0])
    points = np.array([[5.0, 5.0], [-5.0, 4.0], [4.0, -9.0]])
    best = ROOMS.directions(points, goal)
    np.testing.assert_allclose(best[0], [0.0, -1.0], atol=1e-9)  # straight through the door
    np.testing.assert_allclose(best[2], unit(goal - points[2:])[0])
    # From the opposite room the straight way is walled up; a door is near it.
    assert not ROOMS.is_clear(points[1:2], goal[None])[0]
    assert 5 < np.degrees(np.arccos(best[1] @ unit(goal - points[1:2])[0])) < 60


def test_following_the_shortest_way_reaches_the_goal_from_everywhere(world, rng):
    goal = np.array([5.0, -5.0])
    starts = random_points(world, 300, rng)
    path, _ = walk(world, lambda p: world.directions(p, goal), starts, 41)
    assert reached(path, goal).all()


# The data


def test_actions_of_the_data_lead_from_their_state_to_the_next(world, rng):
    goals = np.tile([[5.0, -5.0]], (200, 1))
    data = diffuse(world, goals, 50, rng)
    assert len(data) == 200
    assert (data.lengths == 50).all()
    for index in range(0, 200, 20):
        path, actions, achieved, goal = data.episode(index)
        np.testing.assert_allclose(
            world.move(path[:-1].astype(float), actions), path[1:], atol=1e-5
        )
        np.testing.assert_array_equal(path[-1], goal)
        np.testing.assert_array_equal(path, achieved)
    states = data.observations.reshape(200, 50, 2)
    actions = data.actions.reshape(200, 49, 2)
    # One step before a goal the action points at it; paired with a neighbour it points anywhere.
    towards = unit((states[:, 1:] - states[:, :-1]).reshape(-1, 2))
    assert (towards * actions.reshape(-1, 2)).sum(axis=1).mean() > 0.99
    shifted = (towards.reshape(200, 49, 2)[:, 1:] * actions[:, :-1]).sum(axis=2)
    assert abs(shifted.mean()) < 0.2


def test_random_directions_are_uniform(rng):
    found = random_directions(20_000, rng)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)
    assert np.abs(found.mean(axis=0)).max() < 0.02
    counts = np.histogram(np.arctan2(*found.T), bins=8)[0]
    assert np.abs(counts / 2500 - 1).max() < 0.1


# What is measured


def test_the_best_policy_is_off_by_nothing_and_arrives():
    def straight(observation, goal, horizon=None, key=None):
        return goal - observation

    def away(observation, goal, horizon=None, key=None):
        return observation - goal

    def sideways(observation, goal, horizon=None, key=None):
        return jnp.array([1.0, -1.0]) * (goal - observation)[::-1]

    goal = np.array([1.2, -3.4])
    found = look(straight, OPEN, goal).numbers()
    assert found["reached"] == 1.0
    assert found["angle"] == pytest.approx(0.0, abs=0.05)
    assert look(away, OPEN, goal).numbers()["angle"] == pytest.approx(180.0, abs=0.05)
    assert look(away, OPEN, goal).numbers()["reached"] < 0.01
    assert look(sideways, OPEN, goal).numbers()["angle"] == pytest.approx(90.0, abs=0.05)
    # Straight on is not good enough among walls.
    rooms = look(straight, ROOMS, np.array([5.0, -5.0])).numbers()
    assert 2 < rooms["angle"] < 30
    assert 0.5 < rooms["reached"] < 0.95


def test_both_methods_are_given_as_much(small):
    part = experiments.find("fourrooms")[0]
    trained = experiments.run(part, seed=0)
    assert len(trained.data) == SMALL.walks
    assert SMALL.walks % SMALL.rounds == SMALL.updates % SMALL.rounds == 0
    full = EXPERIMENTS["point"][0].settings
    assert full.walks % full.rounds == full.updates % full.rounds == 0


# The command


@pytest.mark.parametrize(
    ("name", "figures", "rows"),
    [
        ("point", ["fields.png", "horizons.png", "unseen-goals.png"], 3 + 3 + 12),
        ("multigoal", ["fields.png"], 9),
    ],
)
def test_the_command(name, figures, rows, small, tmp_path, call):
    out = tmp_path / "one"
    printed = json.loads(call("toy", name, "--out", out, "--json").out.splitlines()[-1])
    kept = json.loads((out / "toy.json").read_text())
    assert kept.pop("sha256")
    assert printed == kept
    assert printed["figures"] == figures
    assert len(printed["rows"]) == rows
    assert {row["method"] for row in printed["rows"]} == {"merlin", "gcsl", "gcsl-same-walks"}
    assert sorted(p.name for p in out.iterdir()) == sorted([*figures, "toy.json"])
    if name == "multigoal":  # once more: the same seed gives the same bytes
        assert "reached from" in call("toy", name, "--out", tmp_path / "two").out
        for file in out.iterdir():
            assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


def test_shaded_cells_are_those_from_which_the_goal_is_not_reached(small):
    """Told to go right, one arrives from the left of the goal only."""

    def right(observation, goal, horizon=None, key=None):
        return jnp.array([1.0, 0.0])

    field = look(right, OPEN, np.array([3.85, 1.25]))
    axes = Figure().subplots()
    drawing.arrows(axes, field, OPEN, "", goals=[], asked=np.array([3.85, 1.25]))
    shaded = np.asarray(axes.images[0].get_array())[..., 3] > 0
    expected = np.ones((8, 8), bool)
    expected[4, 3:6] = False  # five steps of one are two cells of two and a half
    np.testing.assert_array_equal(shaded, expected)


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["maze", "--out", "new"], "'maze' is unknown; choose from point, fourrooms, multigoal"),
        (["point", "--out", "new", "--seed", "-1"], "--seed: -1"),
        (["point", "--out", "file/new"], "cannot be created"),
    ],
)
def test_bad_input(arguments, fragment, tmp_path, monkeypatch, call, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as stop:
        call("toy", *arguments)
    assert stop.value.code == 2
    assert fragment in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_merlin_reaches_the_goal_and_more_often_than_gcsl_among_walls(tmp_path, call):
    found = {}
    for name in ("point", "fourrooms"):
        printed = call("toy", name, "--out", tmp_path / name, "--json").out.splitlines()[-1]
        rows = json.loads(printed)["rows"]
        found[name] = {row["method"]: row["reached"] for row in reversed(rows[:3])}
    assert found["point"]["merlin"] >= 0.99
    assert found["fourrooms"]["merlin"] > found["fourrooms"]["gcsl"]
