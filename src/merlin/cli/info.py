"""merlin info"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from merlin.cli.show import console


@dataclass(frozen=True)
class Info:
    """Check a dataset, file by file and number by number, and describe it.

    For example:

      merlin info data/rooms
    """

    data: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DATA")]
    """The dataset folder."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        from merlin.data import describe, load

        data = load(self.data)
        about = describe.describe(data)
        if not self.json:
            print(f"{self.data}: {describe.in_words(data)}")
            if data.provenance:
                print("  " + ", ".join(f"{k}: {v}" for k, v in data.provenance.items()))
            table = Table("field", "dimension", "min", "mean", "max", "std")
            for name, rows in about["ranges"].items():
                for dim, row in enumerate(rows):
                    numbers = (f"{row[key]:.3f}" for key in ("min", "mean", "max", "std"))
                    table.add_row(name if dim == 0 else "", str(dim), *numbers)
            console().print(table)
        return {"path": str(self.data), **about}
