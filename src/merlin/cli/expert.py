"""merlin expert train, merlin expert eval"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from merlin.cli.help import paragraphs
from merlin.cli.show import console, scores
from merlin.envs.registry import find
from merlin.errors import MerlinError


@dataclass(frozen=True)
class ExpertTrain:
    """Train an expert for a task with DDPG and hindsight experience replay.

    For example:

      merlin expert train FetchReach --out runs/expert-reach
      merlin expert train FetchReach --out runs/expert-reach --resume
    """

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
    """Name of the task."""
    out: Path
    """Folder for the weights, the card, the learning curve and checkpoints."""
    cycles: int | None = None
    """Number of cycles of playing and learning; by default that of the task's plan."""
    seed: int = 0
    """Random seed."""
    workers: int | None = None
    """Number of worker processes; by default one per core."""
    resume: bool = False
    """Resume the training in --out."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        task = find(self.task)
        from merlin.experts.plans import PLANS
        from merlin.experts.training import train_expert

        plan = PLANS.get(task.name)
        if plan and self.cycles is not None:
            plan = dataclasses.replace(plan, cycles=self.cycles)
        made = train_expert(
            task,
            self.out,
            plan=plan,
            seed=self.seed,
            workers=self.workers,
            resume=self.resume,
            quiet=False,
        )
        if not self.json:
            print(
                f"{self.out / 'actor.safetensors'}: success {made['success']:.2f}, return "
                f"{made['return']:.2f} over {made['episodes']} episodes without noise"
            )
        return made


@dataclass(frozen=True)
class ExpertEval:
    """Evaluate an expert without noise on seeded episodes.

    For example:

      merlin expert eval FetchReach
      merlin expert eval FetchReach --actor runs/expert-reach/actor.safetensors
    """

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
    """Name of the task."""
    actor: Path | None = None
    """Weights to evaluate; by default those shipped with the package."""
    episodes: int = 200
    """Number of episodes."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        task = find(self.task)
        if self.episodes < 1:
            raise MerlinError(f"--episodes: {self.episodes} is below 1; give 1 or more.")
        from merlin.evaluation.statistics import summary
        from merlin.experts.actor import Actor
        from merlin.experts.library import shipped
        from merlin.experts.training import CARD_SEED, Players, evaluate_actor

        actor = shipped(task) if self.actor is None else Actor.load(self.actor)
        with Players(task) as opened:
            returns, success = evaluate_actor(opened, actor, self.episodes, CARD_SEED)
        result = {
            "task": task.name,
            "episodes": self.episodes,
            "return": summary(returns[None]),
            "success": summary(success[None]),
        }
        if not self.json:
            console().print(scores(f"expert for {task.name}, without noise", [("", result)]))
        return result


@dataclass(frozen=True)
class Expert:
    """Train or evaluate the experts that collect expert data."""

    action: Annotated[
        Annotated[ExpertTrain, tyro.conf.subcommand("train", description=paragraphs(ExpertTrain))]
        | Annotated[ExpertEval, tyro.conf.subcommand("eval", description=paragraphs(ExpertEval))],
        tyro.conf.arg(name=""),
    ]

    def __call__(self) -> dict[str, Any]:
        return self.action()
