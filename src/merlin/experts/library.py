"""The experts shipped with the package: weights, and cards that describe their training."""

from importlib import resources
from pathlib import Path
from typing import Any

from merlin.envs.registry import Task
from merlin.errors import MerlinError
from merlin.experts.actor import Actor
from merlin.io.files import read_json


def folder() -> Path:
    """The folder of the shipped weights and cards."""
    return Path(str(resources.files("merlin.experts") / "weights"))


def shipped(task: Task) -> Actor:
    """The expert for a task."""
    path = folder() / f"{task.name}.safetensors"
    if not path.exists():
        raise MerlinError(
            f"task {task.name}: has no expert in this version; train one with "
            f"`merlin expert train {task.name} --out DIR`."
        )
    return Actor.load(path)


def card(task: Task) -> dict[str, Any]:
    """Scores and training details of the shipped expert."""
    return read_json(folder() / f"{task.name}.json", "an expert's card")
