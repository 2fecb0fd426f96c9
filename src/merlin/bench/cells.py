"""Run one cell of a grid and make its row of results."""

import datetime
import time
from pathlib import Path
from typing import Any

import numpy as np

import merlin
from merlin.augment.latents import Latents, take_latents
from merlin.bench.grids import Cell
from merlin.bench.machine import machine
from merlin.bench.results_folder import cell_lock
from merlin.bench.rows import Row, read_row
from merlin.bench.timing import measure
from merlin.data import Dataset, load
from merlin.envs.batch import make_batch
from merlin.envs.registry import find
from merlin.evaluation.evaluate import Evaluation, evaluate
from merlin.io.files import write_json
from merlin.learners.registry import Method
from merlin.parallel.workers import Failure
from merlin.policies.base import Policy
from merlin.training.log import read_metrics
from merlin.training.plan import method_for, without_desired_goals
from merlin.training.train import train

SHARED = "shared"
"""The folder next to the cells for data that several cells share."""


def run_cell(
    memory: dict[str, Any], cell: Cell, folder: Path, data: str | Path | Dataset
) -> Row | None:
    """Train and score a cell, or continue where it was killed. Runs on any engine.

    Returns None if another benchmark process is running the cell; that process writes its row.
    """
    with cell_lock(folder) as mine:
        if not mine:
            return None
        path = folder / "row.json"
        if path.exists() and (known := read_row(path)).done:
            return known
        row = _run(cell, folder, data)
        write_json(path, row.to_json())  # still locked: the next process finds the cell done
        return row


def _run(cell: Cell, folder: Path, data: str | Path | Dataset) -> Row:
    began = time.monotonic()
    dataset = data if isinstance(data, Dataset) else load(data)
    settings = {**without_desired_goals(cell.algo, dataset, "vector"), **dict(cell.settings)}
    latents = take_latents(settings)
    method = method_for(
        cell.algo,
        dataset,
        find(cell.task),
        settings=settings,
        preset=cell.preset,
        encoded=latents is not None,
        tuning=cell.tuned,
    )
    if cell.timed:
        found = {"timing": measure(cell, method, dataset, latents)}
    else:
        found = _score(cell, method, dataset, folder, latents)
    return make_row(
        cell,
        **found,
        data={
            "name": f"{cell.task} {cell.variant}, {len(dataset)} episodes"
            + " of images" * cell.pixels,
            "fingerprint": dataset.fingerprint(),
            "episodes": len(dataset),
            "command": dataset.provenance.get("command"),
        },
        seconds=round(time.monotonic() - began, 1),
    )


def failed_row(cell: Cell, failure: Failure) -> Row:
    """The row of a failed cell."""
    return make_row(cell, status="failed", error=failure.message, trace=failure.trace)


def make_row(cell: Cell, **found: Any) -> Row:
    """The row of a finished cell; its status is "done" by default."""
    return Row(
        cell=cell.name,
        task=cell.task,
        variant=cell.variant,
        algo=cell.algo,
        preset=cell.preset,
        seed=cell.seed,
        settings=dict(cell.settings),
        updates=cell.updates,
        asked=cell.describe(),
        pixels=cell.pixels,
        command=cell.command,
        version=merlin.__version__,
        episode_steps=find(cell.task).episode_steps,
        finished=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=machine(),
        **{"status": "done", **found},
    )


def _score(
    cell: Cell, method: Method, data: Dataset, folder: Path, latents: Latents | None
) -> dict[str, Any]:
    run = train(
        method.learner,
        data,
        augment=method.augmentation,
        task=cell.task,
        latents=latents,
        updates=cell.updates,
        seeds=[cell.seed],
        out=folder / "run",
        shared=folder.parent / SHARED,
        resume=True,
        eval_every=cell.eval_every,
        eval_episodes=cell.eval_episodes,
        final_episodes=cell.final_episodes,
    )
    own = folder / "run" / f"seed-{cell.seed}"
    (row,) = run.rows
    assert row.final is not None
    assert row.best is not None
    log = [line for line, _ in read_metrics(own / "metrics.jsonl")]
    rates = [line["updates_per_second"] for line in log if "updates_per_second" in line]
    return {
        "learner": run.config.settings,
        "final": {"episodes": cell.final_episodes, **_scores(row.final)},
        "goals": _rounded(row.final.goal_success()) or None,
        "best": {"episodes": cell.eval_episodes, **_rounded(row.best.to_json())},
        "curve": tuple(
            _rounded(
                {
                    "step": line["step"],
                    "return": line["eval/return"],
                    "success": line["eval/success"],
                }
            )
            for line in log
            if "eval/return" in line
        ),
        "horizons": _sweep(cell, run.policy),
        # On a busy machine, so only a hint; the timing grid measures.
        "timing": {"update_ms": round(1000.0 / float(np.median(rates)), 3), "action_us": None},
        "augmentation": row.augmented,
    }


def _sweep(cell: Cell, policy: Policy) -> dict[str, Any] | None:
    """Score the same policy at other horizons, without training again."""
    if not cell.horizons:
        return None
    task = find(cell.task).from_pixels() if cell.pixels else find(cell.task)
    batch = make_batch(task, task.environments)
    try:
        return {
            str(horizon): _scores(
                evaluate(policy, task, horizon=horizon, episodes=cell.final_episodes, batch=batch)
            )
            for horizon in cell.horizons
        }
    finally:
        batch.close()


def _scores(found: Evaluation) -> dict[str, float]:
    """Means over episodes and their standard deviations, for computing standard errors."""
    return _rounded(
        {
            "return": float(found.returns.mean()),
            "return_std": float(found.returns.std()),
            "success": float(found.success.mean()),
        }
    )


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {key: round(v, 4) if isinstance(v, float) else v for key, v in values.items()}
