"""Worker processes: order, errors, and that none is left behind."""

import os
import signal
import subprocess
import sys
import time

import pytest

from merlin.errors import MerlinError
from merlin.tasks.workers import Pool


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
        ("exit", RuntimeError, "worker process died"),
    ],
)
def test_errors_come_back(kind, error, message):
    pool = Pool(2)
    processes = list(pool._processes)
    with pytest.raises(error, match=message):
        list(pool.map(fail, [(kind,)]))
    assert all(process.poll() is not None for process in processes)


def test_workers_end_with_the_process_that_started_them():
    program = (
        "from merlin.tasks.workers import Pool\n"
        "import time\n"
        "pool = Pool(2)\n"
        "print(*(p.pid for p in pool._processes), flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    children = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(children) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, children))


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
