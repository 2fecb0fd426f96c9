"""The output of `merlin trust` as a self-contained page."""

from collections.abc import Mapping
from typing import Any

from merlin.report import render


def page(title: str, verdict: str, about: Mapping[str, Any]) -> str:
    """Render the page; `about` is the return value of `Trust.to_json`."""
    dots, ticks = _dots(about["goals"]), _ticks(about["goals"])
    content = {"verdict": verdict, "about": about, "dots": dots, "ticks": ticks}
    return render.page("trust.html", title=title, **content)


def _ticks(goals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lowest and the highest value of both dimensions, at the edges of the map."""
    ticks: list[dict[str, Any]] = []
    for dim, column in enumerate(zip(*(goal["goal"][:2] for goal in goals), strict=True)):
        for value, at in {min(column): 5.0, max(column): 95.0}.items():
            place = {"x": at, "y": 106.0, "anchor": "middle"}
            if dim == 1:
                place = {"x": -1.5, "y": 101.4 - at, "anchor": "end"}
            ticks.append({**place, "text": f"{value:.3g}"})
    return ticks


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
