"""Checkpoints of a run: the training state of its seeds, and their evaluations so far.

checkpoint-SEEDS.safetensors is the newest. previous-SEEDS.safetensors is the one before it, used if
the newest is damaged.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import jax.numpy as jnp
import numpy as np

from merlin.errors import MerlinError
from merlin.evaluation.held_out import Prediction
from merlin.io.schema import read_as
from merlin.io.tensors import read_metadata
from merlin.nets.checkpoint import load_tree, save_tree
from merlin.training.results import Score
from merlin.types import State

SAVE_SECONDS = 60.0
"""Maximum seconds between checkpoints, which limits the loss if a slow run is killed."""
SAVE_SHARE = 0.1
"""Maximum fraction of the training time that goes into checkpoints."""


@dataclass(frozen=True)
class Position:
    """The training state of a group of seeds, without its evaluations.

    Metrics are summed update by update, so the order does not depend on how a run is split.
    """

    step: int
    state: State
    sums: dict[str, Any] | None = None  # of metrics, over the updates since `since`
    since: int = 0
    logged: int = 0  # the step of the last logged row of metrics


@dataclass(frozen=True)
class Evaluations:
    """The evaluations of one seed so far."""

    best: Score | None = None
    scores: tuple[Score, ...] = ()
    predictions: tuple[Prediction, ...] = ()  # on held-out steps

    @property
    def step(self) -> int:
        """The step of the last evaluation."""
        last = [found[-1].step or 0 for found in (self.scores, self.predictions) if found]
        return max(last, default=0)

    @property
    def best_prediction(self) -> Prediction | None:
        """The first prediction with the lowest action error."""
        return min(self.predictions, key=lambda found: found.action_error, default=None)

    def to_json(self) -> dict[str, Any]:
        best = None if self.best is None else self.best.to_json()
        told = {"held_out": [asdict(found) for found in self.predictions]}
        return {
            **{"best": best, "evaluations": [score.to_json() for score in self.scores]},
            **(told if self.predictions else {}),
        }

    @classmethod
    def from_json(cls, content: dict[str, Any], where: Path) -> Self:
        told = read_as(list[dict[str, Any]], content.get("evaluations"), where)
        scores = (Score.from_json(score, where) for score in told)
        return cls(
            Score.from_json(content.get("best"), where),
            tuple(filter(None, scores)),
            read_as(tuple[Prediction, ...], content.get("held_out", []), where),
        )


@dataclass(frozen=True)
class About:
    """The metadata of a checkpoint; older ones lack `sums` and its steps."""

    step: int
    known: tuple[dict[str, Any], ...]  # evaluations of each seed
    sums: dict[str, float | list[float]] | None = None
    since: int | None = None
    logged: int | None = None


def worth_saving(scheduled: bool, seconds: float, cost: float) -> bool:
    """Whether to save `seconds` after the last checkpoint, which took `cost` seconds.

    A scheduled checkpoint is skipped if saving would take too much of the time: little is lost if
    the run is killed, since the last checkpoint is recent.
    """
    return cost < SAVE_SHARE * seconds and (scheduled or seconds > SAVE_SECONDS)


class Checkpoints:
    """The two checkpoints of a group of seeds."""

    def __init__(self, folder: Path, seeds: tuple[int, ...]):
        name = f"{'-'.join(map(str, seeds))}.safetensors"
        self.seeds = seeds
        self.last, self.previous = folder / f"checkpoint-{name}", folder / f"previous-{name}"

    def save(self, at: Position, known: Sequence[Evaluations]) -> None:
        """Write a new checkpoint and keep the previous one."""
        about = {
            "step": at.step,
            "since": at.since,
            "logged": at.logged,
            "sums": at.sums and {k: np.asarray(v).tolist() for k, v in at.sums.items()},
            "known": [found.to_json() for found in known],
        }
        save_tree(self.last, at.state, about, keep=self.previous)

    def load(self, like: State) -> tuple[Position, list[Evaluations]] | None:
        """Load the newest intact checkpoint, or None; `like` has the shapes of the state."""
        if not (self.last.exists() or self.previous.exists()):
            return None
        try:
            return self._load(self.last, like)
        except MerlinError as error:
            if not self.previous.exists():
                raise
            found = self._load(self.previous, like)
            print(f"merlin: {error} Continuing from {self.previous}.", file=sys.stderr)
            return found

    def _load(self, path: Path, like: State) -> tuple[Position, list[Evaluations]]:
        state, content = load_tree(path, like)
        about: About = read_as(About, content, path)
        if len(about.known) != len(self.seeds):
            raise MerlinError(f"{path}: holds {len(about.known)} other seeds; train again.")
        sums: dict[str, Any] | None = None
        if about.sums is not None:
            sums = {name: jnp.asarray(v, jnp.float32) for name, v in about.sums.items()}
        since, logged = (
            about.step if told is None else told for told in (about.since, about.logged)
        )
        found = [Evaluations.from_json(known, path) for known in about.known]
        return Position(about.step, state, sums, since, logged), found


def steps_done(folder: Path) -> Iterator[int]:
    """The number of updates at each checkpoint in a run folder.

    A damaged checkpoint is skipped if the previous one is readable.
    """
    for path in folder.glob("checkpoint-*.safetensors"):
        try:
            yield _step(path)
        except MerlinError:
            before = path.with_name(path.name.replace("checkpoint", "previous", 1))
            if not before.exists():
                raise
            yield _step(before)


def _step(path: Path) -> int:
    return read_as(int, read_metadata(path).get("step"), path)
