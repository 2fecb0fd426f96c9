"""merlin info"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from merlin.cli.columns import NONE, LogColumns
from merlin.cli.flags import with_flags
from merlin.cli.options import check_tolerance, write_html
from merlin.cli.show import console
from merlin.envs.registry import find, own
from merlin.io.extras import check

DIMENSIONS = 6
"""Number of dimensions printed per field; --json has all of them."""
BAR = 40
ACTIONS = {"absolute": "target states", "delta": "changes of the state"}
"""What actions look like, in words."""


@dataclass(frozen=True)
class Info:
    """Check every file and every number of a dataset, and describe it.

    For example:

      merlin info data/rooms
      merlin info buffer.pkl --task FetchPush
      merlin info logs/arm --state observation.state --phi gripper.pos --html arm.html
    """

    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """A dataset folder, a .pkl or .npz file, minari:ID, a robot log (see docs/logs.md), or
    ogbench:NAME if it has been downloaded."""
    task: str | None = None
    """Task of the data, if the data does not name it."""
    columns: LogColumns = NONE
    tolerance: float | None = None
    """Distance to a goal that counts as reached, if the task does not define it."""
    html: Path | None = None
    """Also write the description as an HTML page with histograms."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        from merlin.data import describe, load
        from merlin.data.formats import with_task

        if self.html is not None:
            check("plots", "--html")
        check_tolerance(self.tolerance)
        task = find(self.task) if self.task else None
        data = load(self.data, **self.columns.given())
        data = with_task(data, task) if task else data
        tolerance = self.tolerance
        if tolerance is None and task is not None and own(task.name) is None:
            tolerance = task.tolerance
        about = describe.describe(data, tolerance)
        about["findings"] = [with_flags(finding, self) for finding in about["findings"]]
        summary = describe.in_words(data, tolerance)
        hints = describe.how_to_evaluate(data), describe.why_not_counted(data, tolerance)
        facts = [*_provenance(data.provenance)]
        facts += [with_flags(hint, self) for hint in hints if hint]
        if about["actions_look"]:
            facts.append(f"actions look like {ACTIONS[about['actions_look']]}")
        if self.html is not None:
            from merlin.report.render import page

            content = {"title": self.data, "summary": summary, "facts": facts, "about": about}
            write_html(self.html, page("info.html", **content))
        if not self.json:
            print(f"{self.data}: {summary}")
            for line in facts:
                print(f"  {line}")
            if "returns" in about:
                _print_returns(about["returns"])
            if "length_histogram" in about:
                print("\nstates per episode (the upper end not included)")
                _print_bars(about["length_histogram"], 0)
            print()
            console().print(_ranges(about["ranges"]))
            if about["findings"]:
                print("\nunusual:")
            for finding in about["findings"]:
                print(f"  {finding}")
        return {"path": self.data, **about}


def _provenance(about: Mapping[str, Any]) -> Iterator[str]:
    """The provenance: plain values on one line, and each group of values on its own line."""
    groups = {key: value for key, value in about.items() if isinstance(value, dict)}
    plain = {key: value for key, value in about.items() if key not in groups}
    if plain:
        yield ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in plain.items())
    for name, values in groups.items():
        # Lists of names are shown elsewhere: with the ranges and the findings.
        shown = {
            key: f"{value:.6g}" if isinstance(value, float) else value
            for key, value in values.items()
            if not isinstance(value, list) or key == "tasks"
        }
        yield f"{name}: " + ", ".join(f"{key} {value}" for key, value in shown.items())


def _print_returns(returns: dict[str, Any]) -> None:
    print("\nreturn {mean:.2f}, deviation {std:.2f} (discount {discount})".format(**returns))
    quantiles = returns["quantiles"].items()
    print("  " + ", ".join(f"{float(q):.0%}: {value:.2f}" for q, value in quantiles))
    _print_bars(returns["histogram"], 1)


def _print_bars(histogram: dict[str, list], digits: int) -> None:
    """One bar per bin, scaled to the fullest bin."""
    edges = [f"{edge:.{digits}f}" for edge in histogram["edges"]]
    counts = histogram["counts"]
    block = "█" if "utf" in console().encoding else "#"
    width, most = max(map(len, edges)), max(counts)
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        bar = block * max(round(BAR * count / most), count > 0)
        print(f"  {low:>{width}} to {high:>{width}}  {bar:<{BAR}}  {count}")


def _sparks(counts: list[int]) -> str:
    """A histogram on one line: one character per bin, taller for fuller bins."""
    signs = " ▁▂▃▄▅▆▇█" if "utf" in console().encoding else " .:-=+*%#"
    most = max(*counts, 1)
    return "".join(signs[-(-(len(signs) - 1) * count // most)] for count in counts)


def _ranges(ranges: dict[str, list[dict[str, Any]]]) -> Table:
    table = Table("field", "dimension", "min", "mean", "max", "std", "histogram")
    for name, rows in ranges.items():
        for dim, row in enumerate(rows[:DIMENSIONS]):
            numbers = (f"{row[key]:.3f}" for key in ("min", "mean", "max", "std"))
            label = f"{dim} {row['name']}".rstrip()
            table.add_row(name if dim == 0 else "", label, *numbers, _sparks(row["histogram"]))
        if len(rows) > DIMENSIONS:
            table.add_row("", f"and {len(rows) - DIMENSIONS} more, see --json")
    return table
