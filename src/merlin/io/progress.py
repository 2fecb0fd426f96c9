"""Progress on stderr: a bar on a terminal, plain lines in a log file."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

SECONDS_BETWEEN_LINES = 10.0
COLUMN = 12


class Progress:
    """Displays the progress of a long computation, its rate and the time left."""

    def __init__(self, label: str, total: int, unit: str, *, quiet: bool = False):
        self.label, self.total, self.unit, self.quiet = label, total, unit, quiet
        self._bar: Bar | None = None
        self._last_line = time.monotonic()
        self._first: tuple[float, int] | None = None
        self._has_header = False

    def __enter__(self) -> Self:
        if not self.quiet and sys.stderr.isatty():
            self._bar = Bar(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                # The bar moves the cursor, which the command line forbids to all other text.
                console=Console(file=getattr(sys.stderr, "raw", sys.stderr), markup=False),
            )
            self._bar.start()
            self._task = self._bar.add_task(self.label, total=self.total, note="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, note: str = "", *, force: bool = False) -> None:
        """Report that `done` of the total is done; `force` prints a line immediately."""
        if self.quiet:
            return
        now = time.monotonic()
        pace = self._pace(done, now)
        note = "  ".join(part for part in (pace, note) if part)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, note=note)
        elif force or done >= self.total or now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            print(f"{self.label}: {done}/{self.total} {self.unit}  {note}", file=sys.stderr)

    def begin(self, note: str, done: int | None = None) -> None:
        """Show what happens first, such as compilation, which is excluded from the rate."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, note=note)
        elif not self.quiet:
            position = "" if done is None else f"{done}/{self.total} {self.unit}  "
            print(f"{self.label}: {position}{note}", file=sys.stderr)

    def measured(self, done: int, values: Mapping[str, float]) -> None:
        """Show measurements made after `done` items: a table row above the bar, or a line."""
        if self._bar is None:
            self.update(done, "  ".join(f"{k} {v:.2f}" for k, v in values.items()), force=True)
            return
        if not self._has_header:
            self._print_row([self.unit, *values])
            self._has_header = True
        self._print_row([str(done), *(f"{value:.2f}" for value in values.values())])
        self.update(done)

    def _print_row(self, cells: list[str]) -> None:
        assert self._bar is not None
        row = "".join(f"{cell:>{max(COLUMN, len(cell) + 2)}}" for cell in cells)
        self._bar.console.print(row, highlight=False)

    def _pace(self, done: int, now: float) -> str:
        """Rate and time left, from the second report on: the first includes compilation."""
        if self._first is None:
            self._first = (now, done)
        began, first = self._first
        if now <= began or done <= first:
            return ""
        rate = _rate(done - first, now - began, self.unit)
        if done >= self.total:
            return rate
        return f"{rate}  {_left((self.total - done) * (now - began) / (done - first))}"


def _rate(done: int, seconds: float, unit: str) -> str:
    """Items per second, or seconds per item if one item takes more than a second."""
    if done >= seconds:
        return f"{done / seconds:.{0 if done >= 10 * seconds else 1}f} {unit}/s"
    one = unit.removesuffix("ies") + "y" if unit.endswith("ies") else unit.removesuffix("s")
    each = seconds / done
    return f"{each:.{0 if each >= 10 else 1}f} s/{one}"


def _left(seconds: float) -> str:
    """The time left, to about a hundredth."""
    if seconds < 100:
        return f"{seconds:.0f} s left"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min left"
    return f"{minutes // 60} h {minutes % 60} min left"
