"""merlin tasks"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro
from rich.table import Table

from merlin.cli.environment import DEFAULT, OwnEnvironment
from merlin.cli.show import console
from merlin.envs.registry import OGBENCH, TASKS, Task, find
from merlin.errors import MerlinError

EPISODES = 3
"""Number of episodes played to check an environment."""


@dataclass(frozen=True)
class Tasks:
    """List the tasks, or check how merlin interprets your own environment.

    The list shows sizes, tolerances and tuned values. After `import merlin`, every task is a
    Gymnasium environment: `gymnasium.make("merlin/NAME-v0")`. `check` prints how merlin
    interprets an environment, and plays a few episodes to confirm it. For example:

      merlin tasks
      merlin tasks ogbench
      merlin tasks check gymnasium_robotics:PointMaze_UMaze-v3
      merlin tasks check highway_env:parking-v0 --max-steps 100
    """

    action: Annotated[
        tyro.conf.Positional[Literal["list", "ogbench", "check"]], tyro.conf.arg(metavar="[ACTION]")
    ] = "list"
    """list (the default), ogbench (list the OGBench tasks), or check."""
    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[MODULE:ID]")] = None
    """Environment to check: module:EnvId, or the name of a task."""
    environment: OwnEnvironment = DEFAULT
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        if self.action == "check":
            return self._check()
        if self.name is not None:
            raise MerlinError(f"tasks: list takes no name; use `merlin tasks check {self.name}`.")
        listed, table = (OGBENCH, _ogbench) if self.action == "ogbench" else (TASKS, _table)
        if not self.json:
            console().print(table())
        return {"tasks": [task.describe() for task in listed.values()]}

    def _check(self) -> dict[str, Any]:
        if self.name is None:
            raise MerlinError("tasks check: the environment is missing; give it as module:EnvId.")
        task = find(self.environment.of(self.name))
        about = {**task.describe(), "drawing": _drawing(task), "episodes_played": _played(task)}
        if not self.json:
            low, high = ("[" + ", ".join(f"{x:g}" for x in one) + "]" for one in task.bounds())
            console().print(f"{task.name} ({task.env_id})")
            rows = {
                "observation": f"{task.observation_dim} numbers",
                "goal": f"{task.goal_dim} numbers",
                "action": f"{task.action_dim} numbers from {low} to {high}",
                "success": f"{task.scoring.in_words()['success']}, "
                + ("at any step" if task.goal_count else "after the last step"),
                "return": f"discounted steps with {task.scoring.in_words()['return']}",
                "goals": f"{task.goal_count} fixed goals, used in turn"
                if task.goal_count
                else "one per episode",
                "time limit": f"{task.episode_steps} steps",
                "termination": "ends an episode" if task.ends else "is ignored",
                "drawing": about["drawing"],
            }
            for name, text in rows.items():
                console().print(f"  {name:<12} {text}")
            console().print(f"{EPISODES} episodes of random actions:")
            for row in about["episodes_played"]:
                console().print(
                    "  seed {seed}: {steps} steps, at the goal in {at_goal} of them, "
                    "success at the end: {success}".format(**row)
                )
        return about


def _drawing(task: Task) -> str:
    try:
        from merlin.evaluation.video import check_drawing

        check_drawing(task)
    except MerlinError as refusal:
        return f"none: {refusal}"
    return "rgb_array"


def _played(task: Task) -> list[dict[str, Any]]:
    """Episodes of random actions, scored as in an evaluation."""
    from merlin.collection.behaviour import Uniform, play_episodes

    played = play_episodes({}, task, Uniform(), 0, range(EPISODES), task.episode_steps)
    return [
        {
            "seed": index,
            "steps": int(played.lengths[index]),
            "at_goal": int(played.rewards[index].sum()),
            "success": bool(played.success[index, -1]),
        }
        for index in range(EPISODES)
    ]


def _ogbench() -> Table:
    table = Table("task", "obs", "action", "steps", "episodes", "data")
    for task in OGBENCH.values():
        sizes = task.observation_dim, task.action_dim, task.episode_steps, task.episodes
        table.add_row(task.name, *map(str, sizes), " or ".join(task.variants))
    return table


def _table() -> Table:
    table = Table("task", "obs", "action", "goal", "tolerance", "steps", "episodes")
    table.add_column("hindsight ratio\nexpert, random")
    table.add_column("horizon\nexpert, random")
    table.add_column("pixels")
    for task in TASKS.values():
        expert, random = task.tuned["expert"], task.tuned["random"]
        other = expert.released_hindsight_ratio
        at_end = f" ({task.success_tolerance:g} at the end)" if task.success_tolerance else ""
        table.add_row(
            task.name,
            str(task.observation_dim),
            str(task.action_dim),
            str(task.goal_dim),
            f"{task.tolerance:g}{at_end}",
            str(task.episode_steps),
            str(task.episodes),
            f"{expert.hindsight_ratio:g}"
            + (f" (authors' code: {other:g})" if other is not None else "")
            + f", {random.hindsight_ratio:g}",
            f"{expert.values()['horizon']}, {random.values()['horizon']}",
            "yes" if task.pixels else "",
        )
    return table
