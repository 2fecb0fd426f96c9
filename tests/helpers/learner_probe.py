"""Every method, small enough to learn a probe task in seconds."""

import dataclasses
from functools import lru_cache

from merlin.learners import LEARNERS, Learner

TINY = {
    "beso": {"guidance": 1.5},
    "dd": {
        "batch_size": 128,
        "window": 4,
        "diffusion_steps": 10,
        "sampling_steps": 10,
        "channels": 16,
        "multipliers": (1,),
        "inverse_hidden": (64, 64),
        "average_start": 100,
        "average_decay": 0.95,
    },
    "gciql": {"hidden": (32, 32), "batch_size": 128},
    "gcivl": {"hidden": (32, 32), "batch_size": 128},
    "crl": {"hidden": (32, 32), "batch_size": 128, "rep_dim": 32},
    "hiql": {"hidden": (32, 32), "batch_size": 128},
    "merlin-map": {"places": 60},
    "qrl": {"hidden": (32, 32), "batch_size": 128, "rep_dim": 32},
    "g-dql": {
        "hidden": (64, 64),
        "batch_size": 128,
        "average_start": 100,
        "tolerance": 0.3,
        "candidates": 10,
    },
}
"""Over the small preset of a method: what makes it small enough to compile and learn in seconds."""


@lru_cache
def small(name: str) -> Learner:
    """The method with its defaults, or its small preset, but sized for a probe."""
    wanted = {"hidden": (64, 64), "batch_size": 256, "learning_rate": 2e-3, "target_keep": 0.98}
    wanted |= {"tau": 0.02}
    fields = {field.name for field in dataclasses.fields(LEARNERS[name])}
    sized = {key: value for key, value in wanted.items() if key in fields}
    preset = LEARNERS[name].presets.get("small", {})
    return LEARNERS[name](**{**preset, **sized, **TINY.get(name, {})})
