"""The two heat maps of the paper, and the timing of training and acting."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from merlin.bench.rows import Row
from merlin.report.selection import dataset_order, method_order

NO_HORIZON = "None"
"""The column of a policy that was trained without a horizon."""


@dataclass(frozen=True)
class HeatMap:
    """Mean final return over seeds, per dataset and value of one setting; NaN if not run."""

    title: str
    axis: str
    columns: tuple[str, ...]
    names: tuple[str, ...]
    values: np.ndarray

    @property
    def normalised(self) -> np.ndarray:
        """Divided by the highest value of each row, as in the paper."""
        highest = np.nanmax(self.values, axis=1, keepdims=True)
        return self.values / np.where(highest > 0, highest, 1.0)


def hindsight(rows: Sequence[Row]) -> HeatMap | None:
    """Return against the fraction of goals relabelled in hindsight."""

    def points(row: Row) -> dict[str, float]:
        value = row.settings.get("hindsight_ratio")
        return {f"{float(value):g}": row.final["return"]} if value and row.final else {}

    return _heat_map(rows, points, "Hindsight ratio", "hindsight_ratio")


def horizon(rows: Sequence[Row]) -> HeatMap | None:
    """Return against the horizon of the policy, and for a policy without a horizon."""

    def points(row: Row) -> dict[str, float]:
        found = {h: scores["return"] for h, scores in (row.horizons or {}).items()}
        if row.settings.get("horizon", "").lower() == "none" and row.final:
            found[NO_HORIZON] = row.final["return"]
        return found

    return _heat_map(rows, points, "Horizon", "horizon")


def _heat_map(
    rows: Sequence[Row], points: Callable[[Row], dict[str, float]], title: str, axis: str
) -> HeatMap | None:
    seen: dict[tuple, dict[str, list[float]]] = {}
    for row in rows:
        for column, value in points(row).items():
            line = seen.setdefault((row.dataset, row.method_without(axis)), {})
            line.setdefault(column, []).append(value)
    if not seen:
        return None
    keys = sorted(seen, key=lambda key: (method_order(key[1]), dataset_order(key[0])))
    columns = sorted({column for line in seen.values() for column in line}, key=_numeric)
    several = len({method for _, method in keys}) > 1
    return HeatMap(
        title=title,
        axis=axis,
        columns=tuple(columns),
        names=tuple(
            f"{task} {variant}" + (f", {method}" if several else "")
            for (variant, task), method in keys
        ),
        values=np.array(
            [[np.mean(seen[key].get(column, np.nan)) for column in columns] for key in keys]
        ),
    )


def _numeric(column: str) -> tuple[int, float]:
    try:
        return 0, float(column)
    except ValueError:
        return 1, 0.0  # "None" stands last


@dataclass(frozen=True)
class Timing:
    """The cost of one operation per method, averaged over tasks."""

    name: str
    unit: str
    costs: dict[str, float]


def timing(rows: Sequence[Row]) -> list[Timing]:
    """Time per update, per action for each batch size, and before the first update."""
    before: dict[str, list[float]] = {}
    updates: dict[str, list[float]] = {}
    actions: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        measured = row.timing or {}
        if measured.get("update_ms") is not None:
            updates.setdefault(row.method, []).append(measured["update_ms"])
        if measured.get("before_s") is not None:
            before.setdefault(row.method, []).append(measured["before_s"])
        for batch, cost in (measured.get("action_us") or {}).items():
            actions.setdefault(batch, {}).setdefault(row.method, []).append(cost)
    found = [_timing("One update", "ms", updates)] if updates else []
    for batch in sorted(actions, key=_numeric):
        name = "One action" if batch == "1" else f"{batch} actions at once"
        found.append(_timing(name, "µs", actions[batch]))
    return [*found, _timing("Before the first update", "s", before)] if before else found


def _timing(name: str, unit: str, costs: dict[str, list[float]]) -> Timing:
    ordered = sorted(costs, key=method_order)
    return Timing(name, unit, {method: float(np.mean(costs[method])) for method in ordered})
