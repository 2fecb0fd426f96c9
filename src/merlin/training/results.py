"""The results of a run and of each of its seeds, as stored in result.json."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any, Self

import numpy as np

from merlin.evaluation.evaluate import Evaluation, summarise
from merlin.io.schema import read_as
from merlin.training.folder import RunConfig


@dataclass(frozen=True)
class Score:
    """Means over the episodes of one evaluation, and the update it was made after, if known."""

    mean_return: float
    success: float
    step: int | None = None

    @classmethod
    def of(cls, found: Evaluation, step: int | None = None) -> Self:
        return cls(float(found.returns.mean()), float(found.success.mean()), step)

    def to_json(self) -> dict[str, Any]:
        step = {} if self.step is None else {"step": self.step}
        return {**step, "return": self.mean_return, "success": self.success}

    @classmethod
    def from_json(cls, content: Any, where: Path) -> Self | None:
        if not isinstance(content, dict):
            return read_as(NoneType, content, where)
        return read_as(cls, {**content, "mean_return": content.get("return")}, where)


@dataclass(frozen=True)
class SeedResult:
    """The scores of one seed per episode, and reports on how its data was made."""

    seed: int
    best: Score | None = None
    final: Evaluation | None = None
    held_out: dict[str, Any] | None = None  # on held-out steps, final and best
    encoded: dict[str, Any] | None = None
    augmented: dict[str, Any] | None = None
    mix: float | None = None  # fraction of synthetic examples per batch

    def to_json(self) -> dict[str, Any]:
        """The content of seed-S/result.json; the reports are in the run's result.json."""
        arrays = vars(self.final).items() if self.final else ()
        final = {k: v.tolist() for k, v in arrays if v is not None} or None
        held_out = {} if self.held_out is None else {"held_out": self.held_out}
        best = self.best and self.best.to_json()
        return {"seed": self.seed, "best": best, "final": final, **held_out}

    def summary(self) -> "SeedSummary":
        final = None if self.final is None else Score.of(self.final)
        return SeedSummary(
            self.seed, self.encoded, self.augmented, self.mix, final, self.best, self.held_out
        )


@dataclass(frozen=True)
class SeedSummary:
    """One seed in the result of a run."""

    seed: int
    encoded: dict[str, Any] | None = None
    augmented: dict[str, Any] | None = None
    mix: float | None = None
    final: Score | None = None
    best: Score | None = None
    held_out: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        plain = {k: v.to_json() if isinstance(v, Score) else v for k, v in vars(self).items()}
        return {key: value for key, value in plain.items() if value is not None}

    @classmethod
    def from_json(cls, content: dict[str, Any], where: Path) -> Self:
        scores = {key: Score.from_json(content.get(key), where) for key in ("final", "best")}
        return replace(read_as(cls, {**content, "final": None, "best": None}, where), **scores)


@dataclass(frozen=True)
class Result:
    """The result of a run; `final` and `best` are kept apart, and None if there is no task."""

    task: str | None
    variant: str | None
    algo: str
    settings: dict[str, Any]
    updates: int
    version: str | None
    augment: dict[str, Any] | None = None
    mix: float | None = None
    latents: dict[str, Any] | None = None
    final: dict[str, Any] | None = None  # episodes, return and success, as in `summarise`
    best: dict[str, Any] | None = None
    held_out: dict[str, Any] | None = None  # fraction; mean action errors of final and best
    seeds: tuple[SeedSummary, ...] = ()

    def to_json(self) -> dict[str, Any]:
        told = {**vars(self), "seeds": [seed.to_json() for seed in self.seeds]}
        return {k: v for k, v in told.items() if v is not None or k in ("task", "variant")}

    @classmethod
    def from_json(cls, content: dict[str, Any], where: Path) -> Self:
        told = read_as(list[dict[str, Any]], content.get("seeds"), where)
        seeds = tuple(SeedSummary.from_json(seed, where) for seed in told)
        return replace(read_as(cls, {**content, "seeds": []}, where), seeds=seeds)


def aggregate(config: RunConfig, rows: list[SeedResult]) -> Result:
    """Combine the results of all seeds."""
    finals = [row.final for row in rows if row.final is not None]
    best = [row.best for row in rows if row.best is not None]
    plan = config.schedule
    scores: dict[str, Any] = {}
    if finals:
        means = {
            "return": {"mean": float(np.mean([score.mean_return for score in best]))},
            "success": {"mean": float(np.mean([score.success for score in best]))},
        }
        scores = {
            "final": {"episodes": plan.final_episodes, **summarise(finals)},
            "best": {"episodes": plan.eval_episodes, **means},
        }
    if config.held_out is not None:
        predictions = [row.held_out for row in rows if row.held_out is not None]
        scores["held_out"] = {"share": config.held_out, **_means(predictions)}
    same = ("task", "variant", "algo", "settings", "version", "augment", "mix", "latents")
    return Result(
        **{name: getattr(config, name) for name in same},
        **scores,
        updates=plan.updates,
        seeds=tuple(row.summary() for row in rows),
    )


def _means(predictions: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Predictions on held-out steps, averaged over seeds."""
    return {
        which: {
            name: float(np.mean([found[which][name] for found in predictions]))
            for name in ("action_error", "log_likelihood")
            if predictions[0][which][name] is not None
        }
        for which in ("final", "best")
    }
