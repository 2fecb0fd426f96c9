"""Run a grid: every cell that has no row yet, after collecting its data."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from merlin.bench.cells import failed_row, run_cell
from merlin.bench.estimate import Speeds
from merlin.bench.grids import Cell
from merlin.bench.results_folder import ResultsFolder
from merlin.bench.rows import Row
from merlin.bench.schedule import in_order
from merlin.collection.collect import cache_folder, cached_path, collect_cached
from merlin.data import load
from merlin.envs.ogbench import DOWNLOADED
from merlin.envs.registry import find
from merlin.io.files import sweep
from merlin.io.progress import Progress
from merlin.parallel.engine import Engine, check_engine, open_engine
from merlin.parallel.workers import Failure, default_workers

WAIT = 5.0
"""Seconds between attempts to run cells that another process has locked."""
LEAST_BATCH = 8
"""Cells to run between two collections. Small batches leave workers idle at their end."""


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
) -> ResultsFolder:
    """Run the missing cells of a grid, and store a row for each.

    After a kill, a restart repeats no finished cell and loses none. A failed cell stores its error
    in its row and does not stop the others. Processes that run in the same folder share its cells.
    """
    check_engine(engine, workers, address)
    results = ResultsFolder(Path(out))
    results.plan(name, cells, command)
    sweep(cache_folder())  # a bench that was killed may have left part of a dataset
    missing = in_order(results.missing(cells, retry_failed=retry_failed), Speeds().seconds)
    alone = [cell for cell in missing if cell.timed]
    together = [cell for cell in missing if not cell.timed]
    with Progress(f"bench {name}", len(missing), "cells", quiet=quiet) as bar:
        if together:
            running = open_engine(engine, workers=workers, address=address)
            _run(results, together, running, bar, 0, quiet)
        if alone:
            # One at a time with all cores: what else runs would be measured, too.
            running = open_engine(engine, workers=1, cores=default_workers(), address=address)
            _run(results, alone, running, bar, len(together), quiet)
    return results


def _run(
    results: ResultsFolder,
    cells: Sequence[Cell],
    engine: Engine,
    bar: Progress,
    done: int,
    quiet: bool,
) -> None:
    shared: dict[Any, Any] = {}
    locked: list[tuple] = []
    grace = 0.0  # whatever stops us: checkpoints are there, nobody waits for the rest

    def attempt(jobs: list[tuple]) -> list[tuple]:
        """Run the jobs; return those that another process has locked."""
        nonlocal done
        elsewhere = []
        for index, outcome in engine.outcomes(run_cell, jobs):
            cell = jobs[index][0]
            if outcome is None:
                elsewhere.append(jobs[index])
                continue
            row = failed_row(cell, outcome) if isinstance(outcome, Failure) else outcome
            results.add(cell, row)
            done += 1
            bar.update(done, _in_words(row), force=True)
        return elsewhere

    try:
        for batch in _batches(cells):
            _gather(batch, engine, shared, quiet)
            locked += attempt(
                [(cell, results.place(cell).absolute(), shared[_data_of(cell)]) for cell in batch]
            )
        while locked:
            time.sleep(WAIT)
            locked = attempt(locked)
        grace = 5.0
    finally:
        engine.close(grace)


def _data_of(cell: Cell) -> tuple[str, str, int, bool]:
    """The key of a cell's dataset."""
    return cell.task, cell.variant, cell.data_episodes, cell.pixels


def _batches(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Split cells into consecutive batches, starting a new one before each missing dataset.

    Earlier cells then run before that dataset is collected, so the first rows appear early.
    """
    batches: list[list[Cell]] = [[]]
    seen = set()
    for cell in cells:
        new = _data_of(cell) not in seen and not _is_there(cell)
        if new and len(batches[-1]) >= LEAST_BATCH:
            batches.append([])
        seen.add(_data_of(cell))
        batches[-1].append(cell)
    return batches


def _is_there(cell: Cell) -> bool:
    """Whether the data of a cell need not be collected."""
    task, episodes = find(cell.task), cell.data_episodes
    made = cached_path(task, cell.variant, episodes=episodes, pixels=cell.pixels)
    return cell.variant == DOWNLOADED or made.exists()


def _gather(cells: Sequence[Cell], engine: Engine, shared: dict[Any, Any], quiet: bool) -> None:
    """Share the datasets of the cells, and collect those that are not in the cache."""
    for cell in cells:
        if _data_of(cell) in shared:
            continue
        task = find(cell.task)
        how: dict[str, Any] = {"episodes": cell.data_episodes, "pixels": cell.pixels}
        found = collect_cached(task, cell.variant, **how, engine=engine, quiet=quiet)
        shared[_data_of(cell)] = engine.share(found, load)


def _in_words(row: Row) -> str:
    if not row.done:
        return f"{row.cell}: failed ({row.error})"
    if row.final is not None:
        return f"{row.cell}: return {row.final['return']:.2f}, success {row.final['success']:.2f}"
    cost = (row.timing or {}).get("update_ms", math.nan)
    return f"{row.cell}: {cost:.2f} ms per update"
