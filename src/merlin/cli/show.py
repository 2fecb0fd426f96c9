"""Printing results as tables."""

import sys
from typing import Any

from rich.console import Console
from rich.table import Table


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would exit with 1; `main` exits with 0


def console() -> Console:
    """Standard output, wide enough for tables when it is a file or a pipe."""
    width = None if sys.stdout.isatty() else 140
    return _Console(width=width, markup=False, emoji=False)  # names may look like markup


def span(values: dict[str, Any], digits: int) -> str:
    """Mean with its 95 % interval, if available."""
    text = f"{values['mean']:.{digits}f}"
    if "ci95" in values:
        low, high = values["ci95"]
        text += f" [{low:.{digits}f}, {high:.{digits}f}]"
    return text


def scores(title: str, rows: list[tuple[str, dict[str, Any]]]) -> Table:
    """A table of named results with return, success and the number of episodes per seed.

    For a task with fixed goals, there is one column per goal with its success.
    """
    table = Table("", "return", "success", "episodes", title=title, title_justify="left")
    goals: dict[str, float] = next((row["goals"] for _, row in rows if "goals" in row), {})
    for goal in goals:
        table.add_column(f"goal {goal}")
    for name, row in rows:
        each = (f"{row['goals'][goal]:.2f}" if "goals" in row else "" for goal in goals)
        numbers = span(row["return"], 2), span(row["success"], 2), str(row["episodes"])
        table.add_row(name, *numbers, *each)
    return table
