"""The schema of a row: read and written in one way, old rows included."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from helpers.bench_cells import TINY
from merlin.bench.cells import make_row
from merlin.bench.results_folder import ResultsFolder
from merlin.bench.rows import Row, parse, read_rows
from merlin.errors import MerlinError

REQUIRED = {
    *("cell", "task", "variant", "algo", "seed", "updates"),
    *("asked", "command", "version", "status"),
}
RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("folder", ["paper", "ogbench", "pixels"])
def test_committed_rows_are_read_and_written_without_a_change(folder):
    path = RESULTS / folder / "rows.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    rows = read_rows(path)
    assert len(rows) > 5
    for line in lines:
        line.pop("sha256", None)  # verified on reading
    assert [json.loads(json.dumps(row.to_json())) for row in rows] == lines


def test_a_row_survives_its_file(tmp_path):
    row = make_row(
        TINY,
        final={"return": 1.5, "success": 0.5, "episodes": 10},
        curve=({"step": 1, "return": 1.0, "success": 0.0},),
        timing={"update_ms": 2.0, "action_us": {"1": 3.0}},
        seconds=3,
    )
    assert parse(json.loads(json.dumps(row.to_json())), "here") == row
    results = ResultsFolder(tmp_path)
    results.plan("paper", [TINY], "merlin bench paper")
    results.add(TINY, row)
    assert read_rows(tmp_path / "rows.jsonl") == [replace(row, grid="paper")]
    assert ResultsFolder(tmp_path).rows == {TINY.name: row}


def test_every_field_is_checked():
    """A value of no field's kind is refused in each of them, null where there is no default."""
    good = make_row(TINY).to_json()
    for name in (field.name for field in fields(Row)):
        with pytest.raises(MerlinError, match=rf"^here: {name} is .*; delete it"):
            parse(good | {name: object()}, "here")
        if name in REQUIRED:
            with pytest.raises(MerlinError, match=f"{name} is None"):
                parse(good | {name: None}, "here")
        else:
            parse(good | {name: None}, "here")
