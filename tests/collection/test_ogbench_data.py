"""OGBench's data: made again by its recipes, or read where it was downloaded."""

import json

import numpy as np
import pytest

import merlin
from helpers.refusals import refuse
from merlin.collection import collect as collection
from merlin.collection.collect import collect, collect_cached, collect_to, default_variant
from merlin.collection.ogbench import Maze, regenerate
from merlin.data import Dataset, load
from merlin.data.formats import ogbench as files
from merlin.envs.ogbench import SIZES
from merlin.envs.registry import find
from merlin.errors import MerlinError

STITCH = "ogbench:pointmaze-medium-stitch-v0"
NAVIGATE = "pointmaze-large-navigate-v0"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home, so that no download of the developer's is found."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def stitched() -> Dataset:
    return collect(STITCH, "regenerated", episodes=30, workers=1)


def download(data: Dataset, name: str = STITCH):
    """Put data where OGBench would."""
    files.folder().mkdir(parents=True)
    files.write(data, str(files.file_of(name)))
    return files.file_of(name)


def test_the_layout_is_that_of_the_published_file(stitched):
    assert stitched.lengths.tolist() == [201] * 30
    assert stitched.actions.shape == (30 * 200, 2)
    assert stitched.achieved_goals is stitched.observations
    assert stitched.desired_goals is None
    assert (stitched.task, stitched.variant) == (STITCH, "regenerated")
    assert stitched.provenance["origin"] == "regenerated"
    assert stitched.observations.dtype == np.float32


def test_the_same_seed_gives_the_same_data_on_any_number_of_workers(stitched):
    again = collect(STITCH, "regenerated", episodes=30, workers=2)
    assert again.fingerprint() == stitched.fingerprint()
    # An episode depends on its own index only, not on what was played before.
    alone = regenerate({}, "pointmaze-medium-stitch-v0", 0, [17]).observations[0]
    np.testing.assert_array_equal(alone, stitched.episode(17).observations)
    other = regenerate({}, "pointmaze-medium-stitch-v0", 1, [17]).observations[0]
    assert not np.array_equal(alone, other)


def test_a_killed_collection_goes_on(stitched, tmp_path, monkeypatch):
    played, task = [], find(STITCH)

    def dies(memory, name, seed, span):
        if span.start:
            raise KeyboardInterrupt
        return counted(memory, name, seed, span)

    def counted(memory, name, seed, span):
        played.append(span)
        return regenerate(memory, name, seed, span)

    class Here:
        def map(self, function, arguments):
            return (function({}, *given) for given in arguments)

    for function in (dies, counted):
        monkeypatch.setattr(collection, "regenerate", function)
        if function is dies:
            with pytest.raises(KeyboardInterrupt):
                collect_to(tmp_path / "data", task, "regenerated", episodes=30, engine=Here())
    collect_to(tmp_path / "data", task, "regenerated", episodes=30, engine=Here())
    assert [span.start for span in played] == [0, 24]
    found = load(tmp_path / "data")
    assert found.fingerprint() == stitched.fingerprint()
    # States are their own goals, stored once and copied to the device once.
    assert not (tmp_path / "data" / "achieved_goals.npy").exists()
    assert found.achieved_goals is found.observations
    device = found.on_device()
    assert device.achieved_goals is device.observations


def test_stitched_episodes_end_four_cells_away(stitched):
    env = Maze("pointmaze-medium-stitch-v0")._env
    ways = []
    for index in range(len(stitched)):
        path = stitched.episode(index).observations
        cells = [env.xy_to_ij(state) for state in path]
        assert all(env.maze_map[cell] == 0 for cell in cells)
        distances = env.get_oracle_subgoal(path[0], path[0])[1]
        ways.append(int(distances[cells[-1]]))
    assert np.mean(np.array(ways) == 4) > 0.8
    # The point follows directions of length 1 with noise of deviation 0.5, clipped.
    assert np.abs(stitched.actions).max() == 1.0
    assert 0.6 < stitched.actions.std() < 0.8


def test_navigation_goes_from_goal_to_goal_on_the_shortest_way():
    memory = {}
    (path,) = regenerate(memory, NAVIGATE, 0, [1]).observations
    maze = memory["regenerating"][1]
    cells = {maze._env.xy_to_ij(state) for state in path}
    assert len(cells) > 15
    for (here, goal), kept in maze._next.items():
        there = np.array(maze._env.ij_to_xy(here)), np.array(maze._env.ij_to_xy(goal))
        np.testing.assert_array_equal(kept, maze._env.get_oracle_subgoal(*there)[0])


def check_arm(name):
    """Objects move, and an episode does not depend on those before it."""
    memory = {}
    first = regenerate(memory, name, 0, [5]).observations[0]
    regenerate(memory, name, 0, [6])
    np.testing.assert_array_equal(regenerate(memory, name, 0, [5]).observations[0], first)
    assert np.ptp(first[:, 19:], axis=0).max() > 0.5  # of the objects, in tenths of a metre


def test_an_arm_moves_its_cube(monkeypatch):
    name = "cube-single-play-v0"
    monkeypatch.setitem(SIZES, name, SIZES[name]._replace(states=90))
    check_arm(name)


@pytest.mark.more
@pytest.mark.parametrize(
    "name",
    ["cube-double-noisy-v0", "scene-play-v0", "scene-noisy-v0", "puzzle-3x3-noisy-v0"],
)
def test_arms_do_things_in_every_scene(name, monkeypatch):
    monkeypatch.setitem(SIZES, name, SIZES[name]._replace(states=400))
    check_arm(name)


# Downloads


def test_a_download_is_used_where_there_is_one(stitched):
    task = find(STITCH)
    assert default_variant(task) == "regenerated"
    file = download(stitched)
    assert default_variant(task) == "downloaded"
    found = load(collect_cached(task, "downloaded", episodes=task.episodes))
    assert (found.task, found.variant, found.source) == (STITCH, "downloaded", STITCH)
    assert found.provenance == {"origin": "downloaded", "read_from": str(file)}
    np.testing.assert_array_equal(found.observations, stitched.observations)
    np.testing.assert_array_equal(found.actions, stitched.actions)
    with pytest.raises(MerlinError, match="has a fixed number"):
        collect_cached(task, "downloaded", episodes=7)


def test_info_tells_where_data_is_from(stitched, call):
    download(stitched)
    told = json.loads(call("info", STITCH, "--json").out.splitlines()[-1])
    assert told["provenance"]["origin"] == told["variant"] == "downloaded"


def test_a_truncated_download_is_refused(stitched, capsys, tmp_path):
    file = download(stitched)
    file.write_bytes(file.read_bytes()[:-2000])
    for arguments in (["info", STITCH], ["train", STITCH, "--out", str(tmp_path / "run")]):
        said = refuse(arguments, capsys)
        assert str(file) in said
        assert "get it again" in said
    assert not (tmp_path / "run").exists()


def test_a_download_of_another_dataset_is_refused(capsys):
    download(merlin.collect("FetchReach", "random", episodes=2))
    assert "dimensions" in refuse(["info", STITCH], capsys)


ANT = "ogbench:antmaze-medium-navigate-v0"


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["collect", ANT, "--out", "OUT"], "does not ship"),
        (["train", ANT, "--out", "OUT"], "download antmaze-medium-navigate-v0.npz into"),
        (["bench", "ogbench", "--tasks", ANT, "--out", "OUT"], "does not ship"),
        (
            ["collect", ANT, "--variant", "regenerated", "--out", "OUT"],
            f"not available for {ANT}; choose downloaded.",
        ),
        (["info", STITCH], "is not downloaded"),
        (["info", "ogbench:pointmaze"], "did you mean ogbench:pointmaze-"),
        (["train", "ogbench:cube-play-v0", "--out", "OUT"], "did you mean ogbench:"),
        (["bench", "ogbench", "--tasks", "pointmaze-v0", "--out", "OUT"], "pointmaze-v0"),
        (["collect", STITCH, "--variant", "expert", "--out", "OUT"], "downloaded or regenerated"),
        (["collect", STITCH, "--variant", "downloaded", "--out", "OUT"], "merlin convert"),
        (["train", "PointReach", "--variant", "regenerated", "--out", "OUT"], "expert or random"),
    ],
)
def test_what_cannot_be_had_is_said_in_one_sentence(arguments, fragment, capsys, tmp_path):
    out = tmp_path / "out"
    said = refuse([str(out) if word == "OUT" else word for word in arguments], capsys)
    assert fragment in said
    assert not out.exists()
