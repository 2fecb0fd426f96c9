"""Checkpoints of a run: how far its seeds have come, and what their evaluations found.

checkpoint-SEEDS.safetensors is the newest, previous-SEEDS.safetensors the one before it, which is
taken when the newest is damaged.
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


@dataclass(frozen=True)
class Position:
    """How far a group of seeds has come, without what its evaluations found.

    Metrics are summed update by update, in the same order however the run is cut.
    """

    step: int
    state: State
    sums: dict[str, Any] | None = None  # of metrics, over the updates after `since`
    since: int = 0
    logged: int = 0  # the step of the last row of metrics


@dataclass(frozen=True)
class Evaluations:
    """What the evaluations of one seed found so far."""

    best: Score | None = None
    scores: tuple[Score, ...] = ()
    predictions: tuple[Prediction, ...] = ()  # of held-out steps

    @property
    def step(self) -> int:
        """The step of the last evaluation."""
        last = [found[-1].step or 0 for found in (self.scores, self.predictions) if found]
        return max(last, default=0)

    @property
    def best_prediction(self) -> Prediction | None:
        """The first with the least action error."""
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
    """What a checkpoint says beside its arrays; older ones have no sums and their steps."""

    step: int
    known: tuple[dict[str, Any], ...]  # evaluations of each seed
    sums: dict[str, float | list[float]] | None = None
    since: int | None = None
    logged: int | None = None


class Checkpoints:
    """The two checkpoints of seeds that train together."""

    def __init__(self, folder: Path, seeds: tuple[int, ...]):
        name = f"{'-'.join(map(str, seeds))}.safetensors"
        self.seeds = seeds
        self.last, self.previous = folder / f"checkpoint-{name}", folder / f"previous-{name}"

    def save(self, at: Position, known: Sequence[Evaluations]) -> None:
        """Write the newest; what was the newest is kept."""
        about = {
            "step": at.step,
            "since": at.since,
            "logged": at.logged,
            "sums": at.sums and {k: np.asarray(v).tolist() for k, v in at.sums.items()},
            "known": [found.to_json() for found in known],
        }
        save_tree(self.last, at.state, about, keep=self.previous)

    def load(self, like: State) -> tuple[Position, list[Evaluations]] | None:
        """The newest that is whole, or None if there is none yet; `like` has the state's shapes."""
        if not (self.last.exists() or self.previous.exists()):
            return None
        try:
            return self._load(self.last, like)
        except MerlinError as error:
            if not self.previous.exists():
                raise
            found = self._load(self.previous, like)
            print(f"merlin: {error} Going on from {self.previous}.", file=sys.stderr)
            return found

    def _load(self, path: Path, like: State) -> tuple[Position, list[Evaluations]]:
        state, content = load_tree(path, like)
        about: About = read_as(About, content, path)
        if len(about.known) != len(self.seeds):
            raise MerlinError(f"{path}: is of {len(about.known)} seeds; train anew.")
        sums: dict[str, Any] | None = None
        if about.sums is not None:
            sums = {name: jnp.asarray(v, jnp.float32) for name, v in about.sums.items()}
        since, logged = (
            about.step if told is None else told for told in (about.since, about.logged)
        )
        found = [Evaluations.from_json(known, path) for known in about.known]
        return Position(about.step, state, sums, since, logged), found


def steps_done(folder: Path) -> Iterator[int]:
    """The updates after which the checkpoints of a run folder were written.

    A damaged one is passed over if the one before it can be read.
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
