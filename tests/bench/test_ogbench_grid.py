"""The grid on OGBench: from nothing to rows, with the success at each goal."""

import json
from dataclasses import replace

import pytest

from helpers.bench_cells import TINY
from merlin.bench.cells import run_cell
from merlin.bench.grids import GridOptions, make_grid
from merlin.bench.rows import parse, read_rows
from merlin.collection.collect import collect_cached
from merlin.envs.registry import OGBENCH, find

MEDIUM = "ogbench:pointmaze-medium-navigate-v0"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home, so that no download of the developer's is found."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_the_grid_is_ogbench_s_protocol():
    cells = make_grid("ogbench", GridOptions(methods=("merlin", "gcsl")))
    assert len(cells) == 8 * 2 * 2
    assert {cell.variant for cell in cells} == {"regenerated"}
    assert {cell.final_episodes for cell in cells} == {250}
    assert {cell.updates for cell in cells} == {100_000}
    assert {cell.data_episodes for cell in cells} == {500, 1000, 5000}
    assert all("/" not in cell.name and ":" not in cell.name for cell in cells)


def test_other_datasets_are_named_with_or_without_the_prefix():
    names = ("cube-single-play-v0", "ogbench:puzzle-3x3-noisy-v0")
    cells = make_grid("ogbench", GridOptions(tasks=names, methods=("merlin",), seeds=1))
    assert [cell.task for cell in cells] == [find(name).name for name in names]


def test_a_row_tells_the_success_at_each_goal(call, tmp_path, monkeypatch):
    short = replace(find(MEDIUM), episode_steps=30, environments=5)
    monkeypatch.setitem(OGBENCH, MEDIUM, short)
    cell = replace(TINY, task=MEDIUM, variant="regenerated", eval_every=20, final_episodes=10)
    data = collect_cached(short, "regenerated", episodes=2)
    row = run_cell({}, cell, tmp_path / "cell", data)
    assert (row.task, row.variant, row.status) == (MEDIUM, "regenerated", "done")
    assert list(row.goals) == ["1", "2", "3", "4", "5"]
    assert row.final["success"] == pytest.approx(sum(row.goals.values()) / 5)
    assert "--variant regenerated --episodes 2" in row.data["command"]
    assert parse(row.to_json(), "here") == row
    words = ("eval", tmp_path / "cell" / "run", "--episodes", 10, "--json")
    told = json.loads(call(*words).out.splitlines()[-1])
    assert told["goals"] == row.goals


@pytest.mark.more
def test_from_nothing_to_a_report_in_two_commands(call, tmp_path):
    out = tmp_path / "maze"
    call(
        *("bench", "ogbench", "--tasks", "pointmaze-medium-navigate-v0", "--methods", "merlin"),
        *("--episodes", 3, "--updates", 20, "--seeds", 1, "--eval-every", 20),
        *("--final-episodes", 5, "--workers", 1, "--out", out),
    )
    (row,) = read_rows(out / "rows.jsonl")
    assert row.done
    call("report", out)
    page = (out / "report.md").read_text()
    assert "Regenerated data" in page
    assert "goal 5" in page
