"""What the system refuses is one sentence and exit code 1; a bench says which cells failed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.bench_rows import row, write
from helpers.breaking import plain_json
from helpers.commands import merlin_command
from merlin.cli import main
from merlin.collection.collect import collect_to
from merlin.envs.registry import TASKS
from merlin.errors import MerlinError
from merlin.io.locks import lock


def stopped(arguments, capsys):
    """Exit code and the one sentence."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr().err
    assert said.startswith("merlin: ")
    assert said.count("\n") == 1, said
    return stop.value.code, said


def test_a_name_that_is_too_long(point_folder, tmp_path, capsys):
    for words in (
        ["info", "n" * 300],
        ["eval", tmp_path / ("n" * 300)],
        ["convert", point_folder, tmp_path / ("n" * 300 + ".npz")],
        ["collect", "PointReach", "--episodes", 1, "--out", tmp_path / ("n" * 300)],
    ):
        code, said = stopped(words, capsys)
        assert code in (1, 2)
        assert "name too long" in said.lower()
    assert list(tmp_path.iterdir()) == []


def test_a_full_output_and_a_closed_one():
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", "from merlin.cli import main; main()", "tasks"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert ended.stderr == (
        "merlin: No space left on device; no partial files are left, fix this and try again.\n"
    )
    closed = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -c 'from merlin.cli import main; main()' tasks >&-"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert closed.returncode == 1
    assert closed.stderr.startswith("merlin: stdout is closed")


TINY = ["--tasks", "PointReach", "--methods", "gcsl", "--seeds", "1", "--variants", "random"]
TINY += ["--updates", "2", "--episodes", "3", "--final-episodes", "2", "--workers", "1"]


@pytest.mark.more
def test_a_bench_with_failed_cells_exits_with_1_and_says_which(tmp_path, monkeypatch):
    monkeypatch.setenv("MERLIN_DATA", str(tmp_path / "data"))
    ended = merlin_command(
        "bench", "paper", *TINY, "--out", "b", "--dry-run", "--json", cwd=tmp_path
    )
    (cell,) = json.loads(ended.stdout.splitlines()[-1])["cells"]
    # The cell finds something in its place that is no run.
    run = tmp_path / "b" / "cells" / cell / "run"
    run.mkdir(parents=True)
    (run / "thesis.txt").write_text("mine")
    (tmp_path / "b" / "bench.json").write_text(
        json.dumps({"format": "merlin-bench", "schema": 1, "grids": {}, "commands": []})
    )
    ended = merlin_command("bench", "paper", *TINY, "--out", "b", "--json", cwd=tmp_path)
    assert ended.returncode == 1
    assert json.loads(ended.stdout.splitlines()[-1])["failed"] == [cell]
    assert ended.stderr.splitlines()[-1].startswith(f"merlin: 1 of 1 cells failed: {cell}; ")


def test_a_place_is_collected_into_by_one_process(tmp_path):
    out = tmp_path / "data"
    held = lock(tmp_path / ".data.lock", "held")
    with (
        held,
        pytest.raises(MerlinError, match=rf"data: is in use by process {os.getpid()} on \S+;"),
    ):
        collect_to(out, TASKS["PointReach"], "random", episodes=1)
    collect_to(out, TASKS["PointReach"], "random", episodes=1)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    stamp = (out / "meta.json").stat().st_mtime_ns
    collect_to(out, TASKS["PointReach"], "random", episodes=1, wait=True)
    assert (out / "meta.json").stat().st_mtime_ns == stamp  # what the first made is taken


EVIL = "../../x}\\input{/etc/passwd}%$^^5c\n<script>alert(1)</script>"


def test_names_in_rows_are_text_in_a_report(tmp_path, call):
    rows = [row(seed=s, grid=EVIL, command=EVIL, version=EVIL) for s in (0, 1)]
    rows = [{**made, "task": EVIL, "variant": EVIL, "algo": EVIL} for made in rows]
    bench = write(tmp_path / "a" / "b" / "bench", rows)
    before = set(tmp_path.rglob("*"))
    call("report", bench)
    assert all(bench in path.parents for path in set(tmp_path.rglob("*")) - before)
    tex, page = (bench / "tables.tex").read_text(), (bench / "report.html").read_text()
    assert "\\input{" not in tex
    assert "^^" not in tex
    assert "<script>alert" not in page
    labels = [line for line in tex.splitlines() if line.startswith("\\label{")]
    assert all(set(line[len("\\label{") : -1]) <= LABEL for line in labels), labels


LABEL = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-:.")
"""What a label of TeX may have without any escaping."""


EVIL_NAME = "\x1b]0;pwned\x07\x1b[2J\r[/red]\x9b"


def test_names_in_files_do_not_command_the_terminal(point_folder, tmp_path, call, capsys):
    data = tmp_path / "data"
    shutil.copytree(point_folder, data)
    meta = plain_json(data / "meta.json")
    meta["provenance"] = {EVIL_NAME: EVIL_NAME, "log": {"state_names": [EVIL_NAME] * 2}}
    (data / "meta.json").write_text(json.dumps({**meta, "variant": EVIL_NAME}))
    said = call("info", data).out
    assert r"\x1b]0;pwned\x07" in said
    assert "[/red]" in said
    with pytest.raises(SystemExit):
        main(["info", f"{EVIL_NAME}.csv"])
    said += capsys.readouterr().err
    assert not set("\x1b\x07\r\x9b") & set(said)


@pytest.mark.parametrize("name", ["MERLIN_CORES", "MERLIN_MAX_RATIO"])
def test_a_variable_of_5000_digits(tmp_path, monkeypatch, capsys, name):
    monkeypatch.setenv(name, "9" * 5000)
    one = np.zeros((3, 2), np.float32)
    np.savez(tmp_path / "a.npz", observations=one, actions=one, terminals=[0, 0, 1])
    words = {
        "MERLIN_CORES": ["collect", "Reacher", "--episodes", 2, "--out", tmp_path / "d"],
        "MERLIN_MAX_RATIO": ["info", tmp_path / "a.npz"],
    }
    code, said = stopped(words[name], capsys)
    assert code == 2
    assert said.startswith(f"merlin: {name}: '99999999999999999999' is not a")


def test_a_name_that_is_no_text(point_folder, tmp_path):
    """Names of files are bytes, and not all of them are letters of the terminal."""
    data = shutil.copytree(point_folder, tmp_path / os.fsdecode(b"\xff\xc3\xbc"))
    command = [sys.executable, "-c", "from merlin.cli import main; main()", "info", data]
    for encoding in ("utf-8", "ascii"):
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        ended = subprocess.run(command, capture_output=True, env=environment)
        assert ended.returncode == 0, ended.stderr
        assert rb"/\udcff" in ended.stdout
