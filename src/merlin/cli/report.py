"""merlin report"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from merlin.errors import MerlinError
from merlin.io.extras import check


@dataclass(frozen=True)
class Report:
    """Turn a run, or the rows of benchmarks, into an HTML page.

    A benchmark gets Markdown, LaTeX and figures as well. For example:

      merlin report runs/rooms
      merlin report runs/paper
      merlin report runs/paper runs/timing --out results
      merlin report results/paper results/pixels --coverage
    """

    dir: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="DIR")]
    """A run folder, or folders written by `merlin bench`."""
    out: Path | None = None
    """Folder for the report; by default the first DIR."""
    coverage: bool = False
    """Print how many cells of the paper's tables and figures the rows fill, and write nothing."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        check("plots", "merlin report")
        from merlin.report import write_report, write_run_report
        from merlin.training.layout import is_run

        for folder in self.dir:
            if not folder.is_dir():
                raise MerlinError(
                    f"{folder}: no such folder; give a run, or one that `merlin bench` wrote."
                )
        for folder in filter(is_run, self.dir if self.coverage or len(self.dir) > 1 else ()):
            raise MerlinError(
                f"{folder}: is a run, not a folder that `merlin bench` wrote; report it alone and "
                "without --coverage."
            )
        if self.coverage:
            return self._coverage()
        if len(self.dir) == 1 and is_run(self.dir[0]):
            written = write_run_report(self.dir[0], self.out)
            if not self.json:
                print(f"  {written['page']}\n  {written['curve']}")
            return written
        found = write_report(self.dir, self.out)
        if not self.json:
            grids = ", ".join(found["grids"])
            print(
                f"{found['rows']} rows of {grids}: {found['counted']} counted, "
                f"{found['failed']} failed cells"
            )
            for name in ("page", "markdown", "headline", "latex"):
                print(f"  {found[name]}")
            print(f"  {len(found['figures'])} figures in the same folder")
        return found

    def _coverage(self) -> dict[str, Any]:
        from rich.table import Table

        from merlin.cli.show import console
        from merlin.report.coverage import coverage
        from merlin.report.selection import read

        found = coverage(read(self.dir))
        if not self.json:
            table = Table("table or figure", "there", "set aside", "missing")
            for one in found:
                cells = f"{one.there} of {one.asked}"
                table.add_row(one.title, cells, str(one.aside), one.in_words())
            console().print(table)
        return {
            "coverage": [
                {
                    "title": one.title,
                    "there": one.there,
                    "asked": one.asked,
                    "aside": one.aside,
                    "missing": {dataset: sorted(lack) for dataset, lack in one.missing.items()},
                }
                for one in found
            ]
        }
