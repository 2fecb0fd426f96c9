"""In which order cells run, and what of a grid is there and what is left."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from merlin.bench.grids import DIFFUSION, RELEASED, Cell, is_harder
from merlin.envs.registry import find

EXTRA = ("merlin-map",)
"""Methods that no table of the paper has, and no count of cells."""

Seconds = Callable[[Cell], float | None]
"""About how long a cell takes, if that is known."""


def in_order(cells: Iterable[Cell], seconds: Seconds) -> list[Cell]:
    """The cells that are worth most first, so that a grid that is stopped lacks whole rows.

    The first seed of every column of the paper, dataset by dataset, the easier tasks first; then
    the first seed of columns that only we have; then the second seeds, and so on. Within a dataset
    cheap methods come first and the diffusion methods last.
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
    """What is a row of a table: task, kind of data, states or images."""
    return cell.task, cell.variant, cell.pixels


@dataclass(frozen=True)
class Share:
    """One method on one dataset: the cells asked for, how many are there, how long the rest is."""

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
    """What is there and what is missing, by dataset and method, in the order of the cells."""
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
