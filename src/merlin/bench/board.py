"""The bench folder: what was asked for, what is done.

bench.json               the grids, the cells that each asks for, the commands that were given
rows.jsonl               one line per grid and finished or failed cell: all that a report needs
cells/NAME/row.json      the row of one cell, written when it is done
cells/NAME/run/          its run folder, from which a killed cell goes on
cells/NAME/.lock         held by whoever runs it

The first two are small text and worth keeping; cells may be deleted when policies are not needed.
"""

import contextlib
import fcntl
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import merlin
from merlin.bench.grids import Cell
from merlin.errors import MerlinError
from merlin.files import read_json, write_bytes, write_json

FORMAT, SCHEMA = "merlin-bench", 1


class Board:
    """Rows by the name of their cell, in memory and on disk."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._about = folder / "bench.json"
        if self._about.exists():
            self.about = read_json(self._about, "a bench folder")
            if (self.about.get("format"), self.about.get("schema")) != (FORMAT, SCHEMA):
                raise MerlinError(f"{self._about}: was written by another version of merlin.")
        elif folder.is_file() or (folder.exists() and any(folder.iterdir())):
            raise MerlinError(f"{folder}: is not empty and holds no bench; choose another --out.")
        else:
            self.about = {"format": FORMAT, "schema": SCHEMA, "grids": {}, "commands": []}
        self.rows: dict[str, dict[str, Any]] = {}
        for row in read_rows(folder):
            self.rows[row["cell"]] = row
        for path in sorted(folder.glob("cells/*/row.json")):
            row = read_json(path, "a row of results")
            self.rows[row["cell"]] = row

    def plan(self, name: str, cells: Sequence[Cell], command: str) -> None:
        """Note what is asked for; refuse what contradicts what was run here before."""
        for cell in cells:
            self.check(cell)
        for cell in cells:
            names = self.about["grids"].setdefault(cell.grid, [])
            if cell.name not in names:
                names.append(cell.name)
        if command not in self.about["commands"]:
            self.about["commands"].append(command)
        self.about["version"] = merlin.__version__
        write_json(self._about, self.about)
        self._write_rows()

    def check(self, cell: Cell) -> None:
        """A cell that is there must be the one that is asked for."""
        row = self.rows.get(cell.name)
        if row is None:
            return
        for key, value in cell.describe().items():
            there = row["asked"].get(key)
            if there != value:
                raise MerlinError(
                    f"{self.folder}: {cell.name} was run with {key}={there}, not {value}; "
                    "ask for the same, or choose another --out."
                )

    def missing(self, cells: Sequence[Cell], *, retry_failed: bool = False) -> list[Cell]:
        """Cells without a row, each once."""
        left: dict[str, Cell] = {}
        for cell in cells:
            row = self.rows.get(cell.name)
            if row is None or (retry_failed and row["status"] == "failed"):
                left.setdefault(cell.name, cell)
        return list(left.values())

    def place(self, cell: Cell) -> Path:
        return self.folder / "cells" / cell.name

    def add(self, cell: Cell, row: dict[str, Any]) -> None:
        """Keep a row; from now on its cell is done."""
        self.rows[cell.name] = row
        write_json(self.place(cell) / "row.json", row)
        self._catch_up()
        self._write_rows()

    def _catch_up(self) -> None:
        """Take in what another bench in the same folder has planned and done since."""
        self.about = read_json(self._about, "a bench folder")
        for path in sorted(self.folder.glob("cells/*/row.json")):
            if path.parent.name not in self.rows:
                self.rows[path.parent.name] = read_json(path, "a row of results")

    def _write_rows(self) -> None:
        lines = [
            # A row that was read from the file names the last of the grids that share it.
            json.dumps({"grid": grid, **self.rows[name]} | {"grid": grid})
            for grid, names in self.about["grids"].items()
            for name in names
            if name in self.rows
        ]
        write_bytes(self.folder / "rows.jsonl", "".join(f"{line}\n" for line in lines).encode())


@contextlib.contextmanager
def held(place: Path) -> Iterator[bool]:
    """Whether this process alone has a cell within the block; whoever dies lets go of it."""
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a bench folder; those that two grids share are there for each."""
    path = folder / "rows.jsonl"
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            row = json.loads(line)
            row["cell"], row["status"], row["asked"], row["grid"]
        except (ValueError, TypeError, KeyError) as error:
            raise MerlinError(
                f"{path}: line {number} is no row of results ({error}); delete the line and run "
                "the bench again."
            ) from None
        rows.append(row)
    return rows
