"""merlin report"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from merlin.io.extras import check


@dataclass(frozen=True)
class Report:
    """Turn a run, or the rows of a benchmark, into one HTML page.

    A benchmark gets Markdown, LaTeX and figures as well. For example:

      merlin report runs/rooms
      merlin report runs/paper
      merlin report runs/paper runs/timing --out results
    """

    dir: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="DIR")]
    """A run folder, or folders that `merlin bench` has written."""
    out: Path | None = None
    """Folder for the report; the first DIR unless given."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        check("plots", "merlin report")
        from merlin.report import write_report, write_run_report
        from merlin.training.folder import is_run

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
            print(f"  {len(found['figures'])} figures beside them")
        return found
