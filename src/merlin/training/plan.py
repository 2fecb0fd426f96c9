"""The plan of a run, validated before anything is written."""

import dataclasses
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

import merlin
from merlin.augment import Augmentation
from merlin.augment.latents import Latents
from merlin.data import Dataset, load
from merlin.data.conversion import phi_indices
from merlin.data.dataset import validate
from merlin.data.formats import is_data
from merlin.data.spec import make_spec
from merlin.data.splits import hold_out
from merlin.envs.registry import NO_TASK, TUNINGS, Task, choose
from merlin.errors import MerlinError
from merlin.learners import Learner
from merlin.learners.registry import (
    Method,
    augmentation_name,
    configure,
    dataset_values,
    field_names,
    image_values,
    method_name,
    needs_latents,
)
from merlin.training.asked import Asked, checked, schedule_of, seeds_of
from merlin.training.folder import RunConfig, Source
from merlin.training.runs import restore_augmentation, restore_latents, restore_learner, settings_of
from merlin.types import Moments, Spec

HELD_OUT = 0.1
"""Default fraction of held-out episodes if there is no task to evaluate in."""


@dataclass(frozen=True)
class Plan:
    """A method with its data and task, and the configuration for run.json."""

    learner: Learner
    augment: Augmentation | None
    latents: Latents | None
    data: Dataset  # training data
    held_out: Dataset | None
    task: Task | None
    config: RunConfig

    @classmethod
    def make(cls, method: str | Learner, data: Dataset | str | Path, asked: Asked) -> Self:
        asked = checked(asked)
        if isinstance(method, type):
            raise MerlinError(
                f"method: {method.__name__} is a class; make a learner of it: {method.__name__}()."
            )
        if not isinstance(method, str | Learner):
            raise MerlinError(
                f"method: is a {type(method).__name__}, not a learner or the name of one; call "
                "merlin.train(method, data)."
            )
        schedule = schedule_of(asked)
        data = opened(data)
        if "phi" in asked:
            phi, width = phi_indices(asked["phi"]), data.observations.shape[-1]
            if max(phi) >= width:
                raise MerlinError(f"phi: states have only {width} columns; name fewer.")
            data = replace(data, phi=phi)
        goal, shift = asked.get("goal", "vector"), asked.get("shift", 0)
        latents = asked.get("latents")
        task = choose(data.task, asked.get("task"))
        if task is not None:
            task.check_installed()
        if task is not None and "final_episodes" not in asked:
            schedule = replace(schedule, final_episodes=task.final_episodes)
        augment = asked.get("augment")
        if isinstance(method, str):
            settings = without_desired_goals(method, data, goal)
            learner, own = method_for(
                method, data, task, settings=settings, encoded=latents is not None
            )
            if augment is not None and own is not None:
                raise MerlinError(f"augment: {method} already makes trajectories; leave it out.")
            augment = augment or own
        else:
            learner = method
        if latents is None and data.has_images and needs_latents(learner, augment):
            latents = Latents()
        _check_images(data, goal, shift, latents)
        if task is not None:
            task = task.as_seen(data.observations.shape[1:], goal)
            if data.phi is None and task.goal_slice is not None and not data.has_images:
                data = replace(data, phi=tuple(range(*task.goal_slice)))
        whole, share = data, held_out_share(asked.get("held_out"), task, data)
        data, kept = hold_out(whole, share)
        chosen = seeds_of(asked)
        several = jax.default_backend() != "cpu" or jax.device_count() > 1
        algo, mix = method_name(learner, augment), asked.get("mix")
        plan = cls(
            learner=learner,
            augment=augment,
            latents=latents,
            data=data,
            held_out=kept,
            task=task,
            config=RunConfig(
                version=merlin.__version__,
                algo=algo,
                settings=settings_of(learner),
                augment=about_augmentation(augment),
                mix=None if augment is None else mix,
                goal=goal,
                shift=shift,
                latents=None if latents is None else asdict(latents),
                task=task.name if task else None,
                variant=data.variant,
                phi=data.phi,
                held_out=share or None,
                data=Source(whole.source, whole.fingerprint()),
                dimensions=(
                    *data.observations.shape[1:],
                    data.actions.shape[1],
                    data.achieved_goals.shape[1],
                ),
                seeds=chosen,
                # Each seed has its own synthetic trajectories, and images are loaded for one seed
                # at a time.
                together=len(chosen) > 1 and several and augment is None and not data.has_images,
                schedule=schedule,
            ),
        )
        if mix is not None and not (0.0 < mix < 1.0 and min(plan.sizes(None) or (1, 1)) > 0):
            raise MerlinError(
                f"mix: {mix} leaves a batch without recorded or without augmented examples; "
                "give a fraction between 0 and 1."
            )
        if task is not None:
            task.check_fit(list(plan.config.dimensions), "the dataset")
        plan._check_learner()
        return plan

    @classmethod
    def again(
        cls, folder: Path, config: RunConfig, updates: int | None, task: str | None = None
    ) -> Self:
        """The plan of an earlier run, optionally with more updates.

        A custom environment must be given again as `task`.
        """
        if config.data.path is None:
            raise MerlinError(
                f"{folder}: was trained on data in memory; call merlin.train with the same data "
                "and resume=True."
            )
        where = folder / "run.json"
        schedule = config.schedule
        asked: Asked = {
            **asdict(schedule),  # type: ignore[typeddict-item]
            "updates": schedule.updates if updates is None else updates,
            "task": choose(config.task, task) or NO_TASK,
            "seeds": config.seeds,
            "augment": restore_augmentation(config.augment, where),
            "mix": config.mix,
            "goal": config.goal,
            "held_out": config.held_out or 0.0,
            "shift": config.shift,
            "latents": None if config.latents is None else restore_latents(config.latents, where),
        }
        if config.phi is not None:
            asked["phi"] = config.phi
        # The kind of data may have been given as an option rather than in the data.
        data = replace(load(config.data.path), variant=config.variant)
        return cls.make(restore_learner(config.algo, config.settings, where), data, asked)

    def sizes(self, made: Dataset | None) -> tuple[int, int] | None:
        """The numbers of recorded and of synthetic examples per minibatch.

        Without a `mix`, synthetic transitions have the same share as in all the data. If they have
        no desired goals, that is their share of the hindsight goals alone.
        """
        mix, batch = self.config.mix, self.learner.batch_size
        if mix is None:
            if made is None:
                return None
            mix = made.transitions / (made.transitions + self.data.transitions)
            if made.desired_goals is None and self.data.desired_goals is not None:
                mix *= 1.0 - self.learner.sampling.desired
        synthetic = round(mix * batch)
        if self.config.mix is None:
            synthetic = min(max(synthetic, 1), batch - 1)
        return batch - synthetic, synthetic

    @property
    def groups(self) -> list[tuple[int, ...]]:
        """Groups of seeds that train in parallel."""
        seeds = self.config.seeds
        return [seeds] if self.config.together else [(seed,) for seed in seeds]

    def spec(self, recorded: Dataset, made: Dataset | None = None) -> Spec:
        """The spec of the data that a learner trains on."""
        sizes = self.sizes(made)
        return make_spec(
            recorded,
            self.learner.sampling,
            self.task.tolerance if self.task else None,
            augmented=made,
            mix=0.0 if sizes is None or made is None else sizes[1] / sum(sizes),
            goal_image=self.config.goal == "image",
        )

    def _check_learner(self) -> None:
        """Let the learner reject unsuitable data before anything is written."""
        spec = self.spec(self.data)
        if self.latents is not None:  # moments are not known yet, and not needed here
            dim = self.latents.size(spec.goal_dim)
            unknown = Moments(np.zeros(dim, np.float32), np.ones(dim, np.float32))
            spec = spec._replace(observation_shape=(dim,), observation_moments=unknown)
        else:
            self.learner.check(self.data)
        jax.eval_shape(lambda key: self.learner.init(key, spec), jax.random.key(0))


def opened(data: Dataset | str | Path) -> Dataset:
    """Return a dataset, or load it from a path.

    A dataset is checked even if it was loaded, since it may have been changed since then.
    """
    if isinstance(data, Dataset):
        return validate(data, "dataset", one_file=True)
    if not is_data(str(data)):
        raise MerlinError(
            f"data: there is no dataset at {data}; give the path of one, or collect one first."
        )
    return load(data)


def held_out_share(asked: float | None, task: Task | None, data: Dataset) -> float:
    """The fraction of episodes to hold out.

    With a task to evaluate in, all data is used for training.
    """
    if asked is not None:
        return asked
    return 0.0 if task is not None or len(data) == 1 else HELD_OUT


def method_for(
    name: str,
    data: Dataset,
    task: Task | None,
    *,
    settings: dict[str, str] | None = None,
    preset: str | None = None,
    augment: str | None = None,
    encoded: bool = False,
    tuning: str = "own",
) -> Method:
    """Build a method by name, with values for the task and the data unless set explicitly.

    These were tuned on our data, or on the paper's with the tuning "paper".
    """
    if tuning not in TUNINGS:
        raise MerlinError(f"tuned: {tuning!r} is not {' or '.join(TUNINGS)}.")
    tuned = task.tuned.get(data.variant) if task and data.variant else None
    method = configure(name, settings, None, preset, augment)
    values = {
        **(tuned.values(tuning) if tuned else {}),
        **(dataset_values(name, task.name) if task else {}),
        **image_values(method, data, encoded=encoded),
    }
    method = configure(name, settings, values, preset, augment)
    chosen = {*(settings or {}), *values, *method.learner.presets.get(preset or "", {})}
    long = method.learner.long_values(int(data.lengths.max()))
    rest = {key: value for key, value in long.items() if key not in chosen}
    return method._replace(learner=dataclasses.replace(method.learner, **rest))  # type: ignore[type-var]


def without_desired_goals(name: str, data: Dataset, goal: str) -> dict[str, str]:
    """Settings for data without usable desired goals: hindsight relabelling only."""
    lacking = data.desired_goals is None or (goal == "image" and data.has_images)
    return {"hindsight_ratio": "1"} if lacking and "hindsight_ratio" in field_names(name) else {}


def about_augmentation(augment: Augmentation | None) -> dict[str, Any] | None:
    """The description of an augmentation in run.json."""
    if augment is None:
        return None
    return {"name": augmentation_name(augment), "settings": settings_of(augment)}


def _check_images(data: Dataset, goal: str, shift: int, latents: Latents | None) -> None:
    """Raise an error for image options without images, and for invalid ones."""
    if goal not in ("vector", "image"):
        raise MerlinError(f"goal: {goal!r} is neither vector nor image.")
    if shift < 0:
        raise MerlinError(f"shift: {shift} is not a non-negative number of pixels.")
    if latents is not None and not data.has_images:
        raise MerlinError("latents: the data has no images; leave it out.")
    if data.has_images and latents is None:
        return
    why = "the data has no images" if latents is None else "the method is given latents of images"
    for option in ("goal image",) * (goal == "image") + ("shift",) * (shift > 0):
        raise MerlinError(f"{option}: {why}; leave it out.")
