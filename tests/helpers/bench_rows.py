"""Plausible rows of a bench, made without training anything."""

import hashlib
import json

import numpy as np

from merlin.bench import rows
from merlin.report import paper

TASKS = ("PointReach", "PointRooms", "Reacher", "SawyerReach", "FetchReach", "FetchPush")
METHODS = ("merlin", "merlin-p", "merlin-np", "gofar", "wgcsl", "gcsl", "am", "beso")
COST = {"merlin": 2.6, "merlin-p": 2.8, "gofar": 9.0, "wgcsl": 7.5, "am": 8.1, "beso": 21.0}
MACHINE = {
    "cpu": "AMD EPYC 7B13",
    "cores": 2,
    "memory_gb": 24,
    "platform": "Linux-6.1-x86_64",
    "python": "3.11.7",
    "packages": {"jax": "0.10.2", "numpy": "2.4.6", "mujoco": "3.3.0"},
}


def row(task="PointReach", variant="random", algo="merlin", seed=0, grid="paper", **changes):
    """One finished row, scored near the paper's number."""
    settings = changes.get("settings", {})
    name = f"{task}-{variant}-{algo}-s{seed}" + "".join(f"-{k}{v}" for k, v in settings.items())
    rng = np.random.default_rng(list(f"{grid}/{name}".encode()))
    kind = "pixel" if changes.get("pixels") else "state"
    tables = paper.tables()
    numbers = {**tables["forward_vs_backward_return"][variant][task]}
    numbers |= tables["stitching_return"][variant][task]
    numbers |= tables[f"{kind}_return"][variant].get(task, {})
    goal = numbers.get(algo, [20.0, 1.0])[0] * rng.uniform(0.9, 1.0)
    rate = min(1.0, max(goal, 0.1) / 28)
    hits = rng.uniform(size=200) < rate
    returns = np.where(hits, rng.normal(goal / rate, 2, size=200), rng.uniform(0, 3, size=200))
    returns = returns.clip(0, 31.79).round(4)
    curve = [
        {
            "step": step,
            "return": float(goal * (1 - np.exp(-step / 900)) + rng.normal(0, 0.3)),
            "success": float(rate * (1 - np.exp(-step / 700))),
        }
        for step in range(1000, 5001, 1000)
    ]
    top = max(curve, key=lambda point: point["return"])
    made = {
        "schema": 1,
        "grid": grid,
        "cell": f"{grid}/{name}",
        "task": task,
        "variant": variant,
        "algo": algo,
        "preset": None,
        "seed": seed,
        "settings": settings,
        "pixels": False,
        "updates": 5000,
        "asked": {"timed": grid == "timing"},
        "status": "done",
        "error": None,
        "final": {
            "episodes": 200,
            "return": float(returns.mean()),
            "success": float(hits.mean()),
            "return_std": float(returns.std()),
        },
        "best": {
            "episodes": 100,
            "step": top["step"],
            "return": max(top["return"], float(returns.mean())) + 0.35,
            "success": min(1.0, float(hits.mean()) + 0.02),
        },
        "curve": curve,
        "horizons": None,
        "timing": {"update_ms": COST.get(algo, 3.1)},
        "augmentation": None,
        "data": {
            "name": f"{task} {variant}, 2000 episodes",
            "fingerprint": hashlib.sha256(f"{task} {variant}".encode()).hexdigest(),
            "episodes": 2000,
            "command": f"merlin collect {task} --variant {variant} --out data/{task}",
        },
        "command": f"merlin train {task} --variant {variant} --algo {algo} --seed {seed} "
        f"--updates 5000 --out runs/{name}",
        "version": "0.1.0",
        "seconds": float(rng.uniform(20, 60)),
        "finished": f"2026-11-16T01:{seed:02d}:03+00:00",
        "machine": MACHINE,
    }
    return made | changes


def failed(error, **changes):
    return row(**{"seed": 9, **changes}) | {
        "status": "failed",
        "error": error,
        "final": None,
        "best": None,
        "curve": [],
        "timing": None,
    }


def everything(seeds=3):
    """Rows of every grid, from states and from pixels, with a failure."""
    rows = []
    variants = ("expert", "random")
    for task in TASKS:
        for variant in variants:
            for seed in range(seeds):
                rows += [row(task, variant, method, seed) for method in METHODS]
    for task in TASKS[:3]:
        for variant in variants:
            for algo in ("merlin", "merlin-p", "merlin-mb", "merlin-np", "merlin-ts"):
                grid, made = "forward-backward", {"trajectories": 2000, "kept": 0.81}
                made = None if algo == "merlin" else made
                rows.append(row(task, variant, algo, grid=grid, augmentation=made))
            for algo in ("merlin", "merlin-np", "gcsl", "gcsl-ts"):
                rows.append(row(task, variant, algo, grid="stitching"))
            for ratio in ("0.0", "0.2", "0.5", "0.8", "1.0"):
                rows.append(
                    row(task, variant, grid="hindsight", settings={"hindsight_ratio": ratio})
                )
            told = {
                str(h): {"return": 28.0 / (1 + h / 25), "success": 1 / (1 + h / 90)}
                for h in (1, 5, 10, 20, 50)
            }
            rows.append(row(task, variant, grid="horizon", horizons=told))
            rows.append(row(task, variant, grid="horizon", settings={"horizon": "none"}))
        for algo in METHODS:
            cost = COST.get(algo, 3.1)
            timing = {"update_ms": cost, "action_us": {"1": 35 * cost, "100": 110 * cost}}
            rows.append(row(task, "random", algo, grid="timing", timing=timing))
    for task in ("PointReach", "PointRooms"):
        for seed in range(2):
            for algo in ("merlin", "gcsl"):
                rows.append(row(task, "random", algo, seed, pixels=True))
    rows.append(failed("Loss is <script>alert('x')</script> & not finite.", algo="beso"))
    return rows


def write(folder, rows, grids=None):
    """A bench folder with these rows."""
    folder.mkdir(parents=True, exist_ok=True)
    names = grids or sorted({made["grid"] for made in rows})
    about = {"format": "merlin-bench", "schema": 1, "grids": names, "version": "0.1.0"}
    about["command"] = f"merlin bench {names[0]} --out {folder.name}"
    (folder / "bench.json").write_text(json.dumps(about))
    (folder / "rows.jsonl").write_text("".join(json.dumps(made) + "\n" for made in rows))
    return folder


def parse(made):
    return [rows.parse(one, "here") for one in made]


def scored(value, *, best=None, success=1.0, **changes):
    """A row with these scores and no episodes to check them against."""
    final = {"episodes": 10, "return": value, "success": success}
    top = {"episodes": 10, "step": 1, "return": best or value + 1, "success": success}
    return row(**changes) | {"final": final, "best": top}
