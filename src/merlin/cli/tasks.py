"""merlin tasks"""

from dataclasses import dataclass
from typing import Any

from rich.table import Table

from merlin.cli.show import console
from merlin.tasks.registry import TASKS


@dataclass(frozen=True)
class Tasks:
    """List the tasks: sizes, tolerance, and what the paper tuned for each.

    Every task is a Gymnasium environment, `gymnasium.make("merlin/NAME-v0")` after
    `import merlin`.
    """

    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        if not self.json:
            table = Table("task", "obs", "action", "goal", "tolerance", "steps", "episodes")
            table.add_column("hindsight ratio\nexpert, random")
            table.add_column("horizon\nexpert, random")
            table.add_column("pixels")
            for task in TASKS.values():
                expert, random = task.tuned["expert"], task.tuned["random"]
                other = expert.released_hindsight_ratio
                table.add_row(
                    task.name,
                    str(task.observation_dim),
                    str(task.action_dim),
                    str(task.goal_dim),
                    f"{task.tolerance:g}"
                    + (
                        f" ({task.success_tolerance:g} at the end)"
                        if task.success_tolerance
                        else ""
                    ),
                    str(task.episode_steps),
                    str(task.episodes),
                    f"{expert.hindsight_ratio:g}"
                    + (f" (authors' code: {other:g})" if other is not None else "")
                    + f", {random.hindsight_ratio:g}",
                    f"{expert.horizon}, {random.horizon}",
                    "yes" if task.pixels else "",
                )
            console().print(table)
        return {"tasks": [task.describe() for task in TASKS.values()]}
