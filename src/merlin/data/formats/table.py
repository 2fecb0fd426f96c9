"""A single table of all steps, as CSV or parquet, with a column that identifies the episode."""

import contextlib
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from merlin.data import parquet
from merlin.data.conversion import reading
from merlin.data.dataset import Dataset
from merlin.data.logs import (
    EPISODE,
    Column,
    Fields,
    Log,
    Rows,
    episode_ends,
    regular_file,
    to_dataset,
)
from merlin.errors import MerlinError, printable

SEPARATORS = ",;\t"
MOST_LINE = 1 << 20


def read(name: str, fields: Fields) -> Dataset:
    """Read a table; unless given, its columns are found by their usual names."""
    path = Path(name)
    opened = _parquet if path.suffix == ".parquet" else _csv
    return to_dataset(opened(path, fields), fields)


def _parquet(path: Path, fields: Fields) -> Log:
    table = parquet.Table([path])
    by = _episode_column(list(table.columns), fields.episode, path)

    def load(wanted: Sequence[str]) -> Rows:
        found = table.read([*wanted, by])
        return Rows(found, episode_ends(found[by], str(path)))

    return Log(
        where=str(path),
        format="parquet table",
        columns={key: column for key, column in table.columns.items() if key != by},
        read=load,
    )


def _csv(path: Path, fields: Fields) -> Log:
    with reading(path, "CSV"), regular_file(path).open(newline="", encoding="utf-8-sig") as file:
        title = file.readline(MOST_LINE)
        separator = max(SEPARATORS, key=title.count)
        (names,) = csv.reader([title], delimiter=separator)
        row = next(csv.reader([file.readline(MOST_LINE)], delimiter=separator), [])
    names = [name.strip() for name in names]
    if len(set(names)) != len(names) or len(row) != len(names):
        raise MerlinError(
            f"{path}: its first line must name each column once, and its second have as many "
            "numbers; add such a line."
        )
    numeric = [name for name, text in zip(names, row, strict=True) if _is_number(text)]
    by = _episode_column(numeric, fields.episode, path)

    def load(wanted: Sequence[str]) -> Rows:
        chosen = [*wanted, by]
        places = [names.index(name) for name in chosen]
        with reading(path, "CSV"), path.open(encoding="utf-8-sig") as file:
            try:
                found = np.loadtxt(
                    _lines(file),
                    np.float64,
                    comments=None,
                    delimiter=separator,
                    skiprows=1,
                    usecols=places,
                    ndmin=2,
                    quotechar='"',
                )
            except ValueError as error:
                with contextlib.suppress(csv.Error):  # a field without end, as NumPy says
                    _name_odd_row(path, separator, dict(zip(chosen, places, strict=True)))
                raise error
        arrays = dict(zip(chosen, found.T, strict=True))
        return Rows(arrays, episode_ends(arrays[by], str(path)))

    return Log(
        where=str(path),
        format="CSV table",
        columns={name: Column() for name in numeric if name != by},
        read=load,
    )


def _name_odd_row(path: Path, separator: str, columns: dict[str, int]) -> None:
    """Raise an error about the first row that lacks a number; NumPy counts rows, not lines."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(_lines(file), delimiter=separator)
        next(rows)
        for row in filter(None, rows):
            for name, place in columns.items():
                text = row[place].strip() if place < len(row) else ""
                if not _is_number(text):
                    said = repr(printable(text[:40])) if text else "empty"
                    raise MerlinError(
                        f"{path}: {name} in line {rows.line_num} is {said}, not a number; repair "
                        "or drop the row."
                    )


def _lines(file: TextIO) -> Iterator[str]:
    """The lines of a file; a quoted field may span several lines, up to a limit."""
    length, quoted = 0, False
    while line := file.readline(MOST_LINE):
        quoted ^= line.count('"') % 2 == 1
        length = length + len(line) if quoted or line[-1] != "\n" else 0
        if length >= MOST_LINE:
            raise ValueError(f"a line has more than {MOST_LINE} characters")
        yield line


def _episode_column(names: Sequence[str], said: str | None, path: Path) -> str:
    found = next((name for name in ([said] if said else EPISODE) if name in names), None)
    if found is None:
        listed = ", ".join(names[:12]) or "none"
        raise MerlinError(
            f"{path}: has no column of numbers {said or ' or '.join(EPISODE)}; name the one "
            f"of the episode with `episode`; it has {listed}."
        )
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
