"""merlin toy"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from merlin.cli.show import console
from merlin.errors import MerlinError
from merlin.io.extras import check


@dataclass(frozen=True)
class Toy:
    """Run one of the paper's illustrative experiments: point, fourrooms or multigoal.

    Trains Merlin on walks away from a goal, trains GCSL for comparison, and plots and measures
    the actions of both policies on a plane. For example:

      merlin toy point --out runs/toy-point
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """point, fourrooms or multigoal."""
    out: Path
    """Folder for the figures and toy.json."""
    seed: int = 0
    """Random seed of the walks and of the training."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        check("plots", "merlin toy")
        from merlin.toys.experiments import find
        from merlin.toys.report import make

        find(self.name)
        if self.seed < 0:
            raise MerlinError(f"--seed: {self.seed} is negative; give 0 or more.")
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MerlinError(f"{self.out}: cannot be created ({error.strerror}).") from None
        result = make(self.name, self.out, self.seed)
        if not self.json:
            table = Table("method", "horizon", "goals in the data", "goal asked for")
            for column in ("mean angle to the shortest path", "of sampled actions", "reached from"):
                table.add_column(column, justify="right")
            for row in result["rows"]:
                table.add_row(
                    row["method"],
                    str(row["horizon"] or ""),
                    str(row["goals"]),
                    "({:g}, {:g})".format(*row["goal"]),
                    f"{row['angle']:.1f}°",
                    f"{row['sampled_angle']:.1f}°",
                    f"{100 * row['reached']:.1f} %",
                )
            console().print(table)
            for name in (*result["figures"], "toy.json"):
                console().print(str(self.out / name))
        return result
