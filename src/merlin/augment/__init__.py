"""Synthetic trajectories from recorded ones: by learned models, or by stitching."""

from typing import Any

from merlin.augment.base import Augmentation, Augmented
from merlin.augment.reverse import Rollouts
from merlin.augment.stitch import Stitch

AUGMENTATIONS: dict[str, tuple[type[Augmentation], dict[str, Any]]] = {
    "reverse-model": (Rollouts, {"forward": False}),
    "forward-model": (Rollouts, {"forward": True}),
    "reverse-stitch": (Stitch, {"forward": False}),
    "forward-stitch": (Stitch, {"forward": True}),
}
"""Keyed by the name on the command line: the class, and the field values that the name fixes."""

__all__ = ["AUGMENTATIONS", "Augmentation", "Augmented", "Rollouts", "Stitch"]
