"""The rows of a benchmark, as a report reads them."""

import pytest

from helpers import bench_rows
from helpers.bench_rows import parse, scored
from merlin.errors import MerlinError
from merlin.report import selection


def test_rows_are_read_in_the_order_of_the_paper(tmp_path):
    made = [bench_rows.row("Reacher"), bench_rows.row(algo="gcsl"), bench_rows.row(seed=1)]
    made += [bench_rows.row("PointReach"), bench_rows.row(variant="expert")]
    found = selection.read([bench_rows.write(tmp_path / "a", made)])
    assert [(r.task, r.variant, r.algo, r.seed) for r in found] == [
        ("PointReach", "expert", "merlin", 0),
        ("PointReach", "random", "merlin", 0),
        ("PointReach", "random", "merlin", 1),
        ("PointReach", "random", "gcsl", 0),
        ("Reacher", "random", "merlin", 0),
    ]


def test_an_unfinished_last_line_is_no_row(tmp_path):
    folder = bench_rows.write(tmp_path, [bench_rows.row()])
    with (folder / "rows.jsonl").open("a") as file:
        file.write('{"schema": 1, "grid": "pa')
    assert len(selection.read([folder])) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 2}, "schema 2"),
        ({"task": None}, "task is None"),
        ({"seed": "0"}, "seed is '0'"),
        ({"status": "maybe"}, "neither done nor failed"),
        ({"final": {"return": float("nan"), "success": 1.0}}, "final.return is nan"),
        ({"final": {"return": 3.0}}, "final.success is None"),
        ({"best": {"return": "x", "success": 1.0}}, "best.return is 'x'"),
        ({"curve": [{"step": 1, "return": None, "success": 0}]}, "curve.return is None"),
        ({"curve": [3]}, "curve"),
        ({"settings": [1]}, "settings"),
        ({"horizons": {"1": 4}}, "horizons"),
        ({"timing": {"update_ms": "fast"}}, "timing.update_ms"),
        ({"timing": 3}, "timing"),
        ({"final": 3}, "final"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path, change, said):
    folder = bench_rows.write(tmp_path, [bench_rows.row(), bench_rows.row(seed=1) | change])
    with pytest.raises(MerlinError) as caught:
        selection.read([folder])
    assert f"{folder / 'rows.jsonl'} line 2: " in str(caught.value)
    assert said in str(caught.value)


def test_folders_that_are_none_are_refused(tmp_path):
    with pytest.raises(MerlinError, match="give a run, or folders"):
        selection.read([])
    with pytest.raises(MerlinError, match="not a run folder or a bench folder"):
        selection.read([tmp_path])
    folder = bench_rows.write(tmp_path / "empty", [], grids=["paper"])
    with pytest.raises(MerlinError, match="no rows yet"):
        selection.read([folder])
    (folder / "bench.json").write_text('{"format": "other"}')
    with pytest.raises(MerlinError, match="not of format"):
        selection.read([folder])
    folder = bench_rows.write(tmp_path / "lines", [bench_rows.row()])
    (folder / "rows.jsonl").write_text("nonsense\n{}\n")
    with pytest.raises(MerlinError, match=r"line 1: is not JSON"):
        selection.read([folder])


def test_a_cell_counts_once_and_longer_runs_win():
    made = [
        scored(1.0, seed=0, finished="2026-01-01"),
        scored(2.0, seed=0, finished="2026-01-02"),
        scored(3.0, seed=1, updates=9000),
        bench_rows.failed("x", seed=1, updates=20_000),
        scored(5.0, seed=0, task="Reacher", updates=100),
    ]
    found = selection.select(parse(made))
    assert sorted(row.final["return"] for row in found) == [3.0, 5.0]
    assert [r.final["return"] for r in selection.select(parse(made[:2]))] == [2.0]


def test_a_failure_that_was_made_good_is_none():
    made = parse([bench_rows.failed("x", seed=0), bench_rows.failed("y", seed=1), scored(1.0)])
    assert [row.error for row in selection.failures(made)] == ["y"]
