"""Worker processes: order, errors, and that none is left behind."""

import os
import signal
import subprocess
import sys
import time

import pytest

from merlin.errors import MerlinError
from merlin.parallel.workers import Failure, Pool, default_workers


def square(memory, x):
    time.sleep(0.02 * (x % 3))  # so that they finish out of order
    memory["calls"] = memory.get("calls", 0) + 1
    return x * x


def calls(memory):
    return memory.get("calls", 0)


def fail(memory, kind):
    if kind == "input":
        raise MerlinError("this is what is wrong.")
    if kind == "exit":
        os._exit(3)
    if kind == "disk":
        raise OSError(28, "No space left on device", "data")
    raise ZeroDivisionError("oops")


def test_map_keeps_the_order_and_uses_everybody():
    with Pool(3) as pool:
        assert list(pool.map(square, [(x,) for x in range(20)])) == [x * x for x in range(20)]
        shares = pool.each(calls, [(), (), ()])
    assert sum(shares) == 20
    assert min(shares) > 0


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("input", MerlinError, "this is what is wrong"),
        ("bug", RuntimeError, "ZeroDivisionError: oops"),
        ("exit", MerlinError, "worker process died"),
        ("disk", MerlinError, "data: No space left on device"),
    ],
)
def test_errors_come_back(kind, error, message):
    pool = Pool(2)
    processes = [worker.process for worker in pool._workers]
    with pytest.raises(error, match=message):
        list(pool.map(fail, [(kind,)]))
    assert all(process.poll() is not None for process in processes)


def last_wish(memory, path, x):
    """Die at the first attempt, leave a note for the second."""
    if x == 1 and not os.path.exists(path):
        with open(path, "w"):
            os.kill(os.getpid(), signal.SIGKILL)
    return x * x


def test_outcomes_report_failures_and_go_on(tmp_path):
    with Pool(2) as pool:
        kinds = ["input", "bug", "exit"]
        found = dict(pool.outcomes(fail, [(kind,) for kind in kinds], attempts=2))
        assert found[0] == Failure("this is what is wrong.")
        assert found[1].message == "ZeroDivisionError: oops"
        assert "in fail" in found[1].trace
        assert "worker process died" in found[2].message
        # The dead were replaced.
        assert list(pool.map(square, [(x,) for x in range(5)])) == [0, 1, 4, 9, 16]


def test_a_job_whose_worker_was_killed_is_done_again(tmp_path):
    with Pool(2) as pool:
        jobs = [(str(tmp_path / "note"), x) for x in range(4)]
        assert dict(pool.outcomes(last_wish, jobs)) == {0: 0, 1: 1, 2: 4, 3: 9}
    assert (tmp_path / "note").exists()


def environment(memory):
    return default_workers(), os.environ["NPROC"]


def test_workers_know_how_many_cores_are_theirs(monkeypatch):
    with Pool(1, cores=3) as pool:
        assert pool.each(environment, [()]) == [(3, "3")]
    monkeypatch.setenv("MERLIN_CORES", "none")
    with pytest.raises(MerlinError, match="MERLIN_CORES: 'none' is not a number of cores"):
        default_workers()


@pytest.mark.parametrize("busy", [False, True])
def test_workers_end_with_the_process_that_started_them(busy):
    program = (
        "from merlin.parallel.workers import Pool\n"
        "import time\n"
        "pool = Pool(2)\n"
        "print(*(w.process.pid for w in pool._workers), flush=True)\n"
    )
    if busy:
        program += "from test_workers import doze\npool.each(doze, [(), ()])\n"
    program += "time.sleep(60)\n"
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])},
    )
    children = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(children) == 2
    if busy:
        time.sleep(1.0)  # for the jobs to begin
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, children))


def doze(memory):
    time.sleep(60)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


IN_A_TRAP = """
import sys
import merlin.collection.collect
sys.path.insert(0, "")
merlin.collect("Reacher", "random", episodes=1, workers=1)
"""


def test_workers_import_nothing_from_the_working_directory(tmp_path):
    """Nor from an empty entry of the path, which is the same folder."""
    for name in ("gymnasium", "mujoco", "merlin"):
        (tmp_path / f"{name}.py").write_text("open('PWNED', 'w')")
    command = [sys.executable, "-P", "-c", IN_A_TRAP]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    assert not (tmp_path / "PWNED").exists()
