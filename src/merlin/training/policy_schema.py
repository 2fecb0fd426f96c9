"""The metadata of a policy file, validated against its arrays. Needs no JAX."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from merlin.errors import MerlinError
from merlin.io import tensors
from merlin.io.schema import read_as

MOST_SETTING = 10**7
"""Upper bound on integer settings of a method."""
FEW = 100
"""Layers and lookahead steps that any file may declare; more must be backed by arrays."""


@dataclass(frozen=True, eq=False, repr=False)
class EncoderAbout:
    """The sizes of an image encoder."""

    shape: tuple[int, ...]
    hidden: tuple[int, ...]
    dim: int
    goals: int
    units: bool


@dataclass(frozen=True, eq=False, repr=False)
class PolicyAbout:
    """The metadata in a policy file that acting depends on."""

    algo: str
    settings: dict[str, Any]
    observation_shape: tuple[int, ...]
    action_dim: int
    goal_dim: int
    max_horizon: int
    constants: dict[str, Any] = field(default_factory=dict)
    goal_image: bool = False
    encoder: EncoderAbout | None = None
    seed: int = 0


def read_policy(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the arrays and metadata of a policy file, and check the sizes against the arrays."""
    arrays, about = tensors.read(path)
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise MerlinError(f"{path}: {name} is not finite; train again.")
    told: PolicyAbout = read_as(PolicyAbout, about, path)
    sizes = {
        "observation_shape": told.observation_shape,
        **{"action_dim": (told.action_dim,), "goal_dim": (told.goal_dim,)},
    }
    check_sizes(path, arrays, sizes)
    if told.encoder is not None:
        check_encoder(path, arrays, told.encoder)
    if not 1 <= told.max_horizon <= MOST_SETTING:
        raise MerlinError(f"{path}: max_horizon is {told.max_horizon}; train again.")
    for name, value in told.settings.items():
        counts = name in ("layers", "depth") and isinstance(value, int)
        many = value if counts else len(value) if isinstance(value, list) else 0
        large = isinstance(value, int | float) and abs(value) > MOST_SETTING
        if large or many > max(FEW, len(arrays)):
            raise MerlinError(f"{path}: its setting {name} is too large; train again.")
    return arrays, about


def check_encoder(path: Path, arrays: Mapping[str, np.ndarray], told: EncoderAbout) -> None:
    """Raise an error for an encoder description that does not match the arrays."""
    sizes = {"shape": told.shape, "dim": (told.dim,), "goals": (told.goals,)}
    check_sizes(path, arrays, {f"encoder {name}": size for name, size in sizes.items()})
    if len(told.shape) != 3 or len(told.hidden) > max(FEW, len(arrays)):
        raise MerlinError(f"{path}: does not describe an image encoder; train again.")


def check_sizes(
    path: Path, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise an error for shapes larger than all arrays together, before anything is allocated."""
    held = sum(array.size for array in arrays.values())
    for name, shape in sizes.items():
        if not shape or min(shape) < 1 or math.prod(shape) > held:
            raise MerlinError(
                f"{path}: {name} is {list(shape[:4])}, but the file holds {held} numbers; "
                "train again."
            )
