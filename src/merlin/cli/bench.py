"""merlin bench"""

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.table import Table

from merlin.bench.grid_options import GridOptions
from merlin.cli.options import RUN_AGAIN
from merlin.cli.show import console
from merlin.errors import Incomplete, MerlinError

if TYPE_CHECKING:
    from merlin.bench.schedule import Share

NO_OPTIONS = GridOptions()


@dataclass(frozen=True)
class Bench:
    """Run a grid of training runs and store one row of results for each.

    Grids: paper (the main tables), forward-backward, stitching, hindsight and horizon (the
    ablations), timing, ogbench (the eight pointmaze datasets, or those given with --tasks), and
    smoke (a small version of everything that runs in minutes). Run the same command again to
    resume: finished cells are skipped. For example:

      merlin bench smoke --out runs/smoke && merlin report runs/smoke
      merlin bench paper --tasks PointReach FetchReach --seeds 2 --out runs/paper
      merlin bench ogbench --tasks pointmaze-medium-navigate-v0 --methods merlin --out runs/maze
      merlin bench paper --plan --out runs/paper
    """

    grid: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="GRID")]
    """Name of the grid."""
    out: Path | None = None
    """Folder to write the rows to; several grids may share one."""
    options: tyro.conf.OmitArgPrefixes[GridOptions] = NO_OPTIONS
    engine: str = "local"
    """Where to run cells: local (one worker process per core) or ray."""
    workers: int | None = None
    """Number of cells to run at the same time; by default one per core."""
    address: str | None = None
    """Address of a running Ray cluster; by default a local one is started."""
    retry_failed: bool = False
    """Run failed cells again."""
    dry_run: bool = False
    """List the cells with an estimate of their run time, and exit."""
    plan: bool = False
    """Print what exists, what is missing and the hours left, by dataset and method, and exit."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        from merlin.bench.estimate import Speeds, total
        from merlin.bench.grids import make_grid
        from merlin.bench.results_folder import ResultsFolder
        from merlin.bench.schedule import in_order, shares
        from merlin.parallel.engine import check_engine
        from merlin.parallel.workers import default_workers

        check_engine(self.engine, self.workers, self.address)
        cells = in_order(make_grid(self.grid, self.options), Speeds().seconds)
        results = None
        if self.out is not None:
            results = ResultsFolder(self.out)
            for cell in cells:
                results.check(cell)
        left = results.missing(cells, retry_failed=self.retry_failed) if results else cells
        speeds = Speeds(results.rows.values() if results else ())
        workers = self.workers or default_workers()
        time = total(left, speeds, workers)
        said = f"{len(cells)} cells, {len(left)} to run, {time}, {workers} at a time"
        rest = {
            "missing": len(left),
            "seconds": round(time.seconds),
            "unknown": [cell.name for cell in time.unknown],
        }
        if self.plan:
            found = shares(cells, {cell.name for cell in left}, speeds.seconds)
            if not self.json:
                _print_plan(found)
                print(said)
            return {
                "shares": [{**dataclasses.asdict(one), "missing": one.missing} for one in found],
                "cells": len({cell.name for cell in cells}),
                **rest,
            }
        if self.dry_run:
            if not self.json:
                self._print(cells, {cell.name for cell in left}, speeds)
                print(said)
            return {"cells": [cell.name for cell in cells], **rest}
        if self.out is None:
            raise MerlinError("--out: is missing; give the folder to write the rows to.")
        print(said, file=sys.stderr)
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
            raise KeyboardInterrupt(RUN_AGAIN) from None
        rows = [results.rows[cell.name] for cell in cells]
        failed = sorted({row.cell for row in rows if not row.done})
        if not self.json:
            print(
                f"{self.out}: {len(rows) - len(failed)} cells done, {len(failed)} failed;", end=""
            )
            print(f" run `merlin report {shlex.quote(str(self.out))}` to see the results.")
        result = {"out": str(self.out), "cells": len(rows), "failed": failed}
        if failed:
            raise Incomplete(
                f"{len(failed)} of {len(rows)} cells failed: {', '.join(failed)}; "
                "run them again with --retry-failed.",
                result,
            )
        return result

    def _command(self) -> str:
        """The command as given, without options that do not change the rows."""
        words = ["merlin", "bench", self.grid]
        for field in dataclasses.fields(self.options):
            value = getattr(self.options, field.name)
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


def _print_plan(found: Sequence["Share"]) -> None:
    """One line per dataset: what is there, what each method lacks, and how long that takes."""
    from merlin.bench.estimate import in_words

    datasets: dict[str, list["Share"]] = {}
    for one in found:
        name = f"{one.task} {one.variant}" + " from pixels" * one.pixels
        datasets.setdefault(name, []).append(one)
    table = Table("dataset", "there", "left", "missing")
    for name, own in datasets.items():
        there, asked = sum(one.done for one in own), sum(one.asked for one in own)
        left = in_words(sum(one.seconds for one in own)) if there < asked else ""
        left += " and more" if any(one.unknown for one in own) else ""
        missing = [
            f"{one.method} {one.missing} ({'unknown' if one.unknown else in_words(one.seconds)})"
            for one in own
            if one.missing
        ]
        table.add_row(name, f"{there} of {asked}", left, ", ".join(missing))
    console().print(table)
