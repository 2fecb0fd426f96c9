"""Offline goal-conditioned reinforcement learning by diffusion away from goals.

`load` opens a dataset, `Merlin` (and the other learners) says how to learn from it, `train`
learns, `evaluate` plays seeded episodes. Names are imported when they are first used, so that
`import merlin` itself is quick and brings neither JAX nor Gymnasium.
"""

import importlib
from typing import TYPE_CHECKING, Any

from merlin.errors import MerlinError
from merlin.plugin import register_with_gymnasium

if TYPE_CHECKING:
    from merlin.data import Dataset, load, save
    from merlin.evaluation import evaluate
    from merlin.experts.collect import collect
    from merlin.learners import LEARNERS, Merlin, MerlinPlus
    from merlin.runs import Run, load_run
    from merlin.tasks.registry import TASKS, Task
    from merlin.training import train

__version__ = "0.1.0"

_HOME = {
    "Dataset": "merlin.data",
    "LEARNERS": "merlin.learners",
    "Merlin": "merlin.learners",
    "MerlinPlus": "merlin.learners",
    "Run": "merlin.runs",
    "TASKS": "merlin.tasks.registry",
    "Task": "merlin.tasks.registry",
    "collect": "merlin.experts.collect",
    "evaluate": "merlin.evaluation",
    "load": "merlin.data",
    "load_run": "merlin.runs",
    "save": "merlin.data",
    "train": "merlin.training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'merlin' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__


register_with_gymnasium()

__all__ = [
    "Dataset",
    "LEARNERS",
    "Merlin",
    "MerlinError",
    "MerlinPlus",
    "Run",
    "TASKS",
    "Task",
    "collect",
    "evaluate",
    "load",
    "load_run",
    "save",
    "train",
]
