"""Runs a toy experiment and writes its figures and numbers."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from merlin.evaluation.figures import save
from merlin.io.files import write_json
from merlin.policies.base import Policy
from merlin.toys import drawing
from merlin.toys.experiments import HORIZONS, Experiment, Field, Trained, find, look, run
from merlin.toys.world import Point


class Report:
    """Collects the figures and numbers of a toy experiment."""

    def __init__(self, folder: Path, seed: int):
        self.folder, self.seed = folder, seed
        self.rows: list[dict[str, Any]] = []
        self.figures: list[str] = []

    def see(
        self,
        method: str,
        policy: Policy,
        experiment: Experiment,
        goal: Point,
        horizon: int | None = None,
    ) -> Field:
        field = look(policy, experiment.world, goal, horizon=horizon, seed=self.seed)
        about = {"method": method, "horizon": horizon, "goals": len(experiment.goals)}
        row = {**about, "goal": goal.tolist(), **field.numbers()}
        if row not in self.rows:  # two figures may show the same result
            self.rows.append(row)
        return field

    def save(self, figure: Any, name: str) -> None:
        save(figure, self.folder / name)
        self.figures.append(name)


def make(name: str, folder: Path, seed: int = 0) -> dict[str, Any]:
    """Run a toy experiment and write its figures and toy.json to the folder."""
    experiments = find(name)
    report = Report(folder, seed)
    trained = [run(experiment, seed) for experiment in experiments]
    if len(experiments) > 1:
        _several_goals(report, experiments, trained)
    else:
        _one_goal(report, experiments[0], trained[0])
    result = {
        "toy": name,
        "seed": seed,
        "settings": asdict(experiments[0].settings),
        "figures": report.figures,
        "rows": report.rows,
    }
    write_json(folder / "toy.json", result)
    return result


def _one_goal(report: Report, experiment: Experiment, trained: Trained) -> None:
    goal, world = np.asarray(experiment.goals[0]), experiment.world
    told = experiment.horizon
    figure, axes = drawing.panels(1, 3, "Walking away from a goal, and the way back")
    drawing.walks(axes[0, 0], trained.data, world, [goal])
    fields = {
        f"Merlin, horizon {told}": report.see("merlin", trained.merlin, experiment, goal, told),
        "GCSL": report.see("gcsl", trained.gcsl, experiment, goal),
    }
    report.see("gcsl-same-walks", trained.gcsl_same, experiment, goal)
    for ax, (title, field) in zip(axes[0, 1:], fields.items(), strict=True):
        drawn = drawing.arrows(ax, field, world, title, goals=[goal], asked=goal)
    drawing.legend(figure, drawn, axes)
    report.save(figure, "fields.png")

    figure, axes = drawing.panels(
        1,
        len(HORIZONS),
        "Merlin told other horizons: sampled actions (arrows), the mean action (numbers)",
    )
    for ax, horizon in zip(axes[0], HORIZONS, strict=True):
        field = report.see("merlin", trained.merlin, experiment, goal, horizon)
        title = f"horizon {horizon}"
        drawn = drawing.arrows(ax, field, world, title, goals=[goal], asked=goal, every=2)
    drawing.legend(figure, drawn, axes, red=False)
    report.save(figure, "horizons.png")

    columns = len(experiment.unseen)
    figure, axes = drawing.panels(2, columns, "Goals that no walk started from")
    for column, unseen in enumerate(map(np.asarray, experiment.unseen)):
        fields = {
            "Merlin": report.see("merlin", trained.merlin, experiment, unseen, told),
            "GCSL": report.see("gcsl", trained.gcsl, experiment, unseen),
        }
        for ax, (title, field) in zip(axes[:, column], fields.items(), strict=True):
            drawn = drawing.arrows(ax, field, world, title, goals=[goal], asked=unseen, every=2)
        report.see("gcsl-same-walks", trained.gcsl_same, experiment, unseen)
    drawing.legend(figure, drawn, axes)
    report.save(figure, "unseen-goals.png")


def _several_goals(
    report: Report, experiments: tuple[Experiment, ...], trained: list[Trained]
) -> None:
    figure, axes = drawing.panels(3, len(experiments), "Several goals, asked for one of them")
    for column, (experiment, found) in enumerate(zip(experiments, trained, strict=True)):
        goals = [np.asarray(goal) for goal in experiment.goals]
        asked, world = goals[0], experiment.world
        drawing.walks(axes[0, column], found.data, world, goals)
        told = experiment.horizon
        for ax, title, field in (
            (
                axes[1, column],
                f"Merlin, horizon {told}",
                report.see("merlin", found.merlin, experiment, asked, told),
            ),
            (axes[2, column], "GCSL", report.see("gcsl", found.gcsl, experiment, asked)),
        ):
            drawn = drawing.arrows(ax, field, world, title, goals=goals[1:], asked=asked, every=2)
        report.see("gcsl-same-walks", found.gcsl_same, experiment, asked)
    drawing.legend(figure, drawn, axes)
    report.save(figure, "fields.png")
