"""Every format that data can be read from and written to, in one table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from merlin.data import minari_format, native, npz, wgcsl
from merlin.data.conversion import Phi, phi_indices, phi_text, reason, refuse_phi
from merlin.data.dataset import Dataset, validate
from merlin.errors import MerlinError
from merlin.tasks.registry import Task

PHI = "#phi="
"""Stands between a file and the phi it was read with, where both are kept as one source."""


@dataclass(frozen=True)
class Format:
    """How to tell a format by the name that the user gives, to read it and to write it."""

    describes: Callable[[str], bool]
    read: Callable[[str, Sequence[int] | None], Dataset]
    write: Callable[[Dataset, str, bool], object]
    place: Callable[[str], Path] = Path  # where on disk a name stands


def _has_suffix(suffix: str) -> Callable[[str], bool]:
    return lambda name: name.endswith(suffix) and not Path(name).is_dir()


def _read_native(name: str, phi: Sequence[int] | None) -> Dataset:
    refuse_phi(phi, name)
    return native.load(name)


# The first that describes a name has it; the native folder is what remains.
FORMATS: dict[str, Format] = {
    "wgcsl": Format(_has_suffix(".pkl"), wgcsl.read, lambda data, name, _: wgcsl.write(data, name)),
    "npz": Format(_has_suffix(".npz"), npz.read, lambda data, name, _: npz.write(data, name)),
    "minari": Format(
        lambda name: name.startswith(minari_format.PREFIX) or minari_format.recognises(name),
        minari_format.read,
        minari_format.write,
        minari_format.folder_of,
    ),
    "native": Format(
        lambda name: True,
        _read_native,
        lambda data, name, overwrite: native.save(data, name, overwrite=overwrite),
    ),
}


def format_of(name: str) -> str:
    """The format of what stands at a path or id, or would be written there."""
    return next(known for known, form in FORMATS.items() if form.describes(name))


def is_data(name: str) -> bool:
    """Whether a name is that of a dataset rather than of a task."""
    plain, _ = _split(name)
    return format_of(plain) != "native" or Path(plain).exists()


def load(path: str | Path, *, phi: Phi | None = None) -> Dataset:
    """Open a dataset of any format, after checking every number.

    A native folder, a `.pkl` of the WGCSL benchmark, an `.npz` of OGBench, or Minari data by
    folder or as `minari:ID`. `phi` says which part of a state is its goal ("3:6", or indices),
    for data that does not record the achieved goals; without it the whole state is.
    """
    name, written = _split(str(path))
    wanted = written if phi is None else phi
    indices = None if wanted is None else phi_indices(wanted)
    known = format_of(name)
    form = FORMATS[known]
    data = form.read(name, indices)
    if known == "native":
        return data  # it has been checked, file by file
    source = name if name.startswith(minari_format.PREFIX) else str(form.place(name).resolve())
    if indices is not None:
        source += PHI + phi_text(indices)
    provenance = data.provenance or {"read_from": source}
    return validate(replace(data, source=source, provenance=provenance), name, one_file=True)


def save_as(
    data: Dataset, path: str | Path, *, format: str | None = None, overwrite: bool = False
) -> str:
    """Write a dataset in the format that the name asks for, or in `format`; return its name.

    `.pkl` and `.npz` are files, `minari:ID` goes to Minari's store, anything else is a native
    folder. A reader never sees half of it.
    """
    name = str(path)
    chosen = format or written_as(name)
    if chosen not in FORMATS:
        raise MerlinError(f"format: none is called {chosen!r}; choose from {', '.join(FORMATS)}.")
    check_free(name, overwrite)
    try:
        FORMATS[chosen].write(data, name, overwrite)
    except OSError as error:
        raise MerlinError(f"{name}: cannot be written ({reason(error)}).") from None
    return name


def check_free(name: str, overwrite: bool = False) -> None:
    """Refuse to write over what is already there, before any work is done."""
    if not overwrite and FORMATS[written_as(name)].place(name).exists():
        raise MerlinError(f"{name}: already exists; choose another name or pass --overwrite.")


def with_task(data: Dataset, task: Task) -> Dataset:
    """The same data, said to be from `task`, whose dimensions it must have."""
    found: tuple[int, ...] = (data.actions.shape[1], data.achieved_goals.shape[1])
    wanted: tuple[int, ...] = (task.action_dim, task.goal_dim)
    if data.observations.ndim == 2:
        found, wanted = (data.observations.shape[1], *found), (task.observation_dim, *wanted)
    if found != wanted:
        raise MerlinError(
            f"--task {task.name}: its dimensions are {wanted}, those of the data are {found}; "
            "name the task that the data is from."
        )
    return replace(data, task=task.name)


def written_as(name: str) -> str:
    """The format that a new name asks for; what stands there now does not matter."""
    if name.startswith(minari_format.PREFIX):
        return "minari"
    return {".pkl": "wgcsl", ".npz": "npz"}.get(Path(name).suffix, "native")


def _split(name: str) -> tuple[str, str | None]:
    """A source as the name of its data and the phi that it was read with."""
    plain, mark, phi = name.rpartition(PHI)
    if not mark or Path(name).exists():
        plain, phi = name, ""
    return minari_format.full_name(plain), phi or None
