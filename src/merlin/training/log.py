"""metrics.jsonl and TensorBoard events of one seed."""

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from merlin.errors import MerlinError
from merlin.io.extras import is_installed
from merlin.io.files import (
    MOST_JSON_BYTES,
    open_regular,
    parse_json,
    sealed,
    unsealed,
    whole_line,
    write_pieces,
)
from merlin.io.schema import read_as

EVALUATED = {"eval/return", "held_out/action_error"}
"""Rows of a log with one of these keys are evaluations; all others are updates."""
EVENT_SECONDS = 60.0
"""Interval at which events are synced to disk, which may take a tenth of a second."""


class SeedLog:
    """Writes metrics.jsonl and TensorBoard events of one seed.

    Rows that a resumed run writes again are dropped first.

    `logged` and `evaluated` are the steps of the last row of metrics and the last evaluation
    contained in the checkpoint.
    """

    def __init__(self, folder: Path, logged: int, evaluated: int):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "metrics.jsonl"
        last = lambda row: evaluated if EVALUATED & row.keys() else logged  # noqa: E731
        if max(logged, evaluated) == 0:
            for stale in folder.glob("events.*"):
                stale.unlink()
        kept = (line for row, line in read_metrics(path) if row["step"] <= last(row))
        write_pieces(path, kept)
        self._file = path.open("ab")
        after = max(logged, evaluated) + 1
        self._events = Events(folder, after) if is_installed("tensorboardX") else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, step: int, values: dict[str, float]) -> None:
        self._file.write(json.dumps(sealed({"step": step, **values})).encode() + b"\n")
        self._file.flush()
        if self._events is not None:
            self._events.write(step, values)

    def close(self) -> None:
        self._file.close()
        if self._events is not None:
            self._events.close()


class Events:
    """A TensorBoard event file that replaces older events from step `after` on."""

    def __init__(self, folder: Path, after: int):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.summary import scalar

        self._event, self._scalar = Event, scalar
        # Not SummaryWriter: its thread would hit a full disk where the error cannot be handled.
        self._writer, self._flushed = EventsWriter(str(folder / "events")), time.monotonic()
        self._add(after, session_log=SessionLog(status=SessionLog.START))

    def write(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._add(step, summary=self._scalar(name, value))
        if time.monotonic() - self._flushed > EVENT_SECONDS:
            self._writer.flush()
            self._flushed = time.monotonic()

    def _add(self, step: int, **content: Any) -> None:
        self._writer.write_event(self._event(step=step, wall_time=time.time(), **content))

    def close(self) -> None:
        self._writer.close()


def read_metrics(path: Path) -> Iterator[tuple[dict[str, float], bytes]]:
    """The rows of a log, and their lines as written; a kill may have truncated the last.

    A flipped bit beyond the precision of a number is not in the line, nor a damaged newline.
    """
    if not path.exists():
        return
    with open_regular(path) as file:
        for number in itertools.count(1):
            line = file.readline(MOST_JSON_BYTES)
            if not line.endswith(b"\n") and len(line) < MOST_JSON_BYTES:
                whole = whole_line(line)
                if whole is None:
                    return
                line = whole
            where = f"{path} line {number}"
            try:
                content = read_as(dict[str, Any], parse_json(line), where)
            except ValueError:
                raise MerlinError(f"{where}: is not JSON; delete the line.") from None
            row = read_as(dict[str, float], unsealed(content, where), where)
            read_as(int, row.get("step"), where)
            yield row, json.dumps(content).encode() + b"\n"
