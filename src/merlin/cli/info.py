"""merlin info"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.table import Table

from merlin.cli.show import console
from merlin.tasks.registry import find

DIMENSIONS = 6
"""So many dimensions of a field are printed; --json has them all."""
BAR = 40


@dataclass(frozen=True)
class Info:
    """Check a dataset, file by file and number by number, and describe it.

    For example:

      merlin info data/rooms
      merlin info buffer.pkl --task FetchPush
    """

    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """A dataset folder, a .pkl or .npz file, or minari:ID."""
    task: str | None = None
    """Task that the data is from, if it does not say so itself."""
    phi: str | None = None
    """Part of a state that is its goal, as 0:2 or 0,1,5, if achieved goals are not recorded."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        from merlin.data import describe, load
        from merlin.data.formats import with_task

        task = find(self.task) if self.task else None
        data = load(self.data, phi=self.phi)
        data = with_task(data, task) if task else data
        about = describe.describe(data)
        if not self.json:
            print(f"{self.data}: {describe.in_words(data)}")
            for line in _provenance(data.provenance):
                print(f"  {line}")
            if "returns" in about:
                _print_returns(about["returns"])
            if "length_histogram" in about:
                print("\nstates per episode (the upper end not included)")
                _print_bars(about["length_histogram"], 0)
            print()
            console().print(_ranges(about["ranges"]))
        return {"path": self.data, **about}


def _provenance(about: Mapping[str, Any]) -> Iterator[str]:
    """What is known of the origin: plain values in one line, groups of values in one each."""
    groups = {key: value for key, value in about.items() if isinstance(value, dict)}
    plain = {key: value for key, value in about.items() if key not in groups}
    if plain:
        yield ", ".join(f"{key}: {value}" for key, value in plain.items())
    for name, values in groups.items():
        shown = (f"{value:.6g}" if isinstance(value, float) else value for value in values.values())
        pairs = zip(values, shown, strict=True)
        yield f"{name}: " + ", ".join(f"{key} {value}" for key, value in pairs)


def _print_returns(returns: dict[str, Any]) -> None:
    print("\nreturn {mean:.2f}, deviation {std:.2f} (discount {discount})".format(**returns))
    quantiles = returns["quantiles"].items()
    print("  " + ", ".join(f"{float(q):.0%}: {value:.2f}" for q, value in quantiles))
    _print_bars(returns["histogram"], 1)


def _print_bars(histogram: dict[str, list], digits: int) -> None:
    """A bar per bin, as long as its share of the fullest one."""
    edges = [f"{edge:.{digits}f}" for edge in histogram["edges"]]
    counts = histogram["counts"]
    block = "█" if "utf" in console().encoding else "#"
    width, most = max(map(len, edges)), max(counts)
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        bar = block * max(round(BAR * count / most), count > 0)
        print(f"  {low:>{width}} to {high:>{width}}  {bar:<{BAR}}  {count}")


def _ranges(ranges: dict[str, list[dict[str, float]]]) -> Table:
    table = Table("field", "dimension", "min", "mean", "max", "std")
    for name, rows in ranges.items():
        for dim, row in enumerate(rows[:DIMENSIONS]):
            numbers = (f"{row[key]:.3f}" for key in ("min", "mean", "max", "std"))
            table.add_row(name if dim == 0 else "", str(dim), *numbers)
        if len(rows) > DIMENSIONS:
            table.add_row("", f"and {len(rows) - DIMENSIONS} more, see --json")
    return table
