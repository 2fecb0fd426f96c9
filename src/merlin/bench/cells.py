"""Running one cell: from what was asked for to its row of results."""

import datetime
import json
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

import merlin
from merlin.bench.board import held
from merlin.bench.grids import Cell
from merlin.bench.machine import machine
from merlin.data import Dataset, load
from merlin.data.relabel import make_spec
from merlin.evaluation import Evaluation, evaluate
from merlin.files import read_json, write_json
from merlin.latents import Latents, take_latents
from merlin.learners import Policy
from merlin.loop import compiled_chunk
from merlin.methods import Method, configure, image_values
from merlin.tasks.batch import make_batch
from merlin.tasks.registry import find
from merlin.tasks.workers import Failure
from merlin.training import train

ACTION_BATCHES = (1, 100)
TIMED_SECONDS = 2.0


def run_cell(
    memory: dict[str, Any], cell: Cell, folder: Path, data: Path | Dataset
) -> dict[str, Any] | None:
    """Train and score a cell, or go on where it was killed. A job for any engine.

    None while another bench is at it, whose row it is when that is done.
    """
    with held(folder) as mine:
        if not mine:
            return None
        path = folder / "row.json"
        row = read_json(path, "a row of results") if path.exists() else {}
        if row.get("status") != "done":
            row = _run(cell, folder, data)
            write_json(path, row)  # while it is held: whoever has it next finds it done
        return row


def _run(cell: Cell, folder: Path, data: Path | Dataset) -> dict[str, Any]:
    began = time.monotonic()
    dataset = load(data) if isinstance(data, Path) else data
    task = find(cell.task)
    tuned = task.tuned.get(cell.variant)
    values = tuned.values() if tuned else {}
    settings = dict(cell.settings)
    latents = take_latents(settings)
    named = configure(cell.algo, settings, preset=cell.preset)
    values |= image_values(named, dataset, encoded=latents is not None)
    method = configure(cell.algo, settings, values, cell.preset)
    if cell.timed:
        found = _time(cell, method, dataset, folder)
    else:
        found = _score(cell, method, dataset, folder, latents)
    return {
        **_heading(cell),
        "status": "done",
        "error": None,
        **found,
        "data": {
            "name": f"{cell.task} {cell.variant}, {len(dataset)} episodes"
            + " of images" * cell.pixels,
            "fingerprint": dataset.fingerprint(),
            "episodes": len(dataset),
            "command": dataset.provenance.get("command"),
        },
        **_ending(began),
    }


def failed_row(cell: Cell, failure: Failure) -> dict[str, Any]:
    """The row of a cell that came to nothing."""
    return {
        **_heading(cell),
        "status": "failed",
        "error": failure.message,
        "trace": failure.trace,
        **_ending(None),
    }


def _heading(cell: Cell) -> dict[str, Any]:
    asked = cell.describe()
    shown = ("task", "variant", "algo", "preset", "seed", "settings", "updates")
    return {
        "schema": 1,
        "cell": cell.name,
        **{key: asked[key] for key in shown},
        "asked": asked,
        "pixels": cell.pixels,
        "command": cell.command,
        "version": merlin.__version__,
    }


def _ending(began: float | None) -> dict[str, Any]:
    return {
        "seconds": None if began is None else round(time.monotonic() - began, 1),
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
    }


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
    result = json.loads((own / "result.json").read_text())
    final = Evaluation(*(np.asarray(result["final"][key]) for key in ("returns", "success")))
    log = [json.loads(line) for line in (own / "metrics.jsonl").read_text().splitlines()]
    rates = [line["updates_per_second"] for line in log if "updates_per_second" in line]
    return {
        "final": {"episodes": cell.final_episodes, **_scores(final)},
        "best": {"episodes": cell.eval_episodes, **_rounded(result["best"])},
        "curve": [
            _rounded(
                {
                    "step": line["step"],
                    "return": line["eval/return"],
                    "success": line["eval/success"],
                }
            )
            for line in log
            if "eval/return" in line
        ],
        "horizons": _sweep(cell, run.policy),
        # On a busy machine, so only a hint; the timing grid measures.
        "timing": {"update_ms": round(1000.0 / float(np.median(rates)), 3), "action_us": None},
        "augmentation": run.result["seeds"][0].get("augmented"),
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
    task = find(cell.task)
    spec = make_spec(data, learner.relabel, task.tolerance)
    trajectories = data.on_device()
    chunk = compiled_chunk(learner, together=False)
    key = jax.random.key(cell.seed)
    state = jax.jit(lambda k: learner.init(k, spec))(key)

    def updates() -> None:
        jax.block_until_ready(chunk(state, trajectories, key, 0, cell.updates))

    policy = learner.policy(state)
    actions = {}
    for batch in ACTION_BATCHES:
        rows = np.resize(data.observations[:batch], (batch, *spec.observation_shape))
        goals = np.resize(data.achieved_goals[:batch], (batch, spec.goal_dim))
        keys = jax.random.split(key, batch)

        def call(rows: Any = rows, goals: Any = goals, keys: Any = keys) -> None:
            np.asarray(_act(policy, rows, goals, keys))

        actions[str(batch)] = round(1e6 * _fastest(call) / batch, 3)
    per_update = _fastest(updates) / cell.updates
    return {
        "final": None,
        "best": None,
        "curve": [],
        "horizons": None,
        "timing": {"update_ms": round(1000.0 * per_update, 4), "action_us": actions},
        "augmentation": None,
    }


@eqx.filter_jit
def _act(policy: Policy, observations: Any, goals: Any, keys: Any) -> Any:
    return jax.vmap(policy, (0, 0, None, 0))(observations, goals, None, keys)


def _fastest(call: Any) -> float:
    """Seconds of the fastest call, after one that compiles."""
    call()
    times: list[float] = []
    until = time.monotonic() + TIMED_SECONDS
    while len(times) < 3 or time.monotonic() < until:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)
