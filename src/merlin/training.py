"""From a learner and a dataset to scored policies, in memory or in a run folder."""

import dataclasses
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

import merlin
from merlin.augment import Augmentation, Augmented
from merlin.augment.base import Phi
from merlin.data import Dataset, load, native
from merlin.data.dataset import validate
from merlin.data.images import Images
from merlin.data.relabel import make_spec
from merlin.errors import MerlinError
from merlin.evaluation import Evaluation, summarise
from merlin.files import write_json
from merlin.folders import FORMAT, SCHEMA, read_config
from merlin.learners import Learner, Policy
from merlin.loop import Group, Schedule, Sources, mixed_sizes
from merlin.methods import augmentation_name, method_name
from merlin.runs import (
    Run,
    load_encoder,
    restore_augmentation,
    restore_learner,
    save_encoder,
    settings_of,
)
from merlin.tasks.batch import make_batch
from merlin.tasks.registry import Task, find
from merlin.tensors import read_metadata


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
    resume: bool = False,
    quiet: bool = True,
    **schedule: int,
) -> Run:
    """Train one policy per seed and score it.

    The task is the dataset's own unless given; without one there is no evaluation. With an
    augmentation a share `mix` of every batch comes from trajectories that it makes, anew for each
    seed; `phi` says what goals their states achieve, if neither task nor data does. From images,
    `goal` says whether goals are told as "vector" or "image", and `shift` by how many pixels each
    image is moved at random. With `out` everything is kept there, and `resume` continues what was
    killed: the result is the same to the byte. `schedule` takes eval_every, eval_episodes,
    final_episodes, log_every and checkpoint_every.
    """
    plan = Schedule(updates=updates, **schedule)
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0:
        raise MerlinError("--seeds: give at least one, each of them once and none negative.")
    named = data.task if task is None else task
    environment = None if named is None else find(named)
    tolerance = environment.tolerance if environment else None
    _check_sight(data, goal, shift, latent=augment is not None and augment.latent)
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
    jax.eval_shape(lambda key: learner.init(key, spec), jax.random.key(0))
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
            sources: Sources = trajectories
            images = Images([data.observations]) if data.has_images else None
            encoder = None
            report: dict[str, Any] = {}
            if augment is not None and sizes is not None:
                made = _augmented(augment, data, group[0], phi, folder, quiet)
                recorded = data if made.encoded is None else made.encoded
                added = made.dataset
                share = sizes[1] / learner.batch_size
                spec = make_spec(
                    recorded,
                    learner.relabel,
                    tolerance,
                    augmented=added,
                    mix=share,
                    goal_image=goal == "image",
                )
                first = trajectories if made.encoded is None else made.encoded.on_device()
                sources = (first, added.on_device(first_row=len(data.observations)))
                parts = [recorded.observations, added.observations]
                images = Images(parts) if recorded.has_images else None
                encoder, report = made.encoder, {"augmented": made.report}
            trained = Group(
                learner,
                spec,
                sources,
                environment,
                plan,
                group,
                folder,
                config,
                batch,
                sizes,
                images,
                encoder,
            )
            group_policies, group_rows = trained.run(quiet)
            policies += group_policies
            rows += [{**row, **report} for row in group_rows]
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
        out=folder,
        resume=True,
        quiet=quiet,
        **{name: config[name] for name in looks},
    )


def _check_sight(data: Dataset, goal: str, shift: int, *, latent: bool) -> None:
    """Refuse options that say how images are used where there are none, and impossible ones."""
    if goal not in ("vector", "image"):
        raise MerlinError(f"--goal: {goal!r} is neither vector nor image.")
    if shift < 0:
        raise MerlinError(f"--shift: {shift} is not a number of pixels from 0 up.")
    if data.has_images and not latent:
        return
    why = "learned models work on latents, not on images" if latent else "the data has no images"
    for option in ("--goal image",) * (goal == "image") + ("--shift",) * (shift > 0):
        raise MerlinError(f"{option}: {why}; leave the option away.")


def _about(augment: Augmentation) -> dict[str, Any]:
    return {"name": augmentation_name(augment), "settings": settings_of(augment)}


def _augmented(
    augment: Augmentation,
    data: Dataset,
    seed: int,
    phi: Phi | None,
    folder: Path | None,
    quiet: bool,
) -> Augmented:
    """The trajectories made for a seed: made now, or those that the run folder has already."""
    path = None if folder is None else folder / f"seed-{seed}" / "augmented"
    if path is not None and path.exists():
        dataset = native.load(path)
        found = Augmented(dataset, dict(dataset.provenance["report"]))
        if not (data.has_images and augment.latent):
            return found
        encoder = load_encoder(path.with_name("encoder.safetensors"))
        return found._replace(encoder=encoder, encoded=native.load(path.with_name("encoded")))
    made = augment(data, seed=seed, phi=phi, quiet=quiet)
    provenance = {
        "made_by": f"merlin {merlin.__version__}",
        "augmentation": augmentation_name(augment),
        "seed": seed,
        "from": data.source,
        "settings": settings_of(augment),
        "report": made.report,
    }
    dataset = validate(dataclasses.replace(made.dataset, provenance=provenance), "augmented data")
    if path is not None:
        for name in (".augmented.*", ".encoded.*"):  # of an attempt that was killed
            for stale in path.parent.glob(name):
                shutil.rmtree(stale)
        if made.encoded is not None:
            save_encoder(path.with_name("encoder.safetensors"), made.encoder)
            native.save(made.encoded, path.with_name("encoded"), overwrite=True)
        native.save(dataset, path)
        dataset = native.load(path) if dataset.has_images else dataset
    return made._replace(dataset=dataset)


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
        same = ("algo", "settings", "augment", "mix", "goal", "shift", "task", "seeds")
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
    result |= {key: config[key] for key in ("augment", "mix") if key in config}
    about = [{key: row[key] for key in ("seed", "augmented") if key in row} for row in rows]
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
