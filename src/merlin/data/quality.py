"""What looks wrong with a dataset, or matters before training on it: one sentence each."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from merlin.data.dataset import LOG, Dataset

JUMP, SMOOTH = 0.5, 0.05
"""A jump is longer than JUMP of a dimension's range, while 99 % of its steps are below SMOOTH."""
CLIPPED = 0.02
"""Actions are reported as clipped if more than this share is at an end of their range."""
FEW_VALUES = 8
"""An action with at most this many values is a switch, which is not reported as clipped."""
ROWS = 100_000
"""Maximum number of rows to examine."""
SHOWN = 4


def findings(data: Dataset) -> list[str]:
    """Constant dimensions, jumps, clipped actions, odd timestamps, cameras that are not read."""
    found: list[str] = []
    for field in ("observations", "actions"):
        if (array := data.arrays()[field]).ndim == 2:
            found += _constant(field, array, dimension_names(data, field))
    if not data.has_images:
        found += _jumps(data)
    found += _clipped(data)
    log = _log(data)
    found += _words(log.get("clocks"))
    if cameras := _words(log.get("cameras_not_read")):
        found.append(
            f"cameras are not read ({_some(cameras)}); name a video with `state` to learn from it"
        )
    return found


def dimension_names(data: Dataset, field: str) -> list[str]:
    """Names of the dimensions of observations, actions or achieved goals; empty if unknown."""
    names = {
        "observations": _words(_log(data).get("state_names")),
        "actions": _words(_log(data).get("action_names")),
    }
    if field == "achieved_goals":
        states = names["observations"]
        chosen = range(len(states)) if data.phi is None else data.phi
        same = len(chosen) == data.goal_dim and all(k < len(states) for k in chosen)
        return [states[k] for k in chosen] if same else []
    known = names.get(field, [])
    return known if len(known) == data.arrays()[field].shape[1] else []


def action_kind(data: Dataset) -> str | None:
    """Whether actions look like target states ("absolute") or changes of the state ("delta").

    The answer is the one that actions correlate with more, or None if the difference is small.
    """
    if data.has_images:
        return None
    first = np.delete(np.arange(len(data.observations)), data.starts[1:] - 1)
    chosen = np.linspace(0, len(first) - 1, min(ROWS, len(first))).astype(np.int64)
    states = np.asarray(data.observations[first[chosen]], np.float64)
    after = np.asarray(data.observations[first[chosen] + 1], np.float64)
    actions = np.asarray(data.actions[chosen], np.float64)
    target, change = _correlation(actions, after), _correlation(actions, after - states)
    if max(target, change) < 0.8 or abs(target - change) < 0.1:
        return None
    return "absolute" if target > change else "delta"


def _correlation(actions: np.ndarray, with_: np.ndarray) -> float:
    """The median over actions of each one's largest absolute correlation with a column."""

    def standard(x: np.ndarray) -> np.ndarray:
        std = x.std(0)
        return (x - x.mean(0)) / np.where(std > 0, std, 1.0)

    together = np.abs(standard(actions).T @ standard(with_)) / len(actions)
    return float(np.median(together.max(1)))


def _constant(field: str, array: np.ndarray, names: Sequence[str]) -> Iterator[str]:
    same = np.flatnonzero(array.max(0) == array.min(0))
    if len(same):
        some = _some([_label(int(dim), names) for dim in same])
        yield f"{field}: {len(same)} of {array.shape[1]} dimensions never change ({some})"


def _jumps(data: Dataset) -> Iterator[str]:
    names = dimension_names(data, "observations")
    for dim in range(data.observation_shape[0]):
        column = np.asarray(data.observations[:, dim])
        step = np.abs(np.diff(column))
        step[data.starts[1:-1] - 1] = 0.0  # leads to the next episode
        span = float(column.max() - column.min())
        if not step.max() > JUMP * span or np.quantile(step, 0.99) > SMOOTH * span:
            continue
        rows = np.flatnonzero(step > JUMP * span)
        episode = int(np.searchsorted(data.starts, rows[0], side="right")) - 1
        yield (
            f"observations: {_label(dim, names)} jumps by more than half its range in "
            f"{len(rows)} steps, first at step {rows[0] - data.starts[episode]} of episode "
            f"{episode}: it may be an angle that wraps around, or a glitch"
        )


def _clipped(data: Dataset) -> Iterator[str]:
    names = dimension_names(data, "actions")
    actions = data.actions[:: max(1, len(data.actions) // ROWS)]
    for dim in range(data.action_dim):
        values, counts = np.unique(actions[:, dim], return_counts=True)
        ends = {values[0]: counts[0] / len(actions), values[-1]: counts[-1] / len(actions)}
        full = {end: share for end, share in ends.items() if share > CLIPPED and len(actions) > 100}
        if full and len(values) > FEW_VALUES:
            where = " and ".join(f"at {end:.4g} in {share:.1%}" for end, share in full.items())
            yield (
                f"actions: {_label(dim, names)} is {where} of the steps, which is an end of its "
                "range; it may have been clipped"
            )


def _label(dim: int, names: Sequence[str]) -> str:
    return f"{dim} ({names[dim]})" if names else str(dim)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _log(data: Dataset) -> Mapping[str, Any]:
    log = data.provenance.get(LOG)
    return log if isinstance(log, Mapping) else {}


def _words(value: Any) -> list[str]:
    """A list of printable strings; empty for anything else that an untrusted file may hold."""
    good = isinstance(value, list) and all(isinstance(v, str) and v.isprintable() for v in value)
    return value if good else []
