"""Running a grid: data first, then every cell that has no row yet."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from merlin.bench.board import Board
from merlin.bench.cells import failed_row, run_cell
from merlin.bench.grids import Cell
from merlin.data import load
from merlin.engines import Engine, check_engine, open_engine
from merlin.experts.collect import cached_path, collect_cached
from merlin.progress import Progress
from merlin.tasks.batch import default_workers
from merlin.tasks.registry import find
from merlin.tasks.workers import Failure

WAIT = 5.0
"""Seconds until cells that another bench is at are asked for again."""


def run_bench(
    name: str,
    cells: Sequence[Cell],
    out: str | Path,
    *,
    command: str,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    retry_failed: bool = False,
    quiet: bool = True,
) -> Board:
    """Run what is missing of a grid, and keep a row for every cell.

    Started again after a kill, no finished cell runs twice and none is lost. A cell that fails
    has its error in its row and stops nobody. Benches that run in one folder at the same time
    share its cells.
    """
    check_engine(engine, workers, address)
    board = Board(Path(out))
    board.plan(name, cells, command)
    missing = board.missing(cells, retry_failed=retry_failed)
    alone = [cell for cell in missing if cell.timed]
    together = [cell for cell in missing if not cell.timed]
    with Progress(f"bench {name}", len(missing), "cells", quiet=quiet) as bar:
        if together:
            running = open_engine(engine, workers=workers, address=address)
            _run(board, together, running, bar, 0, quiet)
        if alone:
            # One at a time with all cores: what else runs would be measured, too.
            running = open_engine(engine, workers=1, cores=default_workers(), address=address)
            _run(board, alone, running, bar, len(together), quiet)
    return board


def _run(
    board: Board, cells: Sequence[Cell], engine: Engine, bar: Progress, done: int, quiet: bool
) -> None:
    grace = 0.0  # whatever stops us: checkpoints are there, nobody waits for the rest
    try:
        data = _gather(cells, engine, quiet)
        jobs = [(cell, board.place(cell).absolute(), data[_data_of(cell)]) for cell in cells]
        while jobs:
            elsewhere = []
            for index, outcome in engine.outcomes(run_cell, jobs):
                cell = jobs[index][0]
                if outcome is None:
                    elsewhere.append(jobs[index])
                    continue
                row = failed_row(cell, outcome) if isinstance(outcome, Failure) else outcome
                board.add(cell, row)
                done += 1
                bar.update(done, _in_words(row), force=True)
            jobs = elsewhere
            if jobs:
                time.sleep(WAIT)
        grace = 5.0
    finally:
        engine.close(grace)


def _data_of(cell: Cell) -> tuple[str, str, int, bool]:
    """What tells the datasets of cells apart."""
    return cell.task, cell.variant, cell.data_episodes, cell.pixels


def _gather(cells: Sequence[Cell], engine: Engine, quiet: bool) -> dict[Any, Any]:
    """The datasets that the cells share, collected where they are not in the cache."""
    shared: dict[Any, Any] = {}
    for cell in cells:
        if _data_of(cell) in shared:
            continue
        task = find(cell.task)
        how: dict[str, Any] = {"episodes": cell.data_episodes, "pixels": cell.pixels}
        path = cached_path(task, cell.variant, **how)
        if not path.exists() and not quiet:
            print(f"collecting {cell.data_episodes} episodes into {path}", file=sys.stderr)
        collect_cached(task, cell.variant, **how, engine=engine, quiet=quiet)
        shared[_data_of(cell)] = engine.share(path.absolute(), load)
    return shared


def _in_words(row: dict[str, Any]) -> str:
    if row["status"] == "failed":
        return f"{row['cell']}: failed ({row['error']})"
    if row["final"] is None:
        return f"{row['cell']}: {row['timing']['update_ms']:.2f} ms per update"
    final = row["final"]
    return f"{row['cell']}: return {final['return']:.2f}, success {final['success']:.2f}"
