"""The benchmark runner: every cell is run once, with the same rows wherever it runs."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import product

import pytest

from helpers.bench_cells import SMALL, TINY, briefly_timed, content
from merlin.bench.cells import make_row
from merlin.bench.results_folder import ResultsFolder, cell_lock
from merlin.bench.rows import read_rows
from merlin.bench.runner import run_bench
from merlin.collection.collect import collect_cached
from merlin.envs.registry import TASKS, find
from merlin.io.files import write_json
from merlin.learners.registry import field_names
from merlin.report import selection

BROKEN = replace(TINY, settings=(("batch_size", "0"),))


def test_rows_tell_all_that_a_report_needs(tmp_path, monkeypatch):
    monkeypatch.setattr("merlin.bench.runner.run_cell", briefly_timed)
    swept = replace(TINY, grid="horizon", horizons=(1, 5))
    timed = replace(TINY, grid="timing", timed=True, updates=3)
    shared = replace(TINY, grid="stitching")
    cells = [TINY, shared, swept, timed, BROKEN]
    results = run_bench("mixed", cells, tmp_path, command="merlin bench mixed", workers=1)
    rows = read_rows(tmp_path / "rows.jsonl")
    assert [row.grid for row in rows] == ["paper", "paper", "stitching", "horizon", "timing"]
    plain, broken, again, sweep, time_row = rows
    # What two grids share was run once.
    assert replace(again, grid="paper") == plain
    assert sorted(path.name for path in (tmp_path / "cells").iterdir()) == sorted(
        cell.name for cell in (TINY, swept, timed, BROKEN)
    )
    assert plain.final["episodes"] == 10
    assert plain.settings == dict(SMALL)
    tuned = TASKS[plain.task].tuned[plain.variant]
    assert plain.learner["hindsight_ratio"] == tuned.hindsight_ratio
    assert plain.learner["horizon"] == tuned.horizon
    assert plain.data["command"] == (
        "merlin collect PointReach --variant random --episodes 20 --seed 0"
    )
    assert {"cpu", "cores", "python", "packages"} <= plain.machine.keys()
    assert sweep.horizons.keys() == {"1", "5"}
    # PointReach is told 1 by default, so the sweep meets the final score there.
    assert sweep.horizons["1"] == {
        key: value for key, value in sweep.final.items() if key != "episodes"
    }
    assert time_row.final is None
    assert time_row.timing["update_ms"] > 0
    assert time_row.timing["action_us"].keys() == {"1", "100"}
    assert time_row.timing["before_s"] > 0
    # A failure is recorded and stops nobody.
    assert (broken.status, broken.error) == (
        "failed",
        "batch_size: 0 is not a size; sizes start at 1.",
    )
    assert results.missing(cells) == []
    assert results.missing(cells, retry_failed=True) == [BROKEN]


def test_rows_do_not_wait_for_data_that_they_do_not_need(tmp_path, monkeypatch):
    def collect(task, *arguments, **how):
        rows = tmp_path / "rows.jsonl"
        began.append((task.name, len(read_rows(rows)) if rows.exists() else 0))
        return collect_cached(task, *arguments, **how)

    began: list[tuple[str, int]] = []
    monkeypatch.setattr("merlin.bench.runner.collect_cached", collect)
    monkeypatch.setattr("merlin.bench.runner.LEAST_BATCH", 1)
    first, second = replace(TINY, episodes=21), replace(TINY, task="PointRooms", episodes=21)
    cells = [first, second, replace(first, seed=1)]
    run_bench("two", cells, tmp_path, command="merlin bench two", workers=1)
    assert began == [("PointReach", 0), ("PointRooms", 1)]
    assert [row.status for row in read_rows(tmp_path / "rows.jsonl")] == ["done"] * 3


def test_what_a_kill_left_in_the_cache_is_removed(tmp_path, monkeypatch):
    """Also by commands that write no dataset, because it is complete or not needed."""
    monkeypatch.setenv("MERLIN_DATA", str(tmp_path / "cache"))
    task, left = find("PointReach"), tmp_path / "cache" / ".merlin-dead.partial"

    def leave():
        left.mkdir(parents=True)
        os.utime(left, (0, 0))

    collect_cached(task, "random", episodes=2)
    leave()
    collect_cached(task, "random", episodes=2)
    assert not left.exists()
    leave()
    run_bench("none", [], tmp_path / "out", command="merlin bench none")
    assert not left.exists()


def test_a_cell_that_another_bench_is_at_is_left_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr("merlin.bench.runner.WAIT", 0.2)
    theirs, ours = TINY, replace(TINY, seed=1)
    place = tmp_path / "cells" / theirs.name
    row = make_row(theirs, timing={"update_ms": 1.0})

    def other_bench():
        with cell_lock(place) as mine:
            taken.append(mine)
            while not (tmp_path / "cells" / ours.name / "row.json").exists():
                time.sleep(0.05)
            time.sleep(0.5)  # until it is asked for again
            write_json(place / "row.json", row.to_json())

    taken: list[bool] = []
    ResultsFolder(tmp_path).plan("one", [theirs], "merlin bench one")
    other = threading.Thread(target=other_bench)
    other.start()
    while not taken:
        time.sleep(0.01)
    with cell_lock(place) as mine:
        assert taken == [True]
        assert not mine
    results = run_bench("one", [theirs, ours], tmp_path, command="merlin bench one", workers=1)
    other.join()
    assert {name: r.status for name, r in results.rows.items()} == dict.fromkeys(
        (theirs.name, ours.name), "done"
    )
    assert not (place / "run").exists()
    assert results.rows[theirs.name].timing == {"update_ms": 1.0}


@pytest.mark.more
def test_the_command_of_a_cell_trains_its_policy(call, tmp_path):
    """Run by itself, in a process with as many cores, it is the same to the byte."""
    results = run_bench("one", [TINY], tmp_path / "bench", command="none")
    row = results.rows[TINY.name]
    words = row.command.replace("RUN", str(tmp_path / "alone")).split()
    assert words[:2] == ["NPROC=1", "merlin"]
    program = "import sys; from merlin.cli import main; main(sys.argv[1:])"
    subprocess.run(
        [sys.executable, "-c", program, *words[2:]],
        env={**os.environ, "NPROC": "1"},
        check=True,
        capture_output=True,
    )
    policies = [
        folder / "seed-0" / "policy.safetensors"
        for folder in (tmp_path / "alone", results.place(TINY) / "run")
    ]
    assert policies[0].read_bytes() == policies[1].read_bytes()
    result = json.loads((tmp_path / "alone" / "result.json").read_text())
    assert result["final"]["return"]["mean"] == pytest.approx(row.final["return"], abs=1e-4)
    assert row.best["step"] in (10, 20)
    assert [look["step"] for look in row.curve] == [10, 20]


@pytest.mark.more
def test_cells_learn_from_the_same_trajectories_as_alone(tmp_path):
    """What one cell stitches the other finds there; alone, each has the same row."""
    quick = (*SMALL, ("encoder_epochs", "1"), ("threshold", "auto"))
    cells = [replace(TINY, algo=name, settings=quick) for name in ("merlin-ts", "gcsl-ts")]
    together = run_bench("two", cells, tmp_path / "both", command="merlin bench two")
    assert len(list((tmp_path / "both" / "cells" / "shared").iterdir())) == 1
    for cell in cells:
        alone = run_bench("one", [cell], tmp_path / cell.algo, command="merlin bench one")
        one, other = together.rows[cell.name], alone.rows[cell.name]
        assert content([one]) == content([other])
        assert one.done
        assert one.augmentation["trajectories"] > 0


@pytest.mark.more
def test_cells_from_images(tmp_path):
    """From the images themselves, and from what an encoder makes of them."""
    plain = replace(TINY, pixels=True, updates=2, eval_every=2, eval_episodes=2, final_episodes=2)
    latents = replace(plain, settings=(*plain.settings, ("latent_updates", "3")))
    cells = [plain, latents]
    results = run_bench("two", cells, tmp_path, command="merlin bench two --pixels", workers=1)
    for cell in cells:
        row = results.rows[cell.name]
        assert (row.status, row.pixels, row.error) == ("done", True, None)
        assert row.data["name"] == "PointReach random, 20 episodes of images"
        encoder = results.place(cell) / "run" / "seed-0" / "encoder.safetensors"
        assert encoder.exists() == (cell is latents)
    methods = {row.method for row in selection.read([tmp_path])}
    assert methods == {"merlin (hidden=16)", "merlin (latents, hidden=16)"}


def timed_cell(algo, pixels):
    quick = {"hidden": "16", "batch_size": "8", "encoder_max_updates": "2", "threshold": "auto"}
    quick |= {"model_epochs": "1", "dynamics_width": "8", "margin": "1e9"}
    if pixels and algo in ("merlin-p", "beso"):
        quick |= {"latent_updates": "2"}
    known = field_names(algo) | {"latent_updates"}
    settings = tuple((name, value) for name, value in quick.items() if name in known)
    preset = "small" if algo == "beso" else None
    cell = replace(TINY, algo=algo, preset=preset, settings=settings, timed=True, updates=2)
    return replace(cell, pixels=pixels)


@pytest.mark.more
def test_the_time_of_every_kind_of_method(tmp_path, monkeypatch):
    """Merlin sees images itself; the others are given what is made before the first update."""
    monkeypatch.setattr("merlin.bench.runner.run_cell", briefly_timed)
    kinds = list(product(("merlin", "merlin-np", "merlin-p", "beso"), (False, True)))
    cells = {kind: timed_cell(*kind) for kind in kinds}
    command = "merlin bench all"
    results = run_bench("all", list(cells.values()), tmp_path, command=command, workers=1)
    for (algo, pixels), cell in cells.items():
        row = results.rows[cell.name]
        assert row.error is None, cell.name
        assert min(row.timing["update_ms"], *row.timing["action_us"].values()) > 0, cell.name
        # No machine trains an encoder or a model in less, with its compilation.
        makes = algo in ("merlin-np", "merlin-p") or (pixels and algo == "beso")
        assert row.timing["before_s"] > (0.3 if makes else 0.0), cell.name
