"""From a learner and a dataset to scored policies, in memory or in a run folder."""

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

import merlin
from merlin.augment import Augmentation
from merlin.augment.base import Phi
from merlin.data import Dataset, load
from merlin.data.relabel import make_spec
from merlin.errors import MerlinError
from merlin.evaluation import Evaluation, summarise
from merlin.files import write_json
from merlin.folders import FORMAT, SCHEMA, read_config
from merlin.latents import Latents, needs_latents
from merlin.learners import Learner, Policy
from merlin.loop import Group, Schedule, mixed_sizes
from merlin.methods import augmentation_name, method_name
from merlin.preparing import prepare
from merlin.runs import Run, restore_augmentation, restore_learner, settings_of
from merlin.tasks.batch import make_batch
from merlin.tasks.registry import Task, find
from merlin.tensors import read_metadata
from merlin.types import Moments, Spec


def train(
    learner: Learner,
    data: Dataset,
    *,
    augment: Augmentation | None = None,
    mix: float = 0.5,
    phi: Phi | None = None,
    task: Task | str | None = None,
    updates: int = 5000,
    seeds: int | Sequence[int] = 1,
    out: str | Path | None = None,
    goal: str = "vector",
    shift: int = 0,
    latents: Latents | None = None,
    resume: bool = False,
    quiet: bool = True,
    **schedule: int,
) -> Run:
    """Train one policy per seed and score it.

    The task is the dataset's own unless given; without one there is no evaluation. With an
    augmentation a share `mix` of every batch comes from trajectories that it makes, anew for each
    seed; `phi` says what goals their states achieve, if neither task nor data does. From images,
    `goal` says whether goals are told as "vector" or "image", and `shift` by how many pixels each
    image is moved at random; `latents` trains an encoder first, and on its latents instead of the
    images, as methods that take only vectors do by themselves. With `out` everything is kept there,
    and `resume` continues what was killed: the result is the same to the byte. `schedule` takes
    eval_every, eval_episodes, final_episodes, log_every and checkpoint_every.
    """
    plan = Schedule(updates=updates, **schedule)
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0:
        raise MerlinError("--seeds: give at least one, each of them once and none negative.")
    named = data.task if task is None else task
    environment = None if named is None else find(named)
    tolerance = environment.tolerance if environment else None
    if latents is None and data.has_images and needs_latents(learner, augment):
        latents = Latents()
    _check_sight(data, goal, shift, latents)
    if environment is not None:
        environment = environment.as_seen(data.observations.shape[1:], goal)
    sizes = None
    if augment is not None:
        sizes = mixed_sizes(learner, mix) if 0.0 < mix < 1.0 else (0, 0)
        if min(sizes) < 1:
            raise MerlinError(
                f"--mix: {mix} leaves a batch without recorded or without augmented examples; "
                "give a share between 0 and 1."
            )
        if phi is None and environment is not None and environment.goal_slice is not None:
            phi = environment.achieved
    spec = make_spec(data, learner.relabel, tolerance, goal_image=goal == "image")
    dimensions = [*spec.observation_shape, spec.action_dim, spec.goal_dim]
    if environment is not None:
        environment.check_fit(dimensions, "the dataset")
    # What the learner cannot do with such data it says now, before anything is written.
    given = spec if latents is None else _of_latents(spec, latents.size(spec.goal_dim))
    jax.eval_shape(lambda key: learner.init(key, given), jax.random.key(0))
    several = jax.default_backend() != "cpu" or jax.device_count() > 1
    # Made trajectories are each seed's own, and images are read for one seed at a time.
    together = len(chosen) > 1 and several and augment is None and not data.has_images
    config = {
        "format": FORMAT,
        "schema": SCHEMA,
        "version": merlin.__version__,
        "algo": method_name(learner, augment),
        "settings": settings_of(learner),
        **({} if augment is None else {"augment": _about(augment), "mix": mix}),
        **({"goal": goal, "shift": shift} if data.has_images else {}),
        **({} if latents is None else {"latents": asdict(latents)}),
        "task": environment.name if environment else None,
        "variant": data.variant,
        "data": {"path": data.source, "fingerprint": data.fingerprint()},
        "dimensions": dimensions,  # of observation, action and goal
        "seeds": list(chosen),
        "together": together,
        **asdict(plan),
    }
    folder = None if out is None else Path(out)
    if folder is not None:
        config = _open_folder(folder, config, resume)
    groups = [chosen] if config["together"] else [(seed,) for seed in chosen]
    trajectories = data.on_device()
    policies: list[Policy] = []
    rows: list[dict[str, Any]] = []
    batch = make_batch(environment, environment.environments) if environment else None
    try:
        for group in groups:
            made = prepare(
                data, trajectories, latents, augment, group[0], phi=phi, folder=folder, quiet=quiet
            )
            if made.recorded is not data or made.added is not None:
                spec = make_spec(
                    made.recorded,
                    learner.relabel,
                    tolerance,
                    augmented=made.added,
                    mix=0.0 if sizes is None else sizes[1] / learner.batch_size,
                    goal_image=goal == "image",
                )
            trained = Group(
                learner,
                spec,
                made.sources,
                environment,
                plan,
                group,
                folder,
                config,
                batch,
                sizes,
                made.images,
                None if made.encoded is None else made.encoded.encoder,
            )
            group_policies, group_rows = trained.run(quiet)
            policies += group_policies
            rows += [{**row, **made.report} for row in group_rows]
    finally:
        if batch is not None:
            batch.close()
    result = _aggregate(config, rows)
    if folder is not None:
        write_json(folder / "result.json", result)
    return Run(config=config, policies=tuple(policies), result=result, folder=folder)


def resume(out: str | Path, *, updates: int | None = None, quiet: bool = True) -> Run:
    """Go on with the run in `out` as it was started, or to more `updates`."""
    folder = Path(out)
    config = read_config(folder)
    source = config["data"]["path"]
    if source is None:
        raise MerlinError(
            f"{folder}: was trained on data in memory; call merlin.train with it and resume=True."
        )
    looks = ("eval_every", "eval_episodes", "final_episodes", "log_every", "checkpoint_every")
    return train(
        restore_learner(config["algo"], config["settings"], folder / "run.json"),
        # The kind of data may have been said on the command line, not in the data.
        dataclasses.replace(load(source), variant=config["variant"]),
        task=config["task"],
        updates=config["updates"] if updates is None else updates,
        seeds=config["seeds"],
        augment=restore_augmentation(config.get("augment"), folder / "run.json"),
        mix=config.get("mix", 0.5),
        goal=config.get("goal", "vector"),
        shift=config.get("shift", 0),
        latents=Latents(**config["latents"]) if "latents" in config else None,
        out=folder,
        resume=True,
        quiet=quiet,
        **{name: config[name] for name in looks},
    )


def _check_sight(data: Dataset, goal: str, shift: int, latents: Latents | None) -> None:
    """Refuse options that say how images are used where there are none, and impossible ones."""
    if goal not in ("vector", "image"):
        raise MerlinError(f"--goal: {goal!r} is neither vector nor image.")
    if shift < 0:
        raise MerlinError(f"--shift: {shift} is not a number of pixels from 0 up.")
    if latents is not None and not data.has_images:
        raise MerlinError("--latents: the data has no images; leave the option away.")
    if data.has_images and latents is None:
        return
    why = "the data has no images" if latents is None else "the method is given latents of images"
    for option in ("--goal image",) * (goal == "image") + ("--shift",) * (shift > 0):
        raise MerlinError(f"{option}: {why}; leave the option away.")


def _of_latents(spec: Spec, dim: int) -> Spec:
    """A description of the same data with latents for images, as far as it is known before."""
    unknown = Moments(np.zeros(dim, np.float32), np.ones(dim, np.float32))
    return spec._replace(observation_shape=(dim,), observation_moments=unknown)


def _about(augment: Augmentation) -> dict[str, Any]:
    return {"name": augmentation_name(augment), "settings": settings_of(augment)}


def refuse_finished(folder: Path, resume: bool) -> None:
    """Do not write over a run that nobody asked to resume."""
    if (folder / "run.json").exists() and not resume:
        raise MerlinError(
            f"{folder}: holds a run already; pass --resume to go on with it, "
            "or choose another --out."
        )


def _open_folder(folder: Path, config: dict[str, Any], resume: bool) -> dict[str, Any]:
    """Start a run folder, or check that the one there is the run that was asked for."""
    refuse_finished(folder, resume)
    if (folder / "run.json").exists():
        there = read_config(folder)
        if "augment" in there:  # settings that are newer than the run have their default there
            known = restore_augmentation(there["augment"], folder / "run.json")
            assert known is not None
            there = {**there, "augment": _about(known)}
        # Whether seeds run together is up to the first machine; how often to look and how long
        # to train may change, since neither changes the updates already made.
        same = ("algo", "settings", "augment", "mix", "goal", "shift", "latents", "task", "seeds")
        for key in (*same, "eval_episodes", "eval_every"):
            if there.get(key) != config.get(key):
                raise MerlinError(
                    f"{folder}: was started with {key}={there.get(key)}, not {config.get(key)}; "
                    "resume it with the same, or choose another --out."
                )
        if there["data"]["fingerprint"] != config["data"]["fingerprint"]:
            raise MerlinError(
                f"{folder}: was started on other data ({there['data']['path']}); "
                "resume it on the same, or choose another --out."
            )
        for checkpoint in folder.glob("checkpoint-*.safetensors"):
            done = read_metadata(checkpoint)["step"]
            if done > config["updates"]:
                raise MerlinError(
                    f"{folder}: has {done} updates already, more than the {config['updates']} "
                    "asked for; ask for at least as many."
                )
        config = {**config, "together": there["together"]}
    elif folder.is_file() or (folder.exists() and any(folder.iterdir())):
        raise MerlinError(f"{folder}: is not empty and holds no run; choose another --out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MerlinError(f"{folder}: cannot be created ({error.strerror}).") from None
    write_json(folder / "run.json", config)
    return config


def _aggregate(config: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One result from the rows of all seeds; `final` and `best` never mix."""
    result: dict[str, Any] = {
        key: config[key] for key in ("task", "variant", "algo", "settings", "updates", "version")
    }
    result |= {key: config[key] for key in ("augment", "mix", "latents") if key in config}
    told = ("seed", "encoded", "augmented")
    about = [{key: row[key] for key in told if key in row} for row in rows]
    if rows[0]["final"] is None:
        return {**result, "seeds": about}
    finals = [
        Evaluation(np.asarray(r["final"]["returns"]), np.asarray(r["final"]["success"]))
        for r in rows
    ]
    best = [row["best"] for row in rows]
    return {
        **result,
        "final": {"episodes": config["final_episodes"], **summarise(finals)},
        "best": {
            "episodes": config["eval_episodes"],
            "return": {"mean": float(np.mean([b["return"] for b in best]))},
            "success": {"mean": float(np.mean([b["success"] for b in best]))},
        },
        "seeds": [
            {
                **known,
                "final": {
                    "return": float(final.returns.mean()),
                    "success": float(final.success.mean()),
                },
                "best": row["best"],
            }
            for known, row, final in zip(about, rows, finals, strict=True)
        ],
    }
