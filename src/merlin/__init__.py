"""Offline goal-conditioned reinforcement learning by diffusion away from goals.

`load` opens a dataset, `Merlin` (and the other learners) says how to learn from it, `train`
learns, `evaluate` plays seeded episodes. Names are imported when they are first used, so that
`import merlin` itself is quick and brings neither JAX nor Gymnasium.
"""

import importlib
from typing import TYPE_CHECKING, Any

from merlin.envs.plugin import register_with_gymnasium
from merlin.errors import MerlinError

if TYPE_CHECKING:
    from merlin.collection.collect import collect
    from merlin.data import Dataset, Episode, load, save
    from merlin.envs.registry import TASKS, Task
    from merlin.evaluation.evaluate import evaluate
    from merlin.learners import (
        CRL,
        GCBC,
        GCIQL,
        GCIVL,
        GCSL,
        GDQL,
        HIQL,
        LEARNERS,
        QRL,
        WGCSL,
        ActionableModels,
        Beso,
        DecisionDiffuser,
        GoFAR,
        Merlin,
        MerlinMap,
        MerlinPlus,
    )
    from merlin.learners.registry import make
    from merlin.training.runs import Run, load_run
    from merlin.training.train import train

__version__ = "0.1.0"

METHODS = (
    *("merlin", "merlin-plus", "merlin-map"),
    *("gcsl", "wgcsl", "am", "gofar", "dd", "g-dql", "beso"),
    *("gcbc", "gcivl", "gciql", "qrl", "crl", "hiql"),
    *("merlin-p", "merlin-np", "merlin-mb", "merlin-ts", "gcsl-ts"),
)
"""The names of all methods, for those who do not need the methods themselves."""

_NAMES = {
    "merlin.collection.collect": ("collect",),
    "merlin.data": ("Dataset", "Episode", "load", "save"),
    "merlin.envs.registry": ("TASKS", "Task"),
    "merlin.evaluation.evaluate": ("evaluate",),
    "merlin.learners": (
        *("CRL", "GCBC", "GCIQL", "GCIVL", "HIQL", "QRL"),
        *("ActionableModels", "Beso", "DecisionDiffuser", "GCSL", "GDQL", "GoFAR", "LEARNERS"),
        *("Merlin", "MerlinMap", "MerlinPlus", "WGCSL"),
    ),
    "merlin.learners.registry": ("make",),
    "merlin.training.runs": ("Run", "load_run"),
    "merlin.training.train": ("train",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'merlin' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("merlin."):
            raise
        raise MerlinError(
            f"merlin.{name} is not part of merlin-rl-runtime, which only acts; "
            "run `pip uninstall merlin-rl-runtime` and `pip install merlin-rl`."
        ) from None


def __dir__() -> list[str]:
    return __all__


register_with_gymnasium()

__all__ = [
    "ActionableModels",
    "Beso",
    "CRL",
    "Dataset",
    "DecisionDiffuser",
    "Episode",
    "GCBC",
    "GCIQL",
    "GCIVL",
    "GCSL",
    "GDQL",
    "GoFAR",
    "HIQL",
    "LEARNERS",
    "METHODS",
    "Merlin",
    "MerlinError",
    "MerlinMap",
    "MerlinPlus",
    "QRL",
    "Run",
    "TASKS",
    "Task",
    "WGCSL",
    "collect",
    "evaluate",
    "load",
    "load_run",
    "make",
    "save",
    "train",
]
