"""What a dataset holds, in numbers and in words."""

from typing import Any

import numpy as np

from merlin.data.dataset import Dataset
from merlin.tasks.registry import TASKS


def describe(data: Dataset) -> dict[str, Any]:
    """Sizes, ranges and, where the task is known, how often episodes reach their goal."""
    about: dict[str, Any] = {
        "task": data.task,
        "variant": data.variant,
        "episodes": len(data),
        "states": len(data.observations),
        "transitions": len(data.actions),
        "lengths": {"min": int(data.lengths.min()), "max": int(data.lengths.max())},
        "observation_shape": list(data.observations.shape[1:]),
        "action_dim": data.actions.shape[1],
        "goal_dim": data.achieved_goals.shape[1],
        "desired_goals": data.desired_goals is not None,
        "provenance": dict(data.provenance),
        "ranges": {
            name: _ranges(array)
            for name, array in data.arrays().items()
            if name != "starts" and array.ndim == 2
        },
    }
    tolerance = TASKS[data.task].tolerance if data.task in TASKS else None
    if tolerance is not None and data.desired_goals is not None:
        at_goal = reached(data, tolerance)
        last = data.starts[1:] - 1
        about["reached"] = {
            "ever": float(np.mean(np.maximum.reduceat(at_goal, data.starts[:-1]))),
            "at_the_end": float(np.mean(at_goal[last])),
        }
    return about


def reached(data: Dataset, tolerance: float) -> np.ndarray:
    """For every state, whether its episode's desired goal is achieved there."""
    assert data.desired_goals is not None
    wanted = np.repeat(data.desired_goals, data.lengths, axis=0)
    return np.linalg.norm(data.achieved_goals - wanted, axis=1) <= tolerance


def in_words(data: Dataset) -> str:
    """One line: what it is and how large."""
    low, high = data.lengths.min(), data.lengths.max()
    lengths = f"{low}" if low == high else f"{low} to {high}"
    kind = " ".join(part for part in (data.task, data.variant) if part) or "no task named"
    shape = "x".join(map(str, data.observations.shape[1:]))
    text = (
        f"{kind}, {len(data)} episodes of {lengths} states; observation {shape}, "
        f"action {data.actions.shape[1]}, goal {data.achieved_goals.shape[1]}"
    )
    if data.desired_goals is None:
        return text + "; no desired goals"
    about = describe(data)
    if "reached" in about:
        text += "; goal reached at the end of {:.1%} of them".format(about["reached"]["at_the_end"])
    return text


def _ranges(array: np.ndarray) -> list[dict[str, float]]:
    columns = {
        "min": array.min(0),
        "mean": array.mean(0, dtype=np.float64),
        "max": array.max(0),
        "std": array.std(0, dtype=np.float64),
    }
    return [
        {name: float(values[dim]) for name, values in columns.items()}
        for dim in range(array.shape[1])
    ]
