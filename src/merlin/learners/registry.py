"""Methods by name: a learner, alone or with an augmentation of its data.

A plain method is an entry of LEARNERS. Some pairs of a learner and an augmentation, such as
`merlin-np`, have names from the paper; any other pair is called `LEARNER+AUGMENTATION`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from merlin.augment import AUGMENTATIONS, Augmentation
from merlin.data import Dataset
from merlin.envs.registry import IMAGE_VALUES
from merlin.errors import MerlinError
from merlin.io.settings import build, check_values, instead, plain
from merlin.learners import LEARNERS, Learner

PAIRS: dict[str, tuple[str, str]] = {
    "merlin-p": ("merlin", "reverse-model"),
    "merlin-np": ("merlin", "reverse-stitch"),
    "merlin-mb": ("merlin", "forward-model"),
    "merlin-ts": ("merlin", "forward-stitch"),
    "gcsl-ts": ("gcsl", "forward-stitch"),
}
"""The paper's names for pairs of a learner and an augmentation."""
OGBENCH = "ogbench:"
"""Prefix of the names of OGBench tasks."""


class Method(NamedTuple):
    """A learner and an optional augmentation of its data."""

    learner: Learner
    augmentation: Augmentation | None = None


def method_names() -> list[str]:
    """All method names, without pairs of the form `LEARNER+AUGMENTATION`."""
    return [*LEARNERS, *(name for name, (learner, _) in PAIRS.items() if learner in LEARNERS)]


def preset_names(name: str) -> set[str]:
    """The presets of a method's learner and augmentation."""
    return {preset for kind in _kinds(name) for preset in kind.presets}


def field_names(name: str) -> set[str]:
    """The fields of a method's learner and augmentation."""
    return {field for kind in _kinds(name) for field in _fields(kind)}


def _kinds(name: str) -> list[Any]:
    learner, added = split_name(name)
    return [LEARNERS[learner], *([AUGMENTATIONS[added][0]] if added else [])]


def split_name(name: str) -> tuple[str, str | None]:
    """Split a method's name into its learner and its augmentation."""
    if not isinstance(name, str):
        raise MerlinError(f"method: {name!r} is not the name of a method; see merlin.METHODS.")
    learner, plus, augmentation = name.partition("+")
    if name in PAIRS:
        learner, augmentation = PAIRS[name]
    known = learner in LEARNERS and (augmentation in AUGMENTATIONS or not (augmentation or plus))
    if not known:
        hint = instead(name, method_names())
        raise MerlinError(f"method: no method is called {name!r}; {hint}")
    return learner, augmentation or None


def configure(
    name: str,
    settings: Mapping[str, str] | None = None,
    tuned_values: Mapping[str, Any] | None = None,
    preset: str | None = None,
    augment: str | None = None,
) -> Method:
    """Build a method. Text settings override the preset, then tuned values, then defaults.

    Each setting goes to the learner or the augmentation, whichever has the field. A preset applies
    to those that define it.
    """
    learner_name, augmentation_name = split_name(name)
    if augment is not None:
        if augmentation_name not in (None, augment):
            raise MerlinError(f"augment: {name} has {augmentation_name} already; leave it out.")
        if augment not in AUGMENTATIONS:
            hint = instead(augment, AUGMENTATIONS)
            raise MerlinError(f"augment: no augmentation is called {augment!r}; {hint}")
        augmentation_name = augment
    learner = LEARNERS[learner_name]
    settings, tuned_values = settings or {}, tuned_values or {}
    if augmentation_name is None:
        return Method(build(name, learner, settings, tuned_values, preset))
    augmentation: Any
    augmentation, fixed = AUGMENTATIONS[augmentation_name]
    own, added = _fields(learner), _fields(augmentation) - fixed.keys()
    for key in settings:
        if key not in own | added:
            hint = instead(key, sorted(own | added))
            raise MerlinError(f"set: {name} has no field {key!r}; {hint}")
    has = {kind: preset in kind.presets for kind in (learner, augmentation)}
    # If neither defines the preset, building the augmentation raises the error.
    wanted = {learner: has[learner], augmentation: has[augmentation] or not has[learner]}
    one, other = (
        build(
            name,
            kind,
            {key: text for key, text in settings.items() if key in fields},
            tuned_values,
            preset if wanted[kind] else None,
        )
        for kind, fields in ((learner, own), (augmentation, added))
    )
    return Method(one, dataclasses.replace(other, **fixed))


def dataset_values(name: str, task: str) -> dict[str, Any]:
    """A method's published hyperparameters for an OGBench dataset, besides the defaults."""
    if not task.startswith(OGBENCH):
        return {}
    by_dataset = LEARNERS[split_name(name)[0]].by_dataset
    found: dict[str, Any] = {}
    for word, values in by_dataset.items():
        found |= values if word in task else {}
    return found


def make(name: str, **fields: Any) -> Learner:
    """Build a learner by name, e.g. `make("wgcsl", best_percentile=80.0)`.

    `merlin.METHODS` lists the names. Pass names of methods with an augmentation, such as merlin-np,
    to `merlin.train` instead.
    """
    learner, augmentation = split_name(name)
    if augmentation is not None:
        raise MerlinError(
            f"{name}: is the learner {learner} with the augmentation {augmentation}; call "
            f"merlin.train({name!r}, data), or make {learner!r} alone."
        )
    kind = LEARNERS[learner]
    for key in fields:
        if key not in _fields(kind):
            raise MerlinError(
                f"{name}: has no field {key!r}; {instead(key, sorted(_fields(kind)))}"
            )
    values = {name: plain(value) for name, value in fields.items()}
    check_values(kind, values)
    return kind(**values)


def needs_latents(learner: Learner, augment: Augmentation | None) -> bool:
    """Whether the learner or the augmentation does not accept images."""
    return not (learner.sees_images and (augment is None or augment.sees_images))


def image_values(method: Method, data: Dataset, *, encoded: bool = False) -> Mapping[str, Any]:
    """Hyperparameters that change for image observations, if the learner sees images itself."""
    latents = encoded or needs_latents(method.learner, method.augmentation)
    return IMAGE_VALUES if data.has_images and not latents else {}


def method_name(learner: Learner, augmentation: Augmentation | None = None) -> str:
    """The registered name of a learner with an optional augmentation."""
    found = next((name for name, kind in LEARNERS.items() if type(learner) is kind), None)
    if found is None:
        what = type(learner).__name__
        raise MerlinError(f"{what}: is not a registered method; add it to LEARNERS.")
    if augmentation is None:
        return found
    added = augmentation_name(augmentation)
    named = (name for name, pair in PAIRS.items() if pair == (found, added))
    return next(named, f"{found}+{added}")


def augmentation_name(augmentation: Augmentation) -> str:
    """The registered name of an augmentation."""
    for name, (kind, fixed) in AUGMENTATIONS.items():
        if type(augmentation) is kind and vars(augmentation) | fixed == vars(augmentation):
            return name
    what = type(augmentation).__name__
    raise MerlinError(f"{what}: is not a registered augmentation; add it to AUGMENTATIONS.")


def _fields(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}
