"""The folder of a benchmark: its plan and its results.

bench.json               the grids, the cells of each, and the commands that were given
rows.jsonl               one line per grid and finished or failed cell: all that a report needs
cells/NAME/row.json      the row of one cell, written when it is done
cells/NAME/run/          its run folder, from which a killed cell continues
cells/NAME/.lock         locked by the process that runs the cell
cells/shared/            latents and generated trajectories, shared by cells with the same data

The first two are small text files worth keeping. Cells can be deleted if their policies are not
needed.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import merlin
from merlin.bench.grids import Cell
from merlin.bench.rows import FORMAT, SCHEMA, Row, read_about, read_row, read_rows
from merlin.errors import MerlinError
from merlin.io.files import is_empty, refuse_links, sealed, write_bytes, write_json
from merlin.io.locks import try_lock
from merlin.io.schema import read_as


class ResultsFolder:
    """Rows keyed by the name of their cell, in memory and on disk."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._path = folder / "bench.json"
        self.about: dict[str, Any]
        if self._path.exists():
            self.about = read_about(folder)
            read_as(dict[str, list[str]], self.about.get("grids"), self._path)
            read_as(list[str], self.about.get("commands"), self._path)
        elif folder.is_file() or (folder.exists() and not is_empty(folder)):
            raise MerlinError(
                f"{folder}: is not empty and holds no benchmark; choose another `out`."
            )
        else:
            self.about = {"format": FORMAT, "schema": SCHEMA, "grids": {}, "commands": []}
        self.rows: dict[str, Row] = {}
        self._read_cells()
        for row in read_rows(folder / "rows.jsonl"):
            self.rows.setdefault(row.cell, row)

    def plan(self, name: str, cells: Sequence[Cell], command: str) -> None:
        """Record the plan; raise an error if it contradicts earlier runs in this folder."""
        refuse_links(self.folder)
        for cell in cells:
            self.check(cell)
        for cell in cells:
            names = self.about["grids"].setdefault(cell.grid, [])
            if cell.name not in names:
                names.append(cell.name)
        if command not in self.about["commands"]:
            self.about["commands"].append(command)
        self.about["version"] = merlin.__version__
        write_json(self._path, self.about)
        self._write_rows()

    def check(self, cell: Cell) -> None:
        """Raise an error if an existing cell of this name has different settings."""
        row = self.rows.get(cell.name)
        if row is None:
            return
        for key, value in cell.describe().items():
            there = row.asked.get(key)
            if there != value:
                raise MerlinError(
                    f"{self.folder}: {cell.name} was run with {key}={there}, not {value}; "
                    "ask for the same, or choose another `out`."
                )

    def missing(self, cells: Sequence[Cell], *, retry_failed: bool = False) -> list[Cell]:
        """Cells without a row, each once."""
        left: dict[str, Cell] = {}
        for cell in cells:
            row = self.rows.get(cell.name)
            if row is None or (retry_failed and not row.done):
                left.setdefault(cell.name, cell)
        return list(left.values())

    def place(self, cell: Cell) -> Path:
        return self.folder / "cells" / cell.name

    def add(self, cell: Cell, row: Row) -> None:
        """Store a row, which marks its cell as done."""
        self.rows[cell.name] = row
        write_json(self.place(cell) / "row.json", row.to_json())
        # Another bench in the same folder may have planned and done something since.
        self.about = read_about(self.folder)
        self._read_cells()
        self._write_rows()

    def _read_cells(self) -> None:
        for path in sorted(self.folder.glob("cells/*/row.json")):
            if path.parent.name not in self.rows:
                self.rows[path.parent.name] = read_row(path)

    def _write_rows(self) -> None:
        lines = [
            json.dumps(sealed({**dataclasses.replace(self.rows[name], grid=grid).to_json()}))
            for grid, names in self.about["grids"].items()
            for name in names
            if name in self.rows
        ]
        write_bytes(self.folder / "rows.jsonl", "".join(f"{line}\n" for line in lines).encode())


@contextlib.contextmanager
def cell_lock(place: Path) -> Iterator[bool]:
    """Whether this process holds the lock of a cell; it is released when the process ends."""
    with try_lock(place / ".lock") as holder:
        yield holder is None
