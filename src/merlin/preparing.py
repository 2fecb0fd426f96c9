"""What each seed is trained on: recorded data, or its latents, and the trajectories made of it.

Both are made when first needed, kept in the run folder, and found there by whoever resumes.
"""

import dataclasses
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import merlin
from merlin.augment import Augmentation, Augmented
from merlin.augment.base import Phi
from merlin.data import Dataset, native
from merlin.data.dataset import validate
from merlin.data.images import Images
from merlin.latents import Encoded, Latents
from merlin.loop import Sources
from merlin.methods import augmentation_name
from merlin.runs import load_encoder, save_encoder, settings_of


class Prepared(NamedTuple):
    """What a seed is trained on."""

    recorded: Dataset
    added: Dataset | None
    encoded: Encoded | None
    sources: Sources
    images: Images | None
    report: dict[str, Any]


def prepare(
    data: Dataset,
    trajectories: Any,
    latents: Latents | None,
    augment: Augmentation | None,
    seed: int,
    *,
    phi: Phi | None,
    folder: Path | None,
    quiet: bool,
) -> Prepared:
    """Latents in place of images, then made trajectories, each if it is wanted."""
    encoded, report = None, {}
    if latents is not None:
        encoded = _encoded(latents, data, seed, folder, quiet)
        data, phi, report = encoded.data, encoded.phi, {"encoded": encoded.report}
        trajectories = data.on_device()
    if augment is None:
        images = Images([data.observations]) if data.has_images else None
        return Prepared(data, None, encoded, trajectories, images, report)
    made = _augmented(augment, data, seed, phi, folder, quiet)
    added = made.dataset
    sources = (trajectories, added.on_device(first_row=len(data.observations)))
    images = Images([data.observations, added.observations]) if data.has_images else None
    return Prepared(data, added, encoded, sources, images, {**report, "augmented": made.report})


def _encoded(
    latents: Latents, data: Dataset, seed: int, folder: Path | None, quiet: bool
) -> Encoded:
    """The latents for a seed: made now, or those that the run folder has already."""
    path = None if folder is None else folder / f"seed-{seed}" / "encoded"
    if path is not None and path.exists():
        known = native.load(path)
        encoder = load_encoder(path.with_name("encoder.safetensors"))
        return Encoded(known, encoder, dict(known.provenance["report"]))
    made = latents(data, seed=seed, quiet=quiet)
    about = {"seed": seed, "from": data.source, "settings": asdict(latents), "report": made.report}
    kept = _with_provenance(made.data, about, "latents")
    if path is not None:
        save_encoder(path.with_name("encoder.safetensors"), made.encoder)
        _keep(kept, path)
    return made._replace(data=kept)


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
        return Augmented(dataset, dict(dataset.provenance["report"]))
    made = augment(data, seed=seed, phi=phi, quiet=quiet)
    about = {
        "augmentation": augmentation_name(augment),
        "seed": seed,
        "from": data.source,
        "settings": settings_of(augment),
        "report": made.report,
    }
    dataset = _with_provenance(made.dataset, about, "augmented data")
    if path is not None:
        _keep(dataset, path)
        dataset = native.load(path) if dataset.has_images else dataset
    return made._replace(dataset=dataset)


def _with_provenance(dataset: Dataset, about: dict[str, Any], what: str) -> Dataset:
    provenance = {"made_by": f"merlin {merlin.__version__}", **about}
    return validate(dataclasses.replace(dataset, provenance=provenance), what)


def _keep(dataset: Dataset, path: Path) -> None:
    """Write a dataset to a run folder, without what an attempt that was killed has left."""
    for stale in path.parent.glob(f".{path.name}.*"):
        shutil.rmtree(stale)
    native.save(dataset, path)
