"""merlin bench"""

import dataclasses
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from merlin.bench.choice import Choice
from merlin.cli.show import console
from merlin.errors import Incomplete, MerlinError

NOT_CHOSEN = Choice()


@dataclass(frozen=True)
class Bench:
    """Run a grid of trainings and keep one row of results for each.

    Grids: paper (the main tables), forward-backward, stitching, hindsight and horizon (the
    ablations), timing, ogbench (the eight pointmazes, or others by --tasks), and smoke (a little
    of everything, in minutes). Started again, only what is missing runs. For example:

      merlin bench smoke --out runs/smoke && merlin report runs/smoke
      merlin bench paper --tasks PointReach FetchReach --seeds 2 --out runs/paper
      merlin bench ogbench --tasks pointmaze-medium-navigate-v0 --methods merlin --out runs/maze
      merlin bench paper --dry-run
    """

    grid: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="GRID")]
    """Name of the grid."""
    out: Path | None = None
    """Folder of the rows; several grids may share one."""
    choice: tyro.conf.OmitArgPrefixes[Choice] = NOT_CHOSEN
    engine: str = "local"
    """Where cells run: local (one process per core) or ray."""
    workers: int | None = None
    """Cells at a time; one per core unless given."""
    address: str | None = None
    """Of a running Ray cluster; one is started here unless given."""
    retry_failed: bool = False
    """Run cells again that failed before."""
    dry_run: bool = False
    """Print the cells and about how long they take, and run nothing."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        from merlin.bench.estimate import Speeds, total
        from merlin.bench.grids import make_grid
        from merlin.bench.results_folder import ResultsFolder
        from merlin.parallel.engine import check_engine
        from merlin.parallel.workers import default_workers

        check_engine(self.engine, self.workers, self.address)
        cells = make_grid(self.grid, self.choice)
        results = None
        if self.out is not None:
            results = ResultsFolder(self.out)
            for cell in cells:
                results.check(cell)
        left = results.missing(cells, retry_failed=self.retry_failed) if results else cells
        speeds = Speeds(results.rows.values() if results else ())
        workers = self.workers or default_workers()
        time = total(left, speeds, workers)
        plan = f"{len(cells)} cells, {len(left)} to run, {time}"
        if self.dry_run:
            if not self.json:
                self._print(cells, {cell.name for cell in left}, speeds)
                print(plan)
            return {
                "cells": [cell.name for cell in cells],
                "missing": len(left),
                "seconds": round(time.seconds),
                "unknown": [cell.name for cell in time.unknown],
            }
        if self.out is None:
            raise MerlinError("--out: is missing; name the folder that the rows are written to.")
        print(plan, file=sys.stderr)
        return self._run(cells)

    def _run(self, cells: list[Any]) -> dict[str, Any]:
        from merlin.bench.runner import run_bench

        assert self.out is not None
        try:
            results = run_bench(
                self.grid,
                cells,
                self.out,
                command=self._command(),
                engine=self.engine,
                workers=self.workers,
                address=self.address,
                retry_failed=self.retry_failed,
                quiet=False,
            )
        except KeyboardInterrupt:
            print("merlin: stopped; the same command goes on where this was.", file=sys.stderr)
            sys.exit(130)
        rows = [results.rows[cell.name] for cell in cells]
        failed = sorted({row.cell for row in rows if not row.done})
        if not self.json:
            print(
                f"{self.out}: {len(rows) - len(failed)} cells done, {len(failed)} failed;", end=""
            )
            print(f" `merlin report {shlex.quote(str(self.out))}` shows them.")
        result = {"out": str(self.out), "cells": len(rows), "failed": failed}
        if failed:
            raise Incomplete(
                f"{len(failed)} of {len(rows)} cells failed: {', '.join(failed)}; "
                "run them again with --retry-failed.",
                result,
            )
        return result

    def _command(self) -> str:
        """As it was given, but for what does not change the rows."""
        words = ["merlin", "bench", self.grid]
        for field in dataclasses.fields(self.choice):
            value = getattr(self.choice, field.name)
            if value != field.default:
                words.append(f"--{field.name.replace('_', '-')}")
                if isinstance(value, tuple):
                    words += value
                elif value is not True:
                    words.append(str(value))
        return shlex.join([*words, "--out", self.out.name if self.out else "DIR"])

    def _print(self, cells: list[Any], missing: set[str], speeds: Any) -> None:
        from merlin.bench.estimate import in_words

        table = Table("grid", "cell", "updates", "about")
        for cell in cells:
            about = in_words(speeds.seconds(cell)) if cell.name in missing else "done"
            table.add_row(cell.grid, cell.name, str(cell.updates), about)
        console().print(table)
