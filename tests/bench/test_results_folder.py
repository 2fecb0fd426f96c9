"""The folder of a bench: what was planned, and rows that nothing loses."""

import shutil
from dataclasses import replace

import pytest

from helpers.bench_cells import TINY
from merlin.bench.cells import make_row
from merlin.bench.results_folder import ResultsFolder
from merlin.bench.rows import read_rows
from merlin.errors import MerlinError


def done(folder, *cells):
    """Plan the cells in a folder and add their rows, as the runner does, without training."""
    results = ResultsFolder(folder)
    results.plan("one", cells, "merlin bench one")
    for cell in results.missing(cells):
        results.add(cell, make_row(cell))


def test_a_folder_is_not_asked_for_two_things(tmp_path):
    done(tmp_path, TINY)
    longer = replace(TINY, updates=99)
    with pytest.raises(MerlinError, match="was run with updates=20, not 99; ask for the same"):
        ResultsFolder(tmp_path).plan("one", [longer], "")
    # Rows are enough: what was run elsewhere is not run again.
    (tmp_path / "cells" / TINY.name / "row.json").unlink()
    assert ResultsFolder(tmp_path).missing([TINY]) == []


def test_two_benches_in_one_folder_lose_nothing(tmp_path):
    first, second = TINY, replace(TINY, seed=7)
    folders = [ResultsFolder(tmp_path), None]
    folders[0].plan("one", [first], "merlin bench one")
    folders[1] = ResultsFolder(tmp_path)
    folders[1].plan("one", [second], "merlin bench one --seeds 2")
    for results, cell in zip(folders, (first, second), strict=True):
        results.add(cell, make_row(cell))
    folders[0].add(first, folders[0].rows[first.name])
    assert {row.cell for row in read_rows(tmp_path / "rows.jsonl")} == {first.name, second.name}
    assert len(ResultsFolder(tmp_path).about["commands"]) == 2


def test_what_a_kill_left_behind_does_not_block_a_folder(tmp_path):
    (tmp_path / ".merlin-0123.partial").write_text("{")
    assert ResultsFolder(tmp_path).rows == {}


def test_folders_of_others_are_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(MerlinError, match="is not empty and holds no benchmark"):
        ResultsFolder(tmp_path)
    (tmp_path / "bench.json").write_text('{"format": "merlin-bench", "schema": 99}')
    with pytest.raises(MerlinError, match="not of format merlin-bench 1"):
        ResultsFolder(tmp_path)
    (tmp_path / "bench.json").write_text(
        '{"format": "merlin-bench", "schema": 1, "grids": {}, "commands": []}'
    )
    (tmp_path / "rows.jsonl").write_text('{"cell": "a"}\n')
    with pytest.raises(MerlinError, match=r"rows\.jsonl line 1: has schema None, not 1; delete it"):
        ResultsFolder(tmp_path)


def test_grids_keep_what_they_share_in_a_folder_without_cells(tmp_path):
    """As results are committed: rows alone."""
    done(tmp_path, TINY, replace(TINY, grid="stitching"))
    before = read_rows(tmp_path / "rows.jsonl")
    assert [row.grid for row in before] == ["paper", "stitching"]
    shutil.rmtree(tmp_path / "cells")
    other = replace(TINY, seed=7)
    done(tmp_path, other)
    after = read_rows(tmp_path / "rows.jsonl")
    assert [row.grid for row in after] == ["paper", "paper", "stitching"]
    assert [row for row in after if row.cell != other.name] == before
