"""Local processes and Ray produce the same rows and data, even if a worker is killed."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import merlin
from helpers.bench_cells import content
from merlin.bench.rows import read_rows
from merlin.collection.collect import collect
from merlin.parallel.workers import Pool

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
    words = ("collect", "Reacher", "--episodes", 30)
    merlin_alone(*words, "--out", tmp_path / "local", "--workers", 1)
    merlin_alone(*words, "--out", tmp_path / "ray", "--engine", "ray", "--workers", 2)
    one, other = merlin.load(tmp_path / "local"), merlin.load(tmp_path / "ray")
    assert one.fingerprint() == other.fingerprint()


def test_one_engine_collects_for_several_tasks():
    alone = {task: collect(task, "random", episodes=4) for task in ("Reacher", "SawyerReach")}
    with Pool(1) as pool:
        for task in ("Reacher", "SawyerReach", "Reacher"):
            data = collect(task, "random", episodes=4, engine=pool)
            assert data.fingerprint() == alone[task].fingerprint()
