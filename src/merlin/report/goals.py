"""Tasks with fixed goals: success at each goal, and published numbers for fewer updates."""

from collections.abc import Sequence

import numpy as np

from merlin.bench.rows import Row
from merlin.report import paper, selection
from merlin.report.text_tables import NONE, TextTable, plain_table

ABOUT = (
    "Five fixed goals for each dataset, 50 episodes for each goal unless a command says otherwise; "
    "an episode is a success if it reaches its goal at any step. Best is the evaluation with the "
    "highest success during training. The published numbers are OGBench's, after 1M updates on "
    "its own files: regenerated data is another draw by the same recipe."
)


def per_goal(part: Sequence[Row], grid: str) -> list[TextTable]:
    """Success of the final policies at each goal, averaged over seeds."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in part:
        if row.goals:
            groups.setdefault((row.task, row.variant, row.method), []).append(row)
    if not groups:
        return []
    numbers = sorted({goal for row in part for goal in row.goals or {}}, key=int)

    def mean(rows: Sequence[Row], goal: str) -> str:
        found = [row.goals[goal] for row in rows if row.goals and goal in row.goals]
        return f"{np.mean(found):.2f}" if found else NONE

    lines = [
        [f"{task} {variant}", method, str(len(rows)), *(mean(rows, goal) for goal in numbers)]
        for (task, variant, method), rows in groups.items()
    ]
    header = ["dataset", "method", "seeds", *(f"goal {goal}" for goal in numbers)]
    return [plain_table(f"{grid}-goals", "Final success at each goal", header, lines, labels=2)]


def sooner(part: Sequence[Row]) -> list[TextTable]:
    """Published numbers of another study at 100,000 updates, for the datasets with rows."""
    known = paper.ogbench()["100k"]
    tasks = [task for task in dict.fromkeys(row.task for row in part) if task in known]
    if not tasks:
        return []
    methods = sorted({m for task in tasks for m in known[task]}, key=selection.method_order)

    def number(task: str, method: str) -> str:
        return f"{known[task][method][0]:.2f}" if method in known[task] else NONE

    lines = [[task, *(number(task, method) for method in methods)] for task in tasks]
    title = "Published by another study: best evaluation within 100,000 updates, ten seeds"
    return [plain_table("ogbench-100k", title, ["task", *methods], lines)]
