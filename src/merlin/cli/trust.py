"""merlin trust"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.table import Table

from merlin import DEFAULT_METHOD
from merlin.cli.columns import NONE, LogColumns
from merlin.cli.options import check_tolerance, write_html
from merlin.cli.show import console
from merlin.errors import MerlinError
from merlin.io.extras import check
from merlin.io.interruption import interruptible

if TYPE_CHECKING:
    from merlin.data import Dataset
    from merlin.training.runs import Run

HELD_OUT = 0.1
"""Fraction of episodes held out if data is given instead of a run."""


@dataclass(frozen=True)
class Trust:
    """Estimate which goals a trained policy is ready for, from held-out episodes alone.

    For example:

      merlin train logs/arm --algo merlin-plus --out runs/arm
      merlin trust runs/arm --html arm.html
      merlin trust runs/arm --goals goals.csv --json
      merlin trust logs/arm --phi gripper.pos --out runs/arm

    No simulator is needed: recorded transitions take its place. Given data instead of a run, the
    default method is trained first, with a tenth of the episodes held out.
    """

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA|RUN")]
    """A run folder that was trained with held-out episodes; or data to train on, as for `merlin
    train`."""
    goals: Path | None = None
    """Goals to assess: a .csv or .npy file with one goal per row; by default goals spread over the
    held-out episodes."""
    tolerance: float | None = None
    """Distance to a goal that counts as reached, if the task does not define it."""
    stay: bool = False
    """Count a rehearsal only if it is still near the goal at its end: stricter, and too strict near
    the edges of the data."""
    out: Path | None = None
    """With data: the run folder to write; without it, the policy is not kept."""
    updates: int | None = None
    """With data: the number of gradient steps; by default 5000."""
    columns: LogColumns = NONE
    checkpoint: str = "final"
    """Which policy to assess: final, or best."""
    html: Path | None = None
    """Also write the findings as an HTML page."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        from merlin.data.formats import is_data
        from merlin.data.goal_table import read_goals
        from merlin.evaluation.trust import verdict
        from merlin.training.layout import is_run

        if self.html is not None:
            check("plots", "--html")
        check_tolerance(self.tolerance)
        trains = is_data(self.run) and not is_run(Path(self.run))
        if not trains and not Path(self.run).is_dir():
            raise MerlinError(f"{self.run}: no such run or dataset; check the path.")
        run, data = self._train() if trains else self._load()
        goals = None if self.goals is None else read_goals(self.goals, run.config.dimensions[-1])
        found = run.trust(goals, data=data, tolerance=self.tolerance, stay=self.stay, quiet=False)
        about, sentence = found.to_json(), verdict(found)
        if self.html is not None:
            from merlin.report.trust import page

            write_html(self.html, page(self.run, sentence, about))
        if not self.json:
            _print(self.run, sentence, about)
        kept = None if run.folder is None else str(run.folder)
        return {"run": kept, "checkpoint": self.checkpoint, "verdict": sentence, **about}

    def _load(self) -> tuple["Run", None]:
        from merlin.training.runs import load_run

        given = {"out": self.out, "updates": self.updates, **self.columns.given()}
        for name in (name for name, value in given.items() if value is not None):
            raise MerlinError(
                f"--{name.replace('_', '-')}: is for data that is trained on first; omit it, "
                f"since {self.run} is a run."
            )
        return load_run(Path(self.run), self.checkpoint), None

    def _train(self) -> tuple["Run", "Dataset"]:
        from merlin.data import load
        from merlin.evaluation.trust import check_vectors
        from merlin.training.runs import load_run
        from merlin.training.train import train

        if self.out is None and self.checkpoint != "final":
            raise MerlinError(f"--checkpoint: {self.checkpoint} is kept in a run; give --out.")
        data = load(self.run, **self.columns.given())
        check_vectors(data)
        updates = 5000 if self.updates is None else self.updates
        with interruptible(self._farewell):
            run = train(
                DEFAULT_METHOD,
                data,
                out=self.out,
                quiet=False,
                held_out=HELD_OUT,
                updates=updates,
            )
        return (run if self.out is None else load_run(self.out, self.checkpoint)), data

    def _farewell(self) -> str:
        if self.out is None:
            return "stopped; nothing is kept without --out."
        return f"stopped; continue with `merlin train --out {shlex.quote(str(self.out))} --resume`."


def _print(run: str, sentence: str, about: dict[str, Any]) -> None:
    print(f"{run}: {sentence}")
    print(
        "  {training_episodes} training and {held_out_episodes} held-out episodes; near means "
        "within {radius:.3g} ({near})".format(**about)
    )
    errors = Table(
        *("steps to the goal", "policy", "with another goal"),
        *("nearest state", "nearest state and goal", "mean action"),
    )
    errors.title = "action error on held-out steps (1 is half the range of an action)"
    names = ("policy", "other_goal", "nearest_state", "nearest_state_and_goal", "mean_action")
    for row in about["prediction"]:
        label = f"{row['from']} to {row['to']}"
        errors.add_row(label, *(_interval(row[name]) for name in names))
    console().print(errors)
    steps = about["steps"]
    print(
        f"steps to the goal, up to {steps['limit']}, by a model of the training episodes: off by "
        f"{_interval(steps['error'])}"
    )
    for row in steps["within"]:
        print(f"  probability of {row['steps']} steps or fewer: off by {row['error']:.3f}")
    goals = Table(
        "goal", "verdict", "confidence", "episodes near", "rehearsals", "steps", "recorded"
    )
    goals.add_column(f"recorded within {steps['limit']}")
    for goal in about["goals"]:
        goals.add_row(
            ", ".join(f"{x:.3g}" for x in goal["goal"][:6]),
            goal["word"],
            _interval({"mean": goal["confidence"], "ci95": goal["ci95"]}),
            str(goal["support"]),
            f"{goal['reached']} of {goal['rehearsals']}",
            _number(goal["steps"]),
            _number(goal["recorded_steps"]),
            f"{goal['recorded_within']:.2f}",
        )
    console().print(goals)
    if about["lacks"]:
        print("missing from the data:")
    for line in about["lacks"]:
        print(f"  {line}")


def _interval(found: dict[str, Any]) -> str:
    told = f"{found['mean']:.2f}"
    return told if found["ci95"] is None else told + " [{:.2f}, {:.2f}]".format(*found["ci95"])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
