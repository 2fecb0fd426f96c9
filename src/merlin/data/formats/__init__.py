"""All formats that data can be read from and written to, in one table."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from merlin.data.conversion import Phi, phi_indices, phi_text, reason, refuse_phi
from merlin.data.dataset import ENVIRONMENT, LOG, SUCCESS, Dataset, validate
from merlin.data.formats import (
    arrays,
    lerobot,
    minari,
    native,
    ogbench,
    robomimic,
    table,
    wgcsl,
    zarr,
)
from merlin.data.logs import Fields
from merlin.envs.ogbench import PREFIX as OGBENCH
from merlin.envs.registry import Task, own
from merlin.errors import MerlinError
from merlin.io.files import check_regular

MARK = "#"
"""Separates a name from the fields it was read with, in the source of a dataset."""


class Format(NamedTuple):
    """Functions that read a format from a name given by the user, and write it there."""

    read: Callable[[str, Sequence[int] | None], Dataset]
    write: Callable[[Dataset, str, bool], object]


def _read_native(name: str, phi: Sequence[int] | None) -> Dataset:
    refuse_phi(phi, name)
    return native.load(name)


FORMATS: dict[str, Format] = {
    "wgcsl": Format(wgcsl.read, wgcsl.write),
    "ogbench": Format(ogbench.read, ogbench.write),
    "minari": Format(minari.read, minari.write),
    "native": Format(
        _read_native, lambda data, name, overwrite: native.save(data, name, overwrite=overwrite)
    ),
}
LOGS: dict[str, Callable[[str, Fields], Dataset]] = {
    "lerobot": lerobot.read,
    "zarr": zarr.read,
    "robomimic": robomimic.read,
    "table": table.read,
    "arrays": arrays.read,
}
"""Read-only formats: robot logs with named columns."""
_SUFFIXES = {".pkl": "wgcsl", ".npz": "ogbench"}
_LOG_SUFFIXES = {
    ".hdf5": "robomimic",
    ".h5": "robomimic",
    ".csv": "table",
    ".tsv": "table",
    ".parquet": "table",
    ".txt": "arrays",
}
_LOG_FOLDERS = {
    "lerobot": lerobot.recognises,
    "zarr": zarr.recognises,
    "arrays": arrays.recognises,
}


def written_as(name: str) -> str:
    """The format of a new dataset, judged by its name alone."""
    if name.startswith(OGBENCH):
        return "ogbench"
    is_id = name.startswith(minari.PREFIX)
    return "minari" if is_id else _SUFFIXES.get(Path(name).suffix, "native")


def format_of(name: str) -> str:
    """The format of what exists at a path or id, or would be written there."""
    path = Path(name)
    if minari.recognises(name):
        return "minari"
    if path.is_dir():
        return next((log for log, told in _LOG_FOLDERS.items() if told(path)), "native")
    return _LOG_SUFFIXES.get(path.suffix) or written_as(name)


def is_data(name: str) -> bool:
    """Whether a name refers to a dataset rather than a task."""
    plain, _ = _split(name)
    if plain.startswith(OGBENCH):
        return ogbench.is_downloaded(plain)
    return format_of(plain) != "native" or Path(plain).exists()


def load(
    path: str | Path,
    *,
    phi: Phi | None = None,
    state: str | None = None,
    action: str | None = None,
    episode: str | None = None,
    image_size: int | None = None,
) -> Dataset:
    """Open a dataset of any format, after checking every number.

    The name is a native folder, a `.pkl` of the WGCSL benchmark, an `.npz` of OGBench by its path
    or as `ogbench:NAME`, Minari data by folder or as `minari:ID`, or a robot log (see
    docs/logs.md). `phi` gives the columns of a state that are its goal ("3:6", or indices), for
    data that does not record achieved goals; the default is the whole state. `state`, `action`,
    `episode` and `phi` can name columns of a robot log. If `state` names a video, it is scaled to
    `image_size` pixels in height and width (default 64).
    """
    name, written = _split(str(path))
    given = Fields(state, action, phi, episode, image_size)._asdict().items()
    fields = written._replace(**{key: value for key, value in given if value is not None})
    known = format_of(name)
    if known not in ("native", *LOGS) and not minari.recognises(name) and Path(name).exists():
        check_regular(Path(name))
    if known == "native" and own(name) and not Path(name).exists():
        raise MerlinError(
            f"{name}: is a task, whose data is not here; collect it first, and give its folder."
        )
    if known in LOGS:
        data = LOGS[known](name, fields)
    else:
        data = _read(known, name, fields)
        if known == "native":
            return data  # already checked, file by file
    if fields.image_size is not None and not (known == "lerobot" and data.has_images):
        raise MerlinError(f"image_size: {name} is not read from a video; leave it out.")
    source = name if name.startswith((minari.PREFIX, OGBENCH)) else str(Path(name).resolve())
    if said := _said(fields):
        source += MARK + said
    if data.provenance.keys() <= {ENVIRONMENT, SUCCESS, LOG}:  # else its origin is known
        data = replace(data, provenance={"read_from": source, **data.provenance})
    return validate(replace(data, source=source), name, one_file=True)


def _read(known: str, name: str, fields: Fields) -> Dataset:
    """Read a format that defines its own states and actions."""
    for flag in ("state", "action", "episode", "image_size"):
        if fields._asdict()[flag] is not None and (known != "native" or Path(name).is_dir()):
            raise MerlinError(
                f"--{flag.replace('_', '-')}: is for robot logs; {name} names its own columns, "
                "leave it out."
            )
    indices = None if fields.phi is None else phi_indices(fields.phi)
    data = FORMATS[known].read(name, indices)
    return data if indices is None else replace(data, phi=indices)


def save_as(
    data: Dataset, path: str | Path, *, format: str | None = None, overwrite: bool = False
) -> str:
    """Write a dataset in the format that the name implies, or in `format`; return its name.

    `.pkl` and `.npz` are files, `minari:ID` goes to Minari's store, and anything else is a native
    folder. Writing is atomic.
    """
    name = str(path)
    chosen = format or written_as(name)
    if chosen not in FORMATS:
        raise MerlinError(f"format: none is called {chosen!r}; choose from {', '.join(FORMATS)}.")
    if format is None and Path(name).suffix in _LOG_SUFFIXES:
        raise MerlinError(f"{name}: this format cannot be written; name a folder.")
    if data.drawn_steps is not None and chosen != "native":
        raise MerlinError(
            f"{name}: the format {chosen} cannot say that transitions are drawn from the first "
            f"{data.drawn_steps} steps of an episode only; name a folder."
        )
    check_free(name, overwrite)
    try:
        FORMATS[chosen].write(data, name, overwrite)
    except OSError as error:
        raise MerlinError(f"{name}: cannot be written ({reason(error)}).") from None
    return name


def check_free(name: str, overwrite: bool = False) -> None:
    """Raise an error if the target exists already, before any work is done."""
    if overwrite and written_as(name) == "native":
        native.check_free(Path(name), overwrite)
    if not overwrite and minari.folder_of(name).exists():
        raise MerlinError(f"{name}: already exists; choose another name or pass `overwrite=True`.")


def with_task(data: Dataset, task: Task) -> Dataset:
    """The data with its task set to `task`, whose dimensions must match."""
    seen = task.as_seen(data.observation_shape)
    seen.check_fit((*data.observation_shape, data.action_dim, data.goal_dim), "the data")
    return replace(data, task=task.name)


def _said(fields: Fields) -> str:
    """The fields as text, to be appended to the name of the data."""
    told = {key: value for key, value in fields._asdict().items() if value is not None}
    if not isinstance(told.get("phi", ""), str) or re.fullmatch(r"[\d:,]+", told.get("phi", "")):
        told["phi"] = phi_text(phi_indices(told["phi"]))
    return urlencode(told, safe=":,[]/")


def _split(name: str) -> tuple[str, Fields]:
    """Split a source into the name of its data and the fields it was read with."""
    plain, mark, told = name.rpartition(MARK)
    pairs: dict[str, Any] = dict(parse_qsl(told)) if mark and not Path(name).exists() else {}
    if not pairs or not pairs.keys() <= set(Fields._fields):
        return minari.full_name(name), Fields()
    if (size := pairs.get("image_size")) is not None:
        pairs["image_size"] = int(size) if re.fullmatch(r"\d{1,6}", size) else 0  # 0 is refused
    return minari.full_name(plain), Fields(**pairs)
