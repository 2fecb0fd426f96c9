"""Progress on stderr: a bar on a terminal, plain lines in a log file."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Displays the progress of a long computation."""

    def __init__(self, label: str, total: int, unit: str, *, quiet: bool = False):
        self.label, self.total, self.unit, self.quiet = label, total, unit, quiet
        self._bar: Bar | None = None
        self._last_line = time.monotonic()
        self._first: tuple[float, int] | None = None

    def __enter__(self) -> Self:
        if not self.quiet and sys.stderr.isatty():
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
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
        # The rate is measured from the first report on, which excludes compilation.
        rate = ""
        if self._first is None:
            self._first = (now, done)
        elif now > self._first[0] and done > self._first[1]:
            rate = _rate(done - self._first[1], now - self._first[0], self.unit)
        note = "  ".join(part for part in (rate, note) if part)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, note=note)
        elif force or done >= self.total or now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            print(f"{self.label}: {done}/{self.total} {self.unit}  {note}", file=sys.stderr)


def _rate(done: int, seconds: float, unit: str) -> str:
    """Items per second, or seconds per item if one item takes more than a second."""
    if done >= seconds:
        return f"{done / seconds:.{0 if done >= 10 * seconds else 1}f} {unit}/s"
    one = unit.removesuffix("ies") + "y" if unit.endswith("ies") else unit.removesuffix("s")
    each = seconds / done
    return f"{each:.{0 if each >= 10 else 1}f} s/{one}"
