"""merlin trust"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from merlin.cli.show import console
from merlin.errors import MerlinError
from merlin.io.extras import check
from merlin.io.files import write_bytes


@dataclass(frozen=True)
class Trust:
    """Estimate which goals a trained policy is ready for, from held-out episodes alone.

    For example:

      merlin train logs/arm --algo merlin-plus --out runs/arm
      merlin trust runs/arm --html arm.html
      merlin trust runs/arm --goals goals.csv --json

    No simulator is needed: recorded transitions take its place.
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A run folder that was trained with held-out episodes."""
    goals: Path | None = None
    """Goals to assess: a .csv or .npy file with one goal per row; by default goals spread over the
    held-out episodes."""
    tolerance: float | None = None
    """Distance to a goal that counts as reached, if the task does not define it."""
    stay: bool = False
    """Count a rehearsal only if it is still near the goal at its end: stricter, and too strict near
    the edges of the data."""
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
        from merlin.training.folder import is_run
        from merlin.training.runs import load_run

        if self.html is not None:
            check("plots", "--html")
        if self.tolerance is not None and not 0 < self.tolerance < float("inf"):
            raise MerlinError(
                f"--tolerance: {self.tolerance} is not a distance; give a number above 0."
            )
        if not is_run(self.run) and is_data(str(self.run)):
            raise MerlinError(
                f"{self.run}: is a dataset, not a run; train a policy first with "
                f"`merlin train {self.run} --out RUN`, then use `merlin trust RUN`."
            )
        run = load_run(self.run, self.checkpoint)
        goals = None if self.goals is None else read_goals(self.goals, run.config.dimensions[-1])
        found = run.trust(goals, tolerance=self.tolerance, stay=self.stay)
        about, sentence = found.to_json(), verdict(found)
        if self.html is not None:
            from merlin.report.trust import page

            try:
                write_bytes(self.html, page(str(self.run), sentence, about).encode())
            except OSError as error:
                message = f"html {self.html}: cannot be written ({error.strerror})."
                raise MerlinError(message) from None
        if not self.json:
            _print(str(self.run), sentence, about)
        return {"run": str(self.run), "checkpoint": self.checkpoint, "verdict": sentence, **about}


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
    print(f"steps to the goal by {steps['by']}: off by {_interval(steps['error'])}")
    goals = Table("goal", "", "confidence", "episodes near", "rehearsals", "steps", "recorded")
    for goal in about["goals"]:
        goals.add_row(
            ", ".join(f"{x:.3g}" for x in goal["goal"][:6]),
            goal["word"],
            _interval({"mean": goal["confidence"], "ci95": goal["ci95"]}),
            str(goal["support"]),
            f"{goal['reached']} of {goal['rehearsals']}",
            _number(goal["steps"]),
            _number(goal["recorded_steps"]),
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
