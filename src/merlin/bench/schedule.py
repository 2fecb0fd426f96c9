"""The order in which cells run, and the progress of a grid."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from merlin.bench.grids import DIFFUSION, RELEASED, Cell, is_harder
from merlin.envs.registry import find

EXTRA = ("merlin-map",)
"""Methods that appear in no table of the paper; they run after those that do."""

Seconds = Callable[[Cell], float | None]
"""The estimated duration of a cell, or None if it is unknown."""


def in_order(cells: Iterable[Cell], seconds: Seconds) -> list[Cell]:
    """Sort cells by value, so that an interrupted grid is missing whole rows of its tables.

    The first seed of the paper's methods comes first, dataset by dataset, with the easier tasks
    before the harder ones. The first seed of the `EXTRA` methods follows, then the second seeds,
    and so on. Within a dataset, cheap methods come first and the diffusion methods last.
    """
    given = list(cells)
    datasets = {key: place for place, key in enumerate(dict.fromkeys(map(dataset_of, given)))}
    first = min((cell.seed for cell in given), default=0)

    def worth(cell: Cell) -> tuple:
        extra = cell.algo in EXTRA or cell.preset == RELEASED
        turn = (cell.seed - first, extra, is_harder(find(cell.task)), datasets[dataset_of(cell)])
        cost = seconds(cell)
        unknown = cost is None
        return *turn, cell.algo in DIFFUSION, unknown, cost or 0.0

    return sorted(given, key=worth)


def dataset_of(cell: Cell) -> tuple[str, str, bool]:
    """The key of a table row: task, kind of data, and states or images."""
    return cell.task, cell.variant, cell.pixels


@dataclass(frozen=True)
class Share:
    """One method on one dataset: its cells, how many are done, and the time left."""

    task: str
    variant: str
    pixels: bool
    method: str
    asked: int
    done: int
    seconds: float  # of the missing cells whose time is known
    unknown: int  # missing cells whose time is not

    @property
    def missing(self) -> int:
        return self.asked - self.done


def shares(cells: Sequence[Cell], missing: Collection[str], seconds: Seconds) -> list[Share]:
    """Finished and missing cells by dataset and method, in the order of the cells."""
    groups: dict[tuple[str, str, bool, str], dict[str, Cell]] = {}
    for cell in cells:
        column = f"{cell.algo} ({cell.preset})" if cell.preset else cell.algo
        groups.setdefault((*dataset_of(cell), column), {})[cell.name] = cell
    found = []
    for key, group in groups.items():
        times = [seconds(cell) for name, cell in group.items() if name in missing]
        known = [time for time in times if time is not None]
        unknown = len(times) - len(known)
        found.append(Share(*key, len(group), len(group) - len(times), sum(known), unknown))
    return found
