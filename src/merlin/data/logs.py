"""Robot logs: named columns over all rows of all episodes, and how they become a dataset.

A reader of a log format makes a `Log`; which columns are state, action and goal is said by name or
index and resolved here, so every format understands the same words.
"""

import importlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from merlin.data.clocks import clocks_in, odd_clocks
from merlin.data.conversion import Phi, action_range, float32, phi_indices
from merlin.data.dataset import LOG, Dataset
from merlin.errors import MerlinError
from merlin.io.settings import instead

STATE = ("observation.state", "state", "observations", "observation", "obs")
ACTION = ("action", "actions")
EPISODE = ("episode_index", "episode", "episode_id", "demo", "trajectory")
"""Names that are looked for, in this order, where nobody says which columns to take."""
MOST_EXPANSION, FREE_BYTES = 200, 1 << 26
"""So many times its bytes a file may unpack to, beyond what is little anyway."""
_RANGE = re.compile(r"(\d{1,6})(?::(\d{1,6}))?")
_PART = re.compile(r"(.+)\[(\d{1,6})(?::(\d{1,6}))?\]")


class Fields(NamedTuple):
    """What the user says of a log's columns; None where the usual names are to be looked for."""

    state: str | None = None
    action: str | None = None
    phi: Phi | None = None
    episode: str | None = None
    image_size: int | None = None  # height and width that videos are scaled to


class Column(NamedTuple):
    """What a log has under a name, in every row: a number, a vector, or an image."""

    shape: tuple[int, ...] = ()
    names: tuple[str, ...] = ()  # of its dimensions, where the log tells them

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


@dataclass(frozen=True)
class Log:
    """Recorded episodes back to back; `read` gives one array of all rows for each column."""

    where: str
    format: str
    columns: Mapping[str, Column]
    ends: Int[np.ndarray, " episodes"]  # the row after the last one of each episode
    read: Callable[[Sequence[str]], dict[str, np.ndarray]]
    about: Mapping[str, Any] = field(default_factory=dict)  # rate, robot, ... where it is known


def to_dataset(log: Log, fields: Fields) -> Dataset:
    """The chosen columns as a dataset. The action in the last row of an episode is dropped, since
    the state that it leads to is not recorded."""
    state = select(log, fields.state, STATE, "state")
    action = select(log, fields.action, ACTION, "action")
    phi, goal = _goals(log, state, fields.phi)
    clocks = clocks_in(name for name, column in log.columns.items() if column.shape == ())
    arrays = log.read(list(dict.fromkeys([*(p.column for p in (*state, *action, *goal)), *clocks])))
    observations = _take(log, arrays, state)
    kept = np.ones(len(observations), bool)
    kept[log.ends - 1] = False
    actions = _take(log, arrays, action)[kept]
    if goal:
        achieved = _take(log, arrays, goal)
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
    if odd := odd_clocks({name: arrays[name] for name in clocks}, log.ends, log.about.get("rate")):
        about["clocks"] = odd
    return Dataset(
        observations=observations,
        actions=actions,
        achieved_goals=achieved,
        desired_goals=None,
        starts=np.concatenate([[0], log.ends]).astype(np.int64),
        action_low=low,
        action_high=high,
        provenance={LOG: about},
        phi=phi,
    )


def select(log: Log, text: str | None, usual: Sequence[str], what: str) -> list[Part]:
    """The columns that `text` names: names, `name[0:3]`, or indices counted over all columns,
    separated by commas. A name also stands for all columns that begin with it (`obs` for
    `obs/pose`) and for one that ends with it behind a slash."""
    if text is None:
        for name in usual:
            if found := _named(log, name):
                return found
        raise MerlinError(
            f"{log.where}: no column is called {' or '.join(usual)}; say which to take with "
            f"--{what}; it has {_listed(log)}."
        )
    found = []
    for part in [text] if text in log.columns else text.split(","):
        found += _resolve(log, part.strip(), what)
    if len(found) > 1 and any(log.columns[part.column].is_image for part in found):
        raise MerlinError(f"--{what} {text}: an image stands alone; name nothing beside it.")
    return found


def _resolve(log: Log, text: str, what: str) -> list[Part]:
    if found := _named(log, text):
        return found
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


def _named(log: Log, name: str) -> list[Part]:
    """Whole columns by their name, by how their names begin, or by what stands behind a slash."""
    if name in log.columns:
        return [Part(name, 0, _width(log, name))]
    begin = tuple(name + sign for sign in "/._[")
    within = [c for c in _vectors(log) if c.startswith(begin)]
    chosen = within or [c for c in log.columns if c.endswith(f"/{name}")][:1]
    return [Part(column, 0, _width(log, column)) for column in chosen] if name else []


def _goals(log: Log, state: list[Part], phi: Phi | None) -> tuple[tuple[int, ...] | None, list]:
    """Which numbers of the state are the goal, or else the columns that hold it."""
    if log.columns[state[0].column].is_image and not (isinstance(phi, str) and _named(log, phi)):
        raise MerlinError(
            f"{log.where}: the state is an image, so goals cannot be taken from it; name the "
            f"column that holds them with --phi; it has {_listed(log)}."
        )
    if phi is None:
        return None, []
    where = {p: k for k, p in enumerate(p for part in state for p in _each(log, part))}
    if not isinstance(phi, str) or all(_RANGE.fullmatch(part) for part in phi.split(",")):
        found = phi_indices(phi)
        if max(found) >= len(where):
            raise MerlinError(f"--phi {phi}: {log.where} has states of only {len(where)} numbers.")
        return found, []
    labels = {label: k for k, label in enumerate(_labels(log, state))}
    if all(name in labels for name in phi.split(",")):
        return tuple(labels[name] for name in phi.split(",")), []
    goal = select(log, phi, (), "phi")
    each = [p for part in goal for p in _each(log, part)]
    return (tuple(where[p] for p in each), []) if set(each) <= where.keys() else (None, goal)


def _take(log: Log, arrays: Mapping[str, np.ndarray], parts: Sequence[Part]) -> np.ndarray:
    """The chosen dimensions of all rows as one float32 array; a lone uint8 image as it is."""
    rows = int(log.ends[-1])
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
    """Where each episode ends, from the column that says which one each row belongs to."""
    if episodes.ndim != 1 or not len(episodes):
        raise MerlinError(f"{where}: its column of episodes is empty; record at least one.")
    changed = np.flatnonzero(episodes[1:] != episodes[:-1]) + 1
    firsts = episodes[np.concatenate([[0], changed])]
    numbers, times = np.unique(firsts, return_counts=True)
    if (times > 1).any():
        again = numbers[times > 1][0]
        raise MerlinError(f"{where}: episode {again:g} begins twice; sort the rows by episode.")
    return np.append(changed, len(episodes)).astype(np.int64)


def check_declared(declared: int, present: int, where: str | Path) -> None:
    """Refuse, before memory is set aside, what claims to unpack to far more than its bytes."""
    if declared > MOST_EXPANSION * present + FREE_BYTES:
        raise MerlinError(
            f"{where}: claims {declared} bytes of numbers in a file of {present}; get it again."
        )


def regular_file(path: Path) -> Path:
    """The path of a file that is there and is neither a pipe nor a device."""
    if not path.exists():
        raise MerlinError(f"{path}: is missing; copy the log again.")
    if not path.is_file():
        raise MerlinError(f"{path}: is not a regular file; give one.")
    return path


def require(module: str, what: str) -> Any:
    """A module that only some log formats need."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise MerlinError(
            f"{package} is not installed, which {what} needs; pip install 'merlin[formats]'."
        ) from None


def _vectors(log: Log) -> list[str]:
    return [name for name, column in log.columns.items() if not column.is_image]


def _listed(log: Log) -> str:
    names = list(log.columns)
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _width(log: Log, name: str) -> int:
    return log.columns[name].width


def _each(log: Log, part: Part) -> list[Part]:
    """A part, dimension by dimension; an image is one."""
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
    """How `select` is told the same parts."""
    whole = {part: part.stop - part.start == _width(log, part.column) for part in parts}
    return ",".join(
        part.column if whole[part] else f"{part.column}[{part.start}:{part.stop}]" for part in parts
    )


def _labels(log: Log, parts: Sequence[Part]) -> list[str]:
    """A name for each dimension: the log's own, or column and index."""
    found = []
    for column, start, _ in (p for part in parts for p in _each(log, part)):
        known = log.columns[column]
        if known.names:
            found.append(known.names[start])
        else:
            found.append(column if known.shape in ((), (1,)) else f"{column}[{start}]")
    return found
