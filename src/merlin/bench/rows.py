"""Rows: the results of one cell of a grid, and the only input of a report.

`Row` is the schema of a line of rows.jsonl and of a cell's row.json, which are read and written
through it.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from merlin.errors import MerlinError
from merlin.io.files import parse_json, read_json, read_limited, unsealed, whole_line

FORMAT, SCHEMA = "merlin-bench", 1
MOST_BYTES = 1 << 30
MOST_NUMBER = 10**18

Scores = dict[str, float]
"""`return` and `success`, with `episodes`, `return_std` and `step` if known."""

IMAGE_SETTINGS: Mapping[str, str] = {
    "batch_size": "64",
    "encoder_max_updates": "1000",
    "threshold": "auto",  # of stitching: 0.9999 is for an encoder that was trained for longer
}
"""Settings of a benchmark on images, for methods with these fields; they limit it to hours."""


@dataclass(frozen=True)
class Row:
    """One method trained with one seed on one dataset: its scores, or the reason for failure."""

    cell: str
    task: str
    variant: str
    algo: str
    seed: int
    updates: int
    asked: dict[str, Any]  # all that decides the result, to compare with what is asked for later
    command: str
    version: str
    status: str  # done or failed
    grid: str = ""  # only in rows.jsonl, where grids that share a cell have a line each
    preset: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    learner: dict[str, Any] | None = None  # all its settings, also those tuned for the task
    pixels: bool = False
    error: str | None = None
    trace: str | None = None
    final: Scores | None = None
    best: Scores | None = None
    goals: Scores | None = None  # success of the final policy at each fixed goal of the task
    curve: tuple[Scores, ...] = ()
    horizons: dict[str, Scores] | None = None
    timing: dict[str, Any] | None = None  # update_ms, action_us by the size of a batch, before_s
    augmentation: dict[str, Any] | None = None
    data: dict[str, Any] = field(default_factory=dict)
    episode_steps: int | None = None  # of the task; rows from before it was kept have none
    seconds: float | None = None
    finished: str = ""
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.status == "done"

    @property
    def dataset(self) -> tuple[str, str]:
        return self.variant, self.task

    @property
    def all_updates(self) -> int:
        """Updates of the method plus those of its image encoder, if it has one."""
        return self.updates + int(self.settings.get("latent_updates", 0))

    @cached_property
    def method(self) -> str:
        """The name in tables: the algorithm and its settings that differ from the defaults.

        Settings shared by all rows from images are omitted.
        """
        return self.method_without(*(IMAGE_SETTINGS if self.pixels else ()))

    def method_without(self, *axes: str) -> str:
        """The method's name without the settings that are an axis of the figure."""
        parts = [self.preset] if self.preset else []
        parts += ["tuned=paper"] if self.asked.get("tuned") == "paper" else []
        settings = {k: v for k, v in self.settings.items() if k not in axes}
        # How many updates of the encoder is part of `all_updates`.
        parts += ["latents"] if settings.pop("latent_updates", None) else []
        settings.pop("latent_units", None)  # decided by the task
        parts += [f"{name}={value}" for name, value in settings.items()]
        return f"{self.algo} ({', '.join(parts)})" if parts else self.algo

    def to_json(self) -> dict[str, Any]:
        """The JSON form of the row; optional fields are omitted if not set."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name in ("grid", "learner", "trace", "episode_steps", "goals"):
            if not values[name]:
                del values[name]
        return {"schema": SCHEMA, **values, "curve": list(self.curve)}


@cache
def _kinds() -> dict[str, tuple[type, ...]]:
    """The types that the JSON value of each field may have."""

    def types(hint: Any) -> tuple[type, ...]:
        if isinstance(hint, UnionType):
            return tuple(kind for part in get_args(hint) for kind in types(part))
        kind = get_origin(hint) or hint
        return {float: (int, float), tuple: (list,)}.get(kind, (kind,))

    return {name: types(hint) for name, hint in get_type_hints(Row).items()}


def parse(content: Any, where: str) -> Row:
    """Parse a row from JSON; raise a one-sentence error if it is invalid."""

    def wrong(what: str) -> MerlinError:
        return MerlinError(f"{where}: {what}; delete it and run the bench again.")

    if not isinstance(content, dict):
        raise wrong("holds no JSON object")
    if content.get("schema") != SCHEMA:
        raise wrong(f"has schema {content.get('schema')!r}, not {SCHEMA}")
    given: dict[str, Any] = {}
    for spec in dataclasses.fields(Row):
        value, kinds = content.get(spec.name), _kinds()[spec.name]
        has_default = {spec.default, spec.default_factory} != {dataclasses.MISSING}
        if value is None and has_default:
            continue
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise wrong(f"{spec.name} is {value!r}, not what it should be")
        given[spec.name] = tuple(value) if isinstance(value, list) else value
    row = Row(**given)
    if row.status not in ("done", "failed"):
        raise wrong(f"status is {row.status!r}, neither done nor failed")
    for place, number in _numbers(row):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise wrong(f"{place} is {number!r}, not a number")
        if not abs(number) < MOST_NUMBER:  # NaN is not, either
            shown = number if isinstance(number, float) else "too large"
            raise wrong(f"{place} is {shown}, not a finite number")
    return row


def _numbers(row: Row) -> Iterator[tuple[str, Any]]:
    """Every number that a table or figure may show, with its location."""
    for name, scores in (("final", row.final), ("best", row.best)):
        if scores is not None:
            yield from _scores(name, scores)
    yield from ((f"goals.{goal}", success) for goal, success in (row.goals or {}).items())
    for point in row.curve:
        yield from _scores("curve", point, "step")
    for horizon, scores in (row.horizons or {}).items():
        yield from _scores(f"horizons.{horizon}", scores)
    timing = row.timing or {}
    for name in ("update_ms", "before_s"):
        if timing.get(name) is not None:
            yield f"timing.{name}", timing[name]
    yield from ((f"timing.action_us.{k}", v) for k, v in (timing.get("action_us") or {}).items())


def _scores(place: str, scores: Any, *more: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(scores, Mapping):
        yield place, None
        return
    yield from ((f"{place}.{name}", scores.get(name)) for name in ("return", "success", *more))


def read_about(folder: Path) -> dict[str, Any]:
    """Read a folder's bench.json: the grids, their cells, and the commands that were given."""
    path = folder / "bench.json"
    about = read_json(path, "a run folder or a bench folder (`merlin bench --out DIR`)")
    if (about.get("format"), about.get("schema")) != (FORMAT, SCHEMA):
        raise MerlinError(
            f"{path}: is not of format {FORMAT} {SCHEMA}; "
            "give a folder that this version of `merlin bench` wrote."
        )
    return about


def read_row(path: Path) -> Row:
    """Read the row of one cell."""
    return parse(read_json(path, "a row of results"), str(path))


def read_rows(path: Path) -> list[Row]:
    """Read rows.jsonl. An incomplete last line, left by a kill, is ignored."""
    try:
        lines = read_limited(path, MOST_BYTES).split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise MerlinError(f"{path}: cannot be read ({error.strerror}).") from None
    rows = []
    for number, line in enumerate(lines, 1):
        if number == len(lines):
            line = whole_line(line) or b""
        if not line.strip():
            continue
        where = f"{path} line {number}"
        try:
            content = parse_json(line)
        except ValueError:
            raise MerlinError(f"{where}: is not JSON; delete it and run the bench again.") from None
        plain = unsealed(content, where) if isinstance(content, dict) else content
        rows.append(parse(plain, where))
    return rows
