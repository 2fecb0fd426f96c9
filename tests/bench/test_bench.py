"""The benchmark runner: every cell is run once, with the same rows wherever it runs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from helpers.bench_cells import SMALL, TINY
from merlin.bench.cells import make_row
from merlin.bench.choice import Choice
from merlin.bench.grids import make_grid
from merlin.bench.results_folder import ResultsFolder, cell_lock
from merlin.bench.rows import read_rows
from merlin.bench.runner import run_bench
from merlin.errors import MerlinError
from merlin.io.files import write_json
from merlin.learners.registry import field_names
from merlin.parallel.workers import Pool
from merlin.report import selection

BROKEN = replace(TINY, settings=(("batch_size", "0"),))
WHEN = ("seconds", "finished", "timing")
"""What two runs of the same cell may differ in."""


def content(rows):
    return [{k: v for k, v in row.to_json().items() if k not in WHEN} for row in rows]


def test_rows_tell_all_that_a_report_needs(tmp_path):
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


def test_folders_of_others_are_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(MerlinError, match="is not empty and holds no bench"):
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


BENCH = ["hindsight", "--tasks", "PointReach", "--variants", "random", "--eval-every", "20"]
BENCH += ["--updates", "40", "--episodes", "20", "--final-episodes", "10"]


def bench(out, *more):
    program = "import sys; from merlin.cli import main; main(sys.argv[1:])"
    words = [sys.executable, "-c", program, "bench", *BENCH, "--out", str(out), *more]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.mark.more
def test_killed_and_started_again_nothing_runs_twice_and_nothing_is_lost(tmp_path):
    out = tmp_path / "bench"
    finished = {}
    for kill_after in (1, 2):
        process = bench(out)
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            done = list(out.glob("cells/*/row.json"))
            if len(done) >= len(finished) + kill_after:
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
        rows = {path: path.read_bytes() for path in out.glob("cells/*/row.json")}
        assert len(rows) >= len(finished) + kill_after
        for path, before in finished.items():
            assert rows[path] == before  # it would have another time of finishing
        finished = rows
    process = bench(out)
    _, log = process.communicate(timeout=240)
    assert process.returncode == 0, log
    rows = read_rows(out / "rows.jsonl")
    assert len({row.cell for row in rows}) == len(rows) == 5
    assert {row.status for row in rows} == {"done"}
    for path, before in finished.items():
        assert path.read_bytes() == before


def ray_workers():
    """Processes of Ray that are at a job of ours."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read().startswith(b"ray::_job"):
                    found.append(int(pid))
        except OSError:
            continue
    return found


def merlin_alone(*words):
    """A command in a process of its own: Ray forks, which a process that runs JAX should not."""
    program = "import sys; from merlin.cli import main; main(sys.argv[1:])"
    words = [str(word) for word in words]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.more
def test_ray_gives_the_same_rows_and_survives_a_lost_worker(tmp_path):
    words = ("bench", "paper", "--methods", "merlin", "--seeds", 3, *BENCH[1:])
    merlin_alone(*words, "--out", tmp_path / "local")
    killed = []

    def kill_one():
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and not killed:
            for pid in ray_workers()[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.05)

    killer = threading.Thread(target=kill_one)
    killer.start()
    merlin_alone(*words, "--engine", "ray", "--workers", 2, "--out", tmp_path / "ray")
    killer.join()
    assert killed
    local, away = (content(read_rows(tmp_path / name / "rows.jsonl")) for name in ("local", "ray"))
    assert [row["status"] for row in local] == ["done"] * 3
    assert away == local


@pytest.mark.more
def test_ray_collects_the_same_data(tmp_path):
    import merlin

    words = ("collect", "Reacher", "--episodes", 30)
    merlin_alone(*words, "--out", tmp_path / "local", "--workers", 1)
    merlin_alone(*words, "--out", tmp_path / "ray", "--engine", "ray", "--workers", 2)
    one, other = merlin.load(tmp_path / "local"), merlin.load(tmp_path / "ray")
    assert one.fingerprint() == other.fingerprint()


def test_one_engine_collects_for_several_tasks():
    from merlin.collection.collect import collect

    alone = {task: collect(task, "random", episodes=4) for task in ("Reacher", "SawyerReach")}
    with Pool(1) as pool:
        for task in ("Reacher", "SawyerReach", "Reacher"):
            data = collect(task, "random", episodes=4, engine=pool)
            assert data.fingerprint() == alone[task].fingerprint()


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


@pytest.mark.more
@pytest.mark.parametrize("latents", [False, True])
def test_a_cell_from_images(tmp_path, latents):
    cell = replace(TINY, pixels=True, updates=2, eval_every=2, eval_episodes=2, final_episodes=2)
    if latents:
        cell = replace(cell, settings=(*cell.settings, ("latent_updates", "3")))
    results = run_bench("one", [cell], tmp_path, command="merlin bench one --pixels", workers=1)
    row = results.rows[cell.name]
    assert (row.status, row.pixels, row.error) == ("done", True, None)
    assert row.data["name"] == "PointReach random, 20 episodes of images"
    (found,) = selection.read([tmp_path])
    assert found.method == ("merlin (latents, hidden=16)" if latents else "merlin (hidden=16)")
    assert (results.place(cell) / "run" / "seed-0" / "encoder.safetensors").exists() == latents


@pytest.mark.more
@pytest.mark.parametrize("pixels", [False, True], ids=["states", "images"])
@pytest.mark.parametrize("algo", ["merlin", "merlin-np", "merlin-p", "beso"])
def test_the_time_of_every_kind_of_method(tmp_path, algo, pixels):
    """Merlin sees images itself; the others are given what is made before the first update."""
    quick = {"hidden": "16", "batch_size": "8", "encoder_max_updates": "2", "threshold": "auto"}
    quick |= {"model_epochs": "1", "dynamics_width": "8", "margin": "1e9"}
    if pixels and algo in ("merlin-p", "beso"):
        quick |= {"latent_updates": "2"}
    known = field_names(algo) | {"latent_updates"}
    settings = tuple((name, value) for name, value in quick.items() if name in known)
    preset = "small" if algo == "beso" else None
    cell = replace(TINY, algo=algo, preset=preset, settings=settings, timed=True, updates=2)
    cell = replace(cell, pixels=pixels)
    results = run_bench("one", [cell], tmp_path, command="merlin bench one", workers=1)
    row = results.rows[cell.name]
    assert row.error is None
    assert min(row.timing["update_ms"], *row.timing["action_us"].values()) > 0
    # No machine trains an encoder or a model in less, with its compilation.
    makes = algo in ("merlin-np", "merlin-p") or (pixels and algo == "beso")
    assert row.timing["before_s"] > (0.3 if makes else 0.0)


def test_an_encoder_has_half_of_the_updates():
    choice = Choice(tasks=("PointReach",), methods=("merlin",), seeds=1, pixels=True, latents=True)
    (cell, _) = make_grid("paper", choice)
    half, goals = ("latent_updates", "2500"), ("latent_units", "false")
    assert (cell.updates, cell.settings) == (2500, (half, goals))
    assert cell.command.endswith("--set latent_updates=2500 latent_units=false --out RUN")
    # A door's goal is not all of its state.
    (cell, _) = make_grid("paper", replace(choice, tasks=("SawyerDoor",)))
    assert cell.settings == (half,)
    with pytest.raises(MerlinError, match="latents: are made of images; give `pixels` as well"):
        make_grid("paper", replace(choice, pixels=False))


# The command


def test_dry_run_says_what_would_run_and_for_how_long(call):
    words = ("bench", "paper", "--tasks", "PointReach", "FetchPush", "--methods", "merlin")
    text = call(*words, "--seeds", 2, "--dry-run").out
    assert "PointReach-expert-merlin-s1" in text
    assert "8 cells, 8 to run, about" in text
    found = json.loads(call(*words, "--seeds", 2, "--dry-run", "--json").out)
    assert (len(found["cells"]), found["missing"]) == (8, 8)
    longer = json.loads(call(*words, "--seeds", 4, "--dry-run", "--json").out)
    assert longer["seconds"] > 1.5 * found["seconds"]


def test_a_plan_says_what_is_there_and_what_is_missing(call, tmp_path):
    words = ("bench", "paper", "--tasks", "PointReach", "--methods", "merlin", "dd")
    cells = make_grid("paper", Choice(tasks=("PointReach",), methods=("merlin", "dd")))
    results = ResultsFolder(tmp_path)
    results.plan("paper", cells, "merlin bench paper")
    done = next(cell for cell in cells if (cell.variant, cell.algo) == ("random", "merlin"))
    results.add(done, make_row(done, timing={"update_ms": 5.0}))
    text = call(*words, "--plan", "--out", tmp_path).out
    random = next(line for line in text.splitlines() if "PointReach random" in line)
    assert "1 of 4" in random
    assert "merlin 2 (" in random
    assert "8 cells, 7 to run, about" in text
    found = json.loads(call(*words, "--plan", "--out", tmp_path, "--json").out)
    shares = {(s["variant"], s["method"]): (s["done"], s["missing"]) for s in found["shares"]}
    assert shares == {
        ("expert", "merlin"): (0, 3),
        ("expert", "dd (small)"): (0, 1),
        ("random", "merlin"): (1, 2),
        ("random", "dd (small)"): (0, 1),
    }
    assert found["seconds"] > 0
    assert not list((tmp_path / "cells").glob("*/run"))


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["papper"], "grid: 'papper' is none of paper"),
        (["paper"], "--out: is missing"),
        (["paper", "--tasks", "FetchPsh"], "FetchPsh"),
        (["paper", "--variants", "medium"], "--variants: 'medium'"),
        (["paper", "--methods", "merlim"], "no method is called 'merlim'; did you mean 'merlin'"),
        (["paper", "--seeds", "0"], "--seeds: 0 is not 1 or more"),
        (["paper", "--seed", "-1"], "--seed: -1 is negative"),
        (["paper", "--preset", "huge"], "no method of the grid has a preset 'huge'"),
        (
            ["smoke", "--engine", "cloud", "--out", "OUT"],
            "--engine: 'cloud' is unknown; choose local or ray",
        ),
        (["smoke", "--address", "auto", "--out", "OUT"], "--address: applies only to --engine ray"),
        (["smoke", "--workers", "0", "--out", "OUT"], "--workers: 0 is below 1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_run_is_said_in_a_sentence(call, capsys, tmp_path, words, fragment):
    words = [word.replace("OUT", str(tmp_path / "out")) for word in words]
    with pytest.raises(SystemExit) as stop:
        call("bench", *words)
    assert stop.value.code == 2
    assert fragment in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
