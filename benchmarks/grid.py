"""How much of the cores `merlin bench` uses while it has cells left.

    python benchmarks/grid.py

Runs a small grid and reads the processor time of its process and all that it started, up to the
moment at which the last cell is taken. The rest of that time is waiting. Goal: 85 % of the cores.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

UPDATES = 4000
CELLS = 10
TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(root: int) -> float:
    """User and system time of a process and its descendants, alive or waited for."""
    parents, times = {}, {}
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(entry)] = int(fields[1])
        times[int(entry)] = sum(map(int, fields[11:15])) / TICKS
    total = 0.0
    for process in parents:
        ancestor = process
        while ancestor not in (root, 0, 1):
            ancestor = parents.get(ancestor, 0)
        total += times[process] if ancestor == root else 0.0
    return total


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "bench"
        program = "import sys; from merlin.cli import main; main(sys.argv[1:])"
        words = ["bench", "hindsight", "--tasks", "PointReach", "--seeds", str(CELLS // 10)]
        words += ["--updates", str(UPDATES), "--out", str(out)]
        bench = subprocess.Popen([sys.executable, "-c", program, *words])
        while not (out / "cells").exists():  # data is collected first
            time.sleep(0.1)
        began, before = time.monotonic(), processor_seconds(bench.pid)
        while len(list(out.glob("cells/*/row.json"))) < CELLS - cores:
            assert bench.poll() is None, "the bench ended early"
            time.sleep(0.2)
        wall, used = time.monotonic() - began, processor_seconds(bench.pid) - before
        bench.wait()
    print(
        f"{used:.1f} of {cores} x {wall:.1f} s: {used / wall / cores:.2f} of the cores (goal 0.85)"
    )


if __name__ == "__main__":
    main()
