"""Robot logs: named columns over the rows of all episodes, and their conversion to a dataset.

The reader of a format returns a `Log`. The columns for state, action and goal are given by name or
index and resolved here, so all formats share one syntax.
"""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from merlin.data.conversion import Phi, action_range, float32, phi_indices
from merlin.data.dataset import LOG, Dataset
from merlin.data.timestamps import clocks_in, odd_clocks
from merlin.errors import MerlinError
from merlin.io.settings import instead

STATE = ("observation.state", "state", "observations", "observation", "obs")
ACTION = ("action", "actions")
EPISODE = ("episode_index", "episode", "episode_id", "demo", "trajectory")
"""Column names that are tried, in this order, if none is given."""
_RANGE = re.compile(r"(\d{1,6})(?::(\d{1,6}))?")
_PART = re.compile(r"(.+)\[(\d{1,6})(?::(\d{1,6}))?\]")


class Fields(NamedTuple):
    """The columns that the user chose; None means that the usual names are tried."""

    state: str | None = None
    action: str | None = None
    phi: Phi | None = None
    episode: str | None = None
    image_size: int | None = None  # height and width that videos are scaled to


class Column(NamedTuple):
    """A column of a log: one number, vector or image per row."""

    shape: tuple[int, ...] = ()
    names: tuple[str, ...] = ()  # of its dimensions, if the log has them

    @property
    def width(self) -> int:
        return math.prod(self.shape)

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3


class Part(NamedTuple):
    """Some dimensions of a column."""

    column: str
    start: int
    stop: int


class Rows(NamedTuple):
    """All rows of some columns, by name, with the episodes back to back."""

    arrays: Mapping[str, np.ndarray]
    ends: Int[np.ndarray, " episodes"]  # one past the last row of each episode


@dataclass(frozen=True)
class Log:
    """A recording that is open but has not been read yet."""

    where: str
    format: str
    columns: Mapping[str, Column]
    read: Callable[[Sequence[str]], Rows]
    about: Mapping[str, Any] = field(default_factory=dict)  # rate, robot, ... if known
    odd: Mapping[str, str] = field(default_factory=dict)  # why other names are no columns


def to_dataset(log: Log, fields: Fields) -> Dataset:
    """Make a dataset of the chosen columns.

    The action in the last row of an episode is dropped: the state it leads to is not recorded.
    """
    state = select(log, fields.state, STATE, "state")
    action = select(log, fields.action, ACTION, "action")
    phi, goal = _goals(log, state, fields.phi)
    clocks = clocks_in(name for name, column in log.columns.items() if column.shape == ())
    rows = log.read(list(dict.fromkeys([*(p.column for p in (*state, *action, *goal)), *clocks])))
    observations = _take(log, rows, state)
    actions = _take(log, rows, action)
    starts = np.concatenate([[0], rows.ends]).astype(np.int64)
    actions = np.concatenate([actions[a : b - 1] for a, b in itertools.pairwise(starts.tolist())])
    if goal:
        achieved = _take(log, rows, goal)
    else:
        achieved = observations if phi is None else observations[:, list(phi)]
    low, high = action_range(actions) if actions.size else (np.zeros(0), np.zeros(0))
    about = {
        **log.about,
        "format": log.format,
        "state": _text(log, state),
        "action": _text(log, action),
        **({"goal": _text(log, goal)} if goal else {}),
        "state_names": _labels(log, state),
        "action_names": _labels(log, action),
    }
    times = {name: rows.arrays[name] for name in clocks}
    if odd := odd_clocks(times, rows.ends, log.about.get("rate")):
        about["clocks"] = odd
    return Dataset(
        observations=observations,
        actions=actions,
        achieved_goals=achieved,
        desired_goals=None,
        starts=starts,
        action_low=low,
        action_high=high,
        provenance={LOG: about},
        phi=phi,
    )


def select(log: Log, text: str | None, usual: Sequence[str], what: str) -> list[Part]:
    """Resolve a choice of columns: names, `name[0:3]` or indices over all columns, with commas.

    A name also matches all columns that start with it (`obs` matches `obs/pose`), or one that ends
    with it after a slash.
    """
    if text is None:
        for name in usual:
            if found := _named(log, name):
                return found
            _refuse_odd(log, name)
        raise MerlinError(
            f"{log.where}: has no column called {' or '.join(usual)}; choose another with "
            f"--{what}; it has {_listed(log)}."
        )
    found = []
    for part in [text] if text in log.columns else text.split(","):
        found += _resolve(log, part.strip(), what)
    if len(found) > 1 and any(log.columns[part.column].is_image for part in found):
        raise MerlinError(
            f"--{what} {text}: an image cannot be joined with other columns; name it alone."
        )
    return found


def _resolve(log: Log, text: str, what: str) -> list[Part]:
    if found := _named(log, text):
        return found
    _refuse_odd(log, text)
    if some := _PART.fullmatch(text):
        start = int(some[2])
        stop = int(some[3]) if some[3] else start + 1
        column = log.columns.get(some[1])
        if column is not None and not column.is_image and start < stop <= column.width:
            return [Part(some[1], start, stop)]
    if span := _RANGE.fullmatch(text):
        start = int(span[1])
        stop = int(span[2]) if span[2] else start + 1
        flat = [p for name in _vectors(log) for p in _each(log, Part(name, 0, _width(log, name)))]
        if start < stop <= len(flat):
            return _joined(flat[start:stop])
        raise MerlinError(f"--{what} {text}: {log.where} has columns 0 to {len(flat) - 1}.")
    close = instead(text, _vectors(log))
    raise MerlinError(f"--{what} {text}: {log.where} has no such column; {close}")


def _refuse_odd(log: Log, name: str) -> None:
    """Raise an error about a name that would be a column if the episodes agreed about it."""
    if name in log.odd:
        raise MerlinError(f"{log.where}: {log.odd[name]}; repair the files, or leave some out.")


def _named(log: Log, name: str) -> list[Part]:
    """Whole columns with this name, with this prefix, or with this name after a slash."""
    if name in log.columns:
        return [Part(name, 0, _width(log, name))]
    begin = tuple(name + sign for sign in "/._[")
    within = [c for c in _vectors(log) if c.startswith(begin)]
    chosen = within or [c for c in log.columns if c.endswith(f"/{name}")][:1]
    return [Part(column, 0, _width(log, column)) for column in chosen] if name else []


def _goals(log: Log, state: list[Part], phi: Phi | None) -> tuple[tuple[int, ...] | None, list]:
    """The indices of the state that are the goal, or else the columns that hold the goal."""
    if log.columns[state[0].column].is_image and not (isinstance(phi, str) and _named(log, phi)):
        raise MerlinError(
            f"{log.where}: the state is an image, and no part of it can be the goal; name the "
            f"column that holds goals with `phi`; it has {_listed(log)}."
        )
    if phi is None:
        return None, []
    where = {p: k for k, p in enumerate(p for part in state for p in _each(log, part))}
    if not isinstance(phi, str) or all(_RANGE.fullmatch(part) for part in phi.split(",")):
        found = phi_indices(phi)
        if max(found) >= len(where):
            raise MerlinError(f"phi {phi}: {log.where} has states of only {len(where)} numbers.")
        return found, []
    labels = {label: k for k, label in enumerate(_labels(log, state))}
    if all(name in labels for name in phi.split(",")):
        return tuple(labels[name] for name in phi.split(",")), []
    goal = select(log, phi, (), "phi")
    each = [p for part in goal for p in _each(log, part)]
    return (tuple(where[p] for p in each), []) if set(each) <= where.keys() else (None, goal)


def _take(log: Log, found: Rows, parts: Sequence[Part]) -> np.ndarray:
    """The chosen dimensions of all rows as one float32 array; uint8 images are kept."""
    arrays, rows = found.arrays, int(found.ends[-1])
    for part in parts:
        array = arrays[part.column]
        if len(array) != rows or array.dtype.kind not in "biuf":
            raise MerlinError(
                f"{log.where}: {part.column} has {len(array)} rows of {array.dtype}, not {rows} "
                "rows of numbers; repair it or name another column."
            )
    first = arrays[parts[0].column]
    if log.columns[parts[0].column].is_image and first.dtype == np.uint8:
        return first
    flat = [arrays[p.column].reshape(rows, -1)[:, p.start : p.stop] for p in parts]
    return np.ascontiguousarray(float32(flat[0] if len(flat) == 1 else np.concatenate(flat, 1)))


def episode_ends(episodes: np.ndarray, where: str) -> Int[np.ndarray, " episodes"]:
    """The end of each episode, from the column with the episode of each row."""
    if episodes.ndim != 1 or not len(episodes):
        raise MerlinError(f"{where}: the column of episodes is empty; record at least one episode.")
    changed = np.flatnonzero(episodes[1:] != episodes[:-1]) + 1
    firsts = episodes[np.concatenate([[0], changed])]
    numbers, times = np.unique(firsts, return_counts=True)
    if (times > 1).any():
        again = numbers[times > 1][0]
        raise MerlinError(
            f"{where}: the rows of episode {again:g} are not together; sort the rows by episode."
        )
    return np.append(changed, len(episodes)).astype(np.int64)


def regular_file(path: Path) -> Path:
    """The path, if it is a file and neither a pipe nor a device."""
    if not path.exists():
        raise MerlinError(f"{path}: is missing; copy the log again.")
    if not path.is_file():
        raise MerlinError(f"{path}: is not a regular file; name one.")
    return path


def _vectors(log: Log) -> list[str]:
    return [name for name, column in log.columns.items() if not column.is_image]


def _listed(log: Log) -> str:
    names = list(log.columns)
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _width(log: Log, name: str) -> int:
    return log.columns[name].width


def _each(log: Log, part: Part) -> list[Part]:
    """The dimensions of a part; an image counts as one."""
    if log.columns[part.column].is_image:
        return [part]
    return [Part(part.column, k, k + 1) for k in range(part.start, part.stop)]


def _joined(parts: Sequence[Part]) -> list[Part]:
    """The same dimensions in as few parts as possible."""
    found: list[Part] = []
    for part in parts:
        if found and found[-1].column == part.column and found[-1].stop == part.start:
            found[-1] = Part(part.column, found[-1].start, part.stop)
        else:
            found.append(part)
    return found


def _text(log: Log, parts: Sequence[Part]) -> str:
    """The text that `select` resolves to these parts."""
    whole = {part: part.stop - part.start == _width(log, part.column) for part in parts}
    return ",".join(
        part.column if whole[part] else f"{part.column}[{part.start}:{part.stop}]" for part in parts
    )


def _labels(log: Log, parts: Sequence[Part]) -> list[str]:
    """A name for each dimension: from the log, or column and index."""
    found = []
    for column, start, _ in (p for part in parts for p in _each(log, part)):
        known = log.columns[column]
        if known.names:
            found.append(known.names[start])
        else:
            found.append(column if known.shape in ((), (1,)) else f"{column}[{start}]")
    return found
