"""Prepare the data of each seed: latents in place of images, and synthetic trajectories.

Both are made on first use and stored in the run folder, so that a resumed run can reuse them. A
folder given as `shared` stores them instead: runs with the same data, settings and seed reuse them.
"""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator
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
from merlin.io.locks import lock
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
    sizes: tuple[int, int] | None  # recorded and synthetic examples per minibatch
    spec: Spec
    images: Images | None  # indexed by the row numbers in the sources
    encoder: Encoder | None  # that converted images to latents
    report: dict[str, Any]


def prepare(
    plan: Plan,
    recorded: Trajectories,
    seed: int,
    folder: Path | None,
    quiet: bool,
    shared: Path | None = None,
) -> Prepared:
    """Convert images to latents and make synthetic trajectories, as planned."""
    data, sources, encoder = plan.data, recorded, None
    own = None if folder is None else folder / f"seed-{seed}"
    report: dict[str, Any] = {}
    if plan.latents is not None:
        encoded = _encoded(plan, seed, own, shared, quiet)
        data, encoder, report = encoded.data, encoded.encoder, {"encoded": encoded.report}
        sources = data.on_device()
    if plan.augment is None:
        images = Images([data.observations]) if data.has_images else None
        spec = plan.learner.survey(data, plan.spec(data), quiet=quiet)
        return Prepared(sources, None, spec, images, encoder, report)
    made = _augmented(plan, data, seed, own, shared, quiet)
    added = made.dataset
    images = Images([data.observations, added.observations]) if data.has_images else None
    pair = (sources, added.on_device(first_row=len(data.observations)))
    sizes = plan.sizes(added)
    assert sizes is not None
    report = {**report, "augmented": made.report, "mix": sizes[1] / sum(sizes)}
    spec = plan.learner.survey(data, plan.spec(data, added), quiet=quiet)
    return Prepared(pair, sizes, spec, images, encoder, report)


@contextlib.contextmanager
def _place(
    name: str, own: Path | None, shared: Path | None, data: Dataset, how: dict[str, Any]
) -> Iterator[Path | None]:
    """The folder with a seed's prepared data: its own, or one that several runs share.

    Other runs wait while one of them fills a shared folder.
    """
    if shared is None or (own is not None and (own / name).exists()):
        yield own
        return
    made_of = {
        "version": merlin.__version__,
        "data": data.fingerprint(),
        "phi": data.phi,
        "actions": [[float(x) for x in bound] for bound in (data.action_low, data.action_high)],
        **how,
    }
    digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
    place = shared / f"{name}-{digest[:16]}"
    with lock(place / ".lock", str(place), wait=True):
        yield place


def _encoded(plan: Plan, seed: int, own: Path | None, shared: Path | None, quiet: bool) -> Encoded:
    """The latents for a seed: newly made, or loaded."""
    assert plan.latents is not None
    how = {"seed": seed, "settings": asdict(plan.latents)}
    with _place("encoded", own, shared, plan.data, how) as place:
        if place is not None and (place / "encoded").exists():
            known = with_told_goals(native.load(place / "encoded"))  # not stored by older versions
            encoder = load_encoder(place / "encoder.safetensors")
            found = Encoded(known, encoder, _report(known, place / "encoded"))
        else:
            made = plan.latents(plan.data, seed=seed, quiet=quiet)
            about = {**how, "from": plan.data.source, "report": made.report}
            kept = _with_provenance(made.data, about, "latents")
            found = made._replace(data=kept)
            if place is not None:
                save_encoder(place / "encoder.safetensors", found.encoder)
                native.save(kept, place / "encoded")
    if own is not None and place != own:  # policies on images need it
        save_encoder(own / "encoder.safetensors", found.encoder)
    return found


def _augmented(
    plan: Plan, data: Dataset, seed: int, own: Path | None, shared: Path | None, quiet: bool
) -> Augmented:
    """The synthetic trajectories for a seed: newly made, or loaded."""
    assert plan.augment is not None
    how = {
        "augmentation": augmentation_name(plan.augment),
        "seed": seed,
        "settings": settings_of(plan.augment),
    }
    with _place("augmented", own, shared, data, how) as place:
        path = None if place is None else place / "augmented"
        if path is not None and path.exists():
            dataset = native.load(path)
            return Augmented(dataset, _report(dataset, path))
        made = plan.augment(data, seed=seed, quiet=quiet)
        about = {**how, "from": data.source, "report": made.report}
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
