"""The learning curve of a run folder, drawn from the logs of its seeds."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from merlin.errors import printable
from merlin.evaluation import figures
from merlin.training.folder import read_config
from merlin.training.log import read_metrics

FILE = "curve.png"
LARGEST = 1e30
"""Larger numbers cannot be drawn."""
LABELS = {
    "eval/return": "discounted return",
    "eval/success": "success",
    "held_out/action_error": "held-out action error",
    "loss": "training loss",
}
"""The quantities that are drawn if the logs have them."""


def save_curve(folder: Path, target: Path | None = None) -> Path:
    """Draw the learning curve of a run into its folder, or into another."""
    return figures.save(draw(folder), (target or folder) / FILE)


def draw(folder: Path) -> Figure:
    """One panel for each quantity, one line for each seed."""
    config = read_config(folder)
    logs = {s: _rows(folder / f"seed-{s}" / "metrics.jsonl") for s in config.seeds}
    shown = [key for key in LABELS if any(key in row for rows in logs.values() for row in rows)]
    figure = Figure(figsize=(3.4 * max(len(shown), 1), 2.8))
    panels = figure.subplots(1, max(len(shown), 1), squeeze=False)[0]
    for axes, key in zip(panels, shown, strict=True):
        for seed, rows in logs.items():
            points = [
                (row["step"], row[key])
                for row in rows
                if row["step"] <= config.schedule.updates and abs(row.get(key, np.inf)) < LARGEST
            ]
            mark = "o-" if len(points) < 30 else "-"
            xy = np.array(points).reshape(-1, 2).T
            axes.plot(*xy, mark, markersize=3, label=f"seed {seed}")
        _style(axes, key)
    if len(logs) > 1:
        panels[0].legend(fontsize=7, frameon=False)
    title = printable(f"{config.algo} on {config.task or 'data without a task'}")
    figure.suptitle(title, fontsize=10, parse_math=False)
    figure.tight_layout()
    return figure


def _rows(path: Path) -> list[dict[str, float]]:
    return [row for row, _ in read_metrics(path)]


def _style(axes: Axes, key: str) -> None:
    axes.set(xlabel="updates", ylabel=LABELS[key])
    if key == "eval/success":
        axes.set_ylim(-0.02, 1.02)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
