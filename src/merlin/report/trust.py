"""The output of `merlin trust` as a self-contained page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from merlin.report import render

MARGIN = 5.0
"""Percent of an axis beyond the outermost goals."""


def page(title: str, verdict: str, about: Mapping[str, Any]) -> str:
    """Render the page; `about` is the return value of `Trust.to_json`."""
    plot = _plot(about["goals"])
    return render.page("trust.html", title=title, verdict=verdict, about=about, plot=plot)


def _plot(goals: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The goals by their first two dimensions, with ticks; positions are in percent."""
    if len(goals[0]["goal"]) < 2:
        return None
    across, up = (Axis.of([goal["goal"][dim] for goal in goals]) for dim in range(2))
    return {
        "dots": [
            {
                "x": across.place(goal["goal"][0]),
                "y": 100 - up.place(goal["goal"][1]),
                "word": goal["word"],
                "number": number,
            }
            for number, goal in enumerate(goals, 1)
        ],
        "across": [(across.place(tick), f"{tick:.7g}") for tick in across.ticks],
        "up": [(100 - up.place(tick), f"{tick:.7g}") for tick in up.ticks],
    }


@dataclass(frozen=True)
class Axis:
    """An axis of the plot, from 0 to 100 percent with a margin on both sides."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        return cls(min(values), max(values))

    def place(self, value: float) -> float:
        """The position of a value in percent."""
        if self.low == self.high:
            return 50.0
        return MARGIN + (100 - 2 * MARGIN) * (value - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[float]:
        """Two to five round numbers on the axis, or its only value."""
        length = self.high - self.low
        if length == 0:
            return [self.low]
        size = 10.0 ** math.floor(math.log10(length / 2))
        step = next(size * factor for factor in (1, 2, 5) if length < 5 * size * factor)
        return [
            index * step
            for index in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
        ]
