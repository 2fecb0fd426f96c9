"""Select and order the rows of benchmark folders for a report."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from merlin.bench.grids import OGBENCH_METHODS
from merlin.bench.rows import IMAGE_SETTINGS, Row, read_about, read_rows
from merlin.envs.ogbench import DOWNLOADED, REGENERATED
from merlin.envs.registry import OGBENCH, TASKS, VARIANTS
from merlin.errors import MerlinError

METHODS = (
    *("merlin", "merlin-p", "merlin-np", "merlin-mb", "merlin-ts"),
    *("gofar", "wgcsl", "gcsl", "gcsl-ts", "am", "dd", "g-dql", "beso"),
)
"""In the paper's order, with its own methods first."""
IMAGE_ONLY = {*IMAGE_SETTINGS, "latent_updates", "latent_units"}
"""Settings that only apply to images."""


def read(folders: Sequence[Path]) -> list[Row]:
    """Read all rows of the given benchmark folders, in the order of the tables."""
    if not folders:
        raise MerlinError("DIR: is missing; give a run, or folders that `merlin bench` wrote.")
    rows: list[Row] = []
    for folder in folders:
        read_about(folder)  # says so if it is none
        rows += read_rows(folder / "rows.jsonl")
    if not rows:
        named = ", ".join(map(str, folders))
        raise MerlinError(f"{named}: holds no rows yet; let `merlin bench` finish a cell first.")
    return sorted(rows, key=order)


def select(rows: Sequence[Row]) -> list[Row]:
    """The rows that count: one per cell and seed, with equal numbers of updates in every average.

    If a cell was run several times, only the latest success counts. If some seeds of a dataset and
    method were trained longer than others, only the longest count. Failed rows never count.
    """
    latest: dict[tuple, Row] = {}
    for row in rows:
        if not row.done:
            continue
        key = (*_group(row), row.seed, row.updates)
        if key not in latest or latest[key].finished <= row.finished:
            latest[key] = row
    longest: dict[tuple, int] = {}
    for row in latest.values():
        longest[_group(row)] = max(row.updates, longest.get(_group(row), 0))
    return [row for row in latest.values() if row.updates == longest[_group(row)]]


def alike(rows: Sequence[Row]) -> list[Row]:
    """The scored rows that may be compared: those with the data and updates of most methods.

    Computed per dataset, separately for states and images. Other rows are for the same task, but
    differences between them and these rows say nothing about the methods.
    """
    scored = [row for row in rows if row.final]
    usual = {}
    for place in {_place_of(row) for row in scored}:
        own = {(row.method, _basis(row)) for row in scored if _place_of(row) == place}
        counts = Counter(basis for _, basis in own)
        usual[place] = max(counts, key=lambda basis: (counts[basis], basis))
    return [row for row in scored if _basis(row) == usual[_place_of(row)]]


def _place_of(row: Row) -> tuple:
    return row.pixels, row.dataset


def _basis(row: Row) -> tuple[str, int]:
    """The properties that two comparable scores share."""
    return row.data.get("fingerprint", ""), row.all_updates


def column(row: Row) -> str | None:
    """The paper's method of a row, small or not; None if another setting was changed.

    From images it is the same method on latents as on images.
    """
    changed = set(row.settings) - (IMAGE_ONLY if row.pixels else set())
    usual = row.preset in (None, "small") and row.asked.get("tuned", "own") == "own"
    return row.algo if usual and not changed else None


def failures(rows: Sequence[Row]) -> list[Row]:
    """Failed rows of cells that never succeeded, one per cell."""
    done = {(*_group(row), row.seed) for row in rows if row.done}
    last = {(*_group(row), row.seed): row for row in rows if not row.done}
    return [row for key, row in last.items() if key not in done]


def anchor(row: Row) -> str:
    """The anchor of the rows on the page that are averaged with this one."""
    parts = [row.grid, row.task, row.variant, row.method, "pixels" * row.pixels]
    text = "-".join(part for part in parts if part)
    return "rows-" + "".join(c if c.isalnum() or c in "-_." else "_" for c in text)


def order(row: Row) -> tuple:
    """Sort key that follows the paper's tables."""
    names = (*dataset_order(row.dataset), *method_order(row.method))
    return row.grid, row.pixels, *names, row.seed, row.finished


def dataset_order(dataset: tuple[str, str]) -> tuple:
    variant, task = dataset
    kinds = (*VARIANTS, DOWNLOADED, REGENERATED)
    return (*_place(variant, kinds), *_place(task, (*TASKS, *OGBENCH)))


def method_order(method: str) -> tuple:
    known = tuple(dict.fromkeys((*METHODS, *OGBENCH_METHODS)))
    return (*_place(method.split(" ")[0], known), method)


def _place(name: str, known: Sequence[str]) -> tuple[int, str]:
    return (known.index(name) if name in known else len(known)), name


def _group(row: Row) -> tuple:
    return row.grid, row.pixels, row.task, row.variant, row.method
