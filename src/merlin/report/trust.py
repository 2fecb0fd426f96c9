"""The output of `merlin trust` as a self-contained page."""

from collections.abc import Mapping
from typing import Any

from merlin.report import render


def page(title: str, verdict: str, about: Mapping[str, Any]) -> str:
    """Render the page; `about` is the return value of `Trust.to_json`."""
    dots = _dots(about["goals"])
    return render.page("trust.html", title=title, verdict=verdict, about=about, dots=dots)


def _dots(goals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The position of each goal on a map of the first two dimensions, in percent."""
    if len(goals[0]["goal"]) < 2:
        return []
    columns = [[goal["goal"][dim] for goal in goals] for dim in range(2)]
    low = [min(column) for column in columns]
    wide = [max(column) - least or 1.0 for column, least in zip(columns, low, strict=True)]
    return [
        {
            "x": 5 + 90 * (goal["goal"][0] - low[0]) / wide[0],
            "y": 95 - 90 * (goal["goal"][1] - low[1]) / wide[1],
            "word": goal["word"],
            "number": number,
        }
        for number, goal in enumerate(goals, 1)
    ]
