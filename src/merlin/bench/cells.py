"""Running one cell: from what was asked for to its row of results."""

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

import merlin
from merlin.augment.latents import Latents, take_latents
from merlin.bench.grids import Cell
from merlin.bench.machine import machine
from merlin.bench.results_folder import cell_lock
from merlin.bench.rows import Row, read_row
from merlin.data import Dataset, load
from merlin.data.spec import make_spec
from merlin.envs.batch import make_batch
from merlin.envs.registry import find
from merlin.evaluation.evaluate import Evaluation, evaluate
from merlin.io.files import write_json
from merlin.learners.base import Learner
from merlin.learners.registry import Method
from merlin.parallel.workers import Failure
from merlin.policies.base import Policy
from merlin.training.log import read_metrics
from merlin.training.loop import compiled_chunk
from merlin.training.plan import method_for, without_desired_goals
from merlin.training.train import train
from merlin.types import Spec

ACTION_BATCHES = (1, 100)
TIMED_SECONDS = 2.0


def run_cell(
    memory: dict[str, Any], cell: Cell, folder: Path, data: str | Path | Dataset
) -> Row | None:
    """Train and score a cell, or go on where it was killed. A job for any engine.

    None while another bench runs the cell, which then also writes its row.
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
        found = _time(cell, method, dataset, folder)
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
    """The row of a cell that came to nothing."""
    return make_row(cell, status="failed", error=failure.message, trace=failure.trace)


def make_row(cell: Cell, **found: Any) -> Row:
    """The row of a cell that ends now, with what was found; done unless it says otherwise."""
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
    """The same policy at other horizons: what the ablation asks for needs no training."""
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
    """Means over episodes and their deviations, from which a reader has the standard errors."""
    return _rounded(
        {
            "return": float(found.returns.mean()),
            "return_std": float(found.returns.std()),
            "success": float(found.success.mean()),
        }
    )


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {key: round(v, 4) if isinstance(v, float) else v for key, v in values.items()}


def _time(cell: Cell, method: Method, data: Dataset, folder: Path) -> dict[str, Any]:
    """Time per update and per action, compilation apart, each the fastest of several rounds.

    The fastest, because whatever else a machine does can only make a round slower.
    """
    learner = method.learner  # an augmentation costs nothing per update
    spec = make_spec(data, learner.sampling, find(cell.task).tolerance)
    updates = updating(learner, data, spec)
    actions = {
        str(batch): round(1e6 * _fastest(acting(learner, data, spec, batch)) / batch, 3)
        for batch in ACTION_BATCHES
    }
    per_update = _fastest(lambda: updates(cell.updates)) / cell.updates
    return {"timing": {"update_ms": round(1000.0 * per_update, 4), "action_us": actions}}


def updating(learner: Learner, data: Dataset, spec: Spec) -> Callable[[int], None]:
    """A function that makes so many updates from a fresh state, and waits for the last."""
    trajectories = data.on_device()
    chunk = compiled_chunk(learner, together=False)
    key = jax.random.key(0)
    state = jax.jit(lambda k: learner.init(k, spec))(key)

    def run(updates: int) -> None:
        jax.block_until_ready(chunk(state, trajectories, key, 0, updates))

    return run


def acting(learner: Learner, data: Dataset, spec: Spec, batch: int) -> Callable[[], Any]:
    """A function that acts with a fresh policy for so many states at once."""
    policy = learner.policy(jax.jit(lambda k: learner.init(k, spec))(jax.random.key(0)))
    states = np.resize(data.observations[:batch], (batch, *spec.observation_shape))
    goals = np.resize(data.achieved_goals[:batch], (batch, spec.goal_dim))
    keys = jax.random.split(jax.random.key(1), batch)
    return lambda: np.asarray(_act(policy, states, goals, keys))


@eqx.filter_jit
def _act(policy: Policy, observations: Any, goals: Any, keys: Any) -> Any:
    return jax.vmap(policy, (0, 0, None, 0))(observations, goals, None, keys)


def _fastest(call: Callable[[], Any]) -> float:
    """Seconds of the fastest call, after one that compiles."""
    call()
    times: list[float] = []
    until = time.monotonic() + TIMED_SECONDS
    while len(times) < 3 or time.monotonic() < until:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)
