"""Rows of a bench folder: read, checked, and chosen.

A row is one cell of a grid: one method trained with one seed on one dataset. Nothing that a report
prints has another source.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from merlin.errors import MerlinError
from merlin.files import read_json
from merlin.tasks.registry import IMAGE_SETTINGS, TASKS, VARIANTS

FORMAT, SCHEMA = "merlin-bench", 1
METHODS = (
    *("merlin", "merlin-p", "merlin-np", "merlin-mb", "merlin-ts"),
    *("gofar", "wgcsl", "gcsl", "gcsl-ts", "am", "dd", "g-dql", "beso"),
)
"""In the paper's order, its own methods first."""

_REQUIRED: dict[str, type] = {
    **dict.fromkeys(("grid", "cell", "task", "variant", "algo", "status"), str),
    **dict.fromkeys(("command", "version"), str),
    **dict.fromkeys(("seed", "updates"), int),
}
_OPTIONAL: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("preset", "error", "finished"), str),
    **dict.fromkeys(("settings", "final", "best", "horizons", "timing"), dict),
    **dict.fromkeys(("augmentation", "data", "machine"), dict),
    "curve": list,
    "pixels": bool,
    "seconds": (int, float),
}
"""May be null."""


@dataclass(frozen=True)
class Row:
    """One finished or failed cell; the fields are those of a line of rows.jsonl."""

    grid: str
    cell: str
    task: str
    variant: str
    algo: str
    seed: int
    status: str
    command: str
    version: str
    updates: int
    preset: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    pixels: bool = False
    error: str | None = None
    final: dict[str, Any] | None = None
    best: dict[str, Any] | None = None
    curve: Sequence[dict[str, float]] = ()
    horizons: dict[str, dict[str, float]] | None = None
    timing: dict[str, Any] | None = None
    augmentation: dict[str, Any] | None = None
    data: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    finished: str = ""

    @property
    def done(self) -> bool:
        return self.status == "done"

    @property
    def dataset(self) -> tuple[str, str]:
        return self.variant, self.task

    @cached_property
    def method(self) -> str:
        """What a table calls it: the algorithm, and what was set other than its defaults.

        But for what all of a bench's rows from images have set.
        """
        return self.method_without(*(IMAGE_SETTINGS if self.pixels else ()))

    def method_without(self, *axes: str) -> str:
        """The method's name when some settings are an axis of the figure."""
        parts = [self.preset] if self.preset else []
        settings = {k: v for k, v in self.settings.items() if k not in axes}
        # How many updates of the encoder stands beside those of the method.
        parts += ["latents"] if settings.pop("latent_updates", None) else []
        settings.pop("latent_units", None)  # decided by the task
        parts += [f"{name}={value}" for name, value in settings.items()]
        return f"{self.algo} ({', '.join(parts)})" if parts else self.algo

    @cached_property
    def anchor(self) -> str:
        """Where in the page the rows stand that are averaged with this one."""
        parts = [self.grid, self.task, self.variant, self.method, "pixels" * self.pixels]
        text = "-".join(part for part in parts if part)
        return "rows-" + "".join(c if c.isalnum() or c in "-_." else "_" for c in text)


def read(folders: Sequence[Path]) -> list[Row]:
    """All rows of some bench folders, in the order of the tables."""
    if not folders:
        raise MerlinError("DIR: name a folder that `merlin bench` has written.")
    rows: list[Row] = []
    for folder in folders:
        about = read_json(folder / "bench.json", "a bench folder (`merlin bench --out DIR`)")
        if about.get("format") != FORMAT or about.get("schema") != SCHEMA:
            raise MerlinError(
                f"{folder / 'bench.json'}: is not of format {FORMAT} {SCHEMA}; "
                "name a folder that this version's `merlin bench` has written."
            )
        rows += read_lines(folder / "rows.jsonl")
    if not rows:
        named = ", ".join(map(str, folders))
        raise MerlinError(f"{named}: holds no rows yet; let `merlin bench` finish a cell first.")
    return sorted(rows, key=order)


def read_lines(path: Path) -> list[Row]:
    """The rows of one file. An unfinished last line is what a kill leaves: no row, no error."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise MerlinError(f"{path}: cannot be read ({error.strerror}).") from None
    rows = []
    lines = text.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        try:
            content = json.loads(line)
        except ValueError:
            if number == len(lines):
                continue
            raise MerlinError(f"{where}: is no JSON; delete it and run the bench again.") from None
        rows.append(parse(content, where))
    return rows


def parse(content: Any, where: str) -> Row:
    """A row from its JSON, or one sentence that says what is wrong with it."""

    def wrong(what: str) -> MerlinError:
        return MerlinError(f"{where}: {what}; delete the line and run the bench again.")

    if not isinstance(content, dict):
        raise wrong("holds no JSON object")
    if content.get("schema") != SCHEMA:
        raise wrong(f"has schema {content.get('schema')!r}, not {SCHEMA}")
    for name, kind in (_REQUIRED | _OPTIONAL).items():
        value = content.get(name)
        if value is None and name in _OPTIONAL:
            continue
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise wrong(f"{name} is {value!r}, not what it should be")
    if content["status"] not in ("done", "failed"):
        raise wrong(f"status is {content['status']!r}, neither done nor failed")
    known = {k: v for k, v in content.items() if k in Row.__dataclass_fields__ and v is not None}
    row = Row(**known)
    for place, number in _numbers(row):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise wrong(f"{place} is {number!r}, not a number")
        if not math.isfinite(number):
            raise wrong(f"{place} is {number}, not a finite number")
    return row


def _numbers(row: Row) -> Iterable[tuple[str, Any]]:
    """Every number that a table or figure may show, with its place."""
    for name in ("final", "best"):
        scores = getattr(row, name)
        if scores is not None:
            yield from _scores(name, scores)
    for point in row.curve:
        yield from _scores("curve", point)
        yield "curve.step", point.get("step")
    for horizon, scores in (row.horizons or {}).items():
        yield from _scores(f"horizons.{horizon}", scores)
    timing = row.timing or {}
    if timing.get("update_ms") is not None:
        yield "timing.update_ms", timing["update_ms"]
    yield from ((f"timing.action_us.{k}", v) for k, v in (timing.get("action_us") or {}).items())


def _scores(place: str, scores: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(scores, dict):
        yield place, None
        return
    for metric in ("return", "success"):
        yield f"{place}.{metric}", scores.get(metric)


def select(rows: Sequence[Row]) -> list[Row]:
    """The rows that count: one per cell and seed, the same number of updates in every average.

    A cell that was run again counts once, the latest that was done. Where some seeds of a dataset
    and method were trained for longer than others, only the longest count. Failed rows never do.
    """
    latest: dict[tuple, Row] = {}
    for row in rows:
        if not row.done:
            continue
        key = (*_group(row), row.seed, row.updates)
        if key not in latest or latest[key].finished <= row.finished:
            latest[key] = row
    longest: dict[tuple, int] = {}
    for row in latest.values():
        longest[_group(row)] = max(row.updates, longest.get(_group(row), 0))
    return [row for row in latest.values() if row.updates == longest[_group(row)]]


def failures(rows: Sequence[Row]) -> list[Row]:
    """Failed rows that no later success of the same cell has made good, each cell once."""
    done = {(*_group(row), row.seed) for row in rows if row.done}
    last = {(*_group(row), row.seed): row for row in rows if not row.done}
    return [row for key, row in last.items() if key not in done]


def order(row: Row) -> tuple:
    """As the paper orders its tables."""
    return (
        row.grid,
        row.pixels,
        *dataset_order(row.dataset),
        *method_order(row.method),
        row.seed,
        row.finished,
    )


def dataset_order(dataset: tuple[str, str]) -> tuple:
    variant, task = dataset
    return (*_place(variant, VARIANTS), *_place(task, tuple(TASKS)))


def method_order(method: str) -> tuple:
    return (*_place(method.split(" ")[0], METHODS), method)


def _place(name: str, known: Sequence[str]) -> tuple[int, str]:
    return (known.index(name) if name in known else len(known)), name


def _group(row: Row) -> tuple:
    return row.grid, row.pixels, row.task, row.variant, row.method
