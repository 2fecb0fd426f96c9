"""The experts that come with the package: weights, and a card that says how they were made."""

from importlib import resources
from pathlib import Path
from typing import Any

from merlin.envs.registry import Task
from merlin.errors import MerlinError
from merlin.experts.actor import Actor
from merlin.io.files import read_json


def folder() -> Path:
    """Where the shipped weights and cards lie."""
    return Path(str(resources.files("merlin.experts") / "weights"))


def shipped(task: Task) -> Actor:
    """The expert for a task."""
    path = folder() / f"{task.name}.safetensors"
    if not path.exists():
        raise MerlinError(
            f"task {task.name}: no expert comes with this version; train one with "
            f"`merlin expert train {task.name} --out DIR`."
        )
    return Actor.load(path)


def card(task: Task) -> dict[str, Any]:
    """What the shipped expert scored, and how it was trained."""
    return read_json(folder() / f"{task.name}.json", "an expert's card")
