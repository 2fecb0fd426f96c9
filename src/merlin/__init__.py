"""Offline goal-conditioned reinforcement learning: from recorded trajectories to a policy.

    import merlin

    data = merlin.collect("PointRooms", "random")    # or merlin.load("path/to/dataset")
    run = merlin.train("merlin-plus", data, updates=2000, out="runs/rooms")
    print(run.evaluate(episodes=1000))
    action = run.policy(observation, goal)
    run.export("policy.onnx")

Data: `collect`, `load`, `save`, `Dataset`, `Episode`. Tasks: `TASKS`, `Task`.
Training: `train` takes a learner or the name of a method; `METHODS` lists the names, `make` builds
a learner from a name and hyperparameters. Runs: `Run`, `load_run`. Scores: `evaluate`.

The methods, as classes and by name:

    Merlin            merlin        behaviour cloning with goal and horizon (the paper's method)
    MerlinPlus        merlin-plus   proposes actions and ranks them; nothing to tune
    MerlinMap         merlin-map    plans over recorded transitions, for distant goals
    GCSL              gcsl          behaviour cloning with hindsight goals
    WGCSL             wgcsl         the same, weighted by a critic
    ActionableModels  am            conservative Q-learning with chained goals
    GoFAR             gofar         regression by state-occupancy matching
    DecisionDiffuser  dd            denoises future states, then applies inverse dynamics
    GDQL              g-dql         a diffusion policy trained with twin critics
    Beso              beso          a score-based diffusion policy
    GCBC              gcbc          behaviour cloning with OGBench's settings
    GCIVL             gcivl         a state value, advantage-weighted cloning
    GCIQL             gciql         implicit Q-learning with goals
    QRL               qrl           a quasimetric between states
    CRL               crl           a contrastive critic
    HIQL              hiql          subgoals, then actions

merlin-p, merlin-np, merlin-mb, merlin-ts and gcsl-ts also train on generated trajectories.

Names are imported when they are first used: `import merlin` is quick and brings neither JAX nor
Gymnasium. `merlin.runtime` acts with a trained policy and needs NumPy alone.
"""

import importlib
from typing import TYPE_CHECKING, Any

from merlin.envs.plugin import register_with_gymnasium
from merlin.errors import MerlinError

if TYPE_CHECKING:
    from merlin import learners, runtime
    from merlin.collection.collect import collect
    from merlin.data import Dataset, Episode, load, save
    from merlin.deploy.export import export
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
"""The names of all methods, available without importing their classes."""
DEFAULT_METHOD = "merlin-plus"
"""The default method of `merlin train`: it has one setting for every task."""

_NAMES = {
    "merlin.collection.collect": ("collect",),
    "merlin.data": ("Dataset", "Episode", "load", "save"),
    "merlin.deploy.export": ("export",),
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
_MODULES = ("learners", "runtime")
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME and name not in _MODULES:
        raise AttributeError(f"module 'merlin' has no attribute {name!r}")
    try:
        if name in _MODULES:
            return importlib.import_module(f"merlin.{name}")
        return getattr(importlib.import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("merlin."):
            raise
        raise MerlinError(
            f"merlin.{name} is not part of merlin-rl-runtime, which only acts; "
            "run `pip uninstall merlin-rl-runtime` and `pip install merlin-rl`."
        ) from None


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


register_with_gymnasium()

__all__ = [
    "ActionableModels",
    "Beso",
    "CRL",
    "DEFAULT_METHOD",
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
    "export",
    "learners",
    "load",
    "load_run",
    "make",
    "runtime",
    "save",
    "train",
]
