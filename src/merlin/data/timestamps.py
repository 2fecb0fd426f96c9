"""Timestamps of a log: whether they are evenly spaced, and whether two clocks agree."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

EVEN = 0.5
"""Allowed deviation of a time step, relative to the usual one."""
MAX_RATE = 1e9
"""In Hz; a log that declares more is damaged."""
_CLOCK = re.compile(r"(^|[._/\s])t$|time(?!out|_?step)|stamp", re.IGNORECASE)


def as_rate(value: Any) -> float | None:
    """A declared rate in Hz, or None if the value is not one."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 < value <= MAX_RATE else None


def clocks_in(names: Iterable[str]) -> list[str]:
    """The columns that are clocks, judged by their names."""
    return [name for name in names if _CLOCK.search(name)]


def odd_clocks(
    clocks: Mapping[str, np.ndarray], ends: Int[np.ndarray, " episodes"], rate: float | None
) -> list[str]:
    """One sentence per problem with the timestamps; `rate` is the frequency in Hz declared by the
    log."""
    inside = np.ones(int(ends[-1]) - 1, bool)
    inside[ends[:-1] - 1] = False
    said: list[str] = []
    first: tuple[str, np.ndarray, float] | None = None
    for name, column in clocks.items():
        time = np.asarray(column, np.float64).reshape(-1)
        if len(time) != int(ends[-1]) or not inside.any() or not np.isfinite(time).all():
            said.append(f"{name} does not hold one finite time per row")
            continue
        steps = np.diff(time)[inside]
        usual = float(np.median(steps))
        if usual <= 0:
            said.append(f"{name} does not advance")
            continue
        if (back := int((steps <= 0).sum())) > 0:
            said.append(f"{name} stands still or runs backwards in {back} of {len(steps)} steps")
        uneven = int((np.abs(steps - usual) > EVEN * usual).sum())
        if uneven > back:
            longest = float(steps.max())
            said.append(
                f"{name} steps by {usual:.4g}, but unevenly in {uneven} of {len(steps)} steps "
                f"(the longest: {longest:.4g})"
            )
        if rate and abs(usual * rate - 1) > 0.05:
            said.append(f"{name} steps by {usual:.4g}, but the log says {rate:g} Hz")
        if first is None:
            first = name, time, usual
        else:
            said += _apart(first, (name, time), ends)
    return said


def _apart(
    one: tuple[str, np.ndarray, float], two: tuple[str, np.ndarray], ends: np.ndarray
) -> list[str]:
    """A sentence about two clocks that drift apart within an episode."""
    apart = two[1] - one[1]
    starts = np.concatenate([[0], ends[:-1]])
    drift = np.maximum.reduceat(apart, starts) - np.minimum.reduceat(apart, starts)
    worst = int(drift.argmax())
    if drift[worst] <= EVEN * one[2]:
        return []
    return [f"{two[0]} and {one[0]} drift apart by {drift[worst]:.4g} in episode {worst}"]
