"""Prepare the data of each seed: latents in place of images, and synthetic trajectories.

Both are made on first use and stored in the run folder, so that a resumed run can reuse them.
"""

import dataclasses
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import merlin
from merlin.augment import Augmented
from merlin.augment.encoder import Encoder
from merlin.augment.latents import Encoded, with_told_goals
from merlin.data import Dataset
from merlin.data.dataset import validate
from merlin.data.formats import native
from merlin.data.images import Images
from merlin.io.schema import read_as
from merlin.learners.registry import augmentation_name
from merlin.training.plan import Plan
from merlin.training.runs import load_encoder, save_encoder, settings_of
from merlin.types import Spec, Trajectories

Sources = Any
"""Recorded trajectories, or a pair of recorded and synthetic ones."""


@dataclass(frozen=True)
class Prepared:
    """The training data of a seed, with reports on how it was made."""

    sources: Sources
    spec: Spec
    images: Images | None  # indexed by the row numbers in the sources
    encoder: Encoder | None  # that converted images to latents
    report: dict[str, Any]


def prepare(
    plan: Plan, recorded: Trajectories, seed: int, folder: Path | None, quiet: bool
) -> Prepared:
    """Convert images to latents and make synthetic trajectories, as planned."""
    data, sources, encoder = plan.data, recorded, None
    own = None if folder is None else folder / f"seed-{seed}"
    report: dict[str, Any] = {}
    if plan.latents is not None:
        encoded = _encoded(plan, seed, own, quiet)
        data, encoder, report = encoded.data, encoded.encoder, {"encoded": encoded.report}
        sources = data.on_device()
    if plan.augment is None:
        images = Images([data.observations]) if data.has_images else None
        spec = plan.learner.survey(data, plan.spec(data))
        return Prepared(sources, spec, images, encoder, report)
    made = _augmented(plan, data, seed, own, quiet)
    added = made.dataset
    images = Images([data.observations, added.observations]) if data.has_images else None
    pair = (sources, added.on_device(first_row=len(data.observations)))
    report = {**report, "augmented": made.report}
    spec = plan.learner.survey(data, plan.spec(data, added))
    return Prepared(pair, spec, images, encoder, report)


def _encoded(plan: Plan, seed: int, own: Path | None, quiet: bool) -> Encoded:
    """The latents for a seed: newly made, or loaded from its folder."""
    assert plan.latents is not None
    path = None if own is None else own / "encoded"
    if path is not None and path.exists():
        known = with_told_goals(native.load(path))  # older folders do not store phi
        encoder = load_encoder(path.with_name("encoder.safetensors"))
        return Encoded(known, encoder, _report(known, path))
    made = plan.latents(plan.data, seed=seed, quiet=quiet)
    about = {"seed": seed, "from": plan.data.source, "settings": asdict(plan.latents)}
    about["report"] = made.report
    kept = _with_provenance(made.data, about, "latents")
    if path is not None:
        save_encoder(path.with_name("encoder.safetensors"), made.encoder)
        native.save(kept, path)
    return made._replace(data=kept)


def _augmented(plan: Plan, data: Dataset, seed: int, own: Path | None, quiet: bool) -> Augmented:
    """The synthetic trajectories for a seed: newly made, or loaded from its folder."""
    assert plan.augment is not None
    path = None if own is None else own / "augmented"
    if path is not None and path.exists():
        dataset = native.load(path)
        return Augmented(dataset, _report(dataset, path))
    made = plan.augment(data, seed=seed, quiet=quiet)
    about = {
        "augmentation": augmentation_name(plan.augment),
        "seed": seed,
        "from": data.source,
        "settings": settings_of(plan.augment),
        "report": made.report,
    }
    dataset = _with_provenance(made.dataset, about, "augmented data")
    if path is not None:
        native.save(dataset, path)
        dataset = native.load(path) if dataset.has_images else dataset
    return made._replace(dataset=dataset)


def _with_provenance(dataset: Dataset, about: dict[str, Any], what: str) -> Dataset:
    provenance = {"made_by": f"merlin {merlin.__version__}", **about}
    return validate(dataclasses.replace(dataset, provenance=provenance), what)


def _report(dataset: Dataset, path: Path) -> dict[str, Any]:
    """The report stored with a dataset when it was made."""
    return read_as(dict[str, Any], dataset.provenance.get("report"), path)
