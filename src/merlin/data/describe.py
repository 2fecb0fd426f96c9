"""What a dataset holds, in numbers and in words."""

from typing import Any

import numpy as np

from merlin.data.dataset import Dataset
from merlin.tasks.registry import TASKS

DISCOUNT = 0.98
"""That of evaluations, so that the returns of data and of policies can be compared."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BINS = 8


def describe(data: Dataset) -> dict[str, Any]:
    """Sizes, ranges and, where the task is known, how well the episodes reach their goal."""
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
    if about["lengths"]["min"] < about["lengths"]["max"]:
        about["length_histogram"] = histogram(data.lengths)
    task = TASKS.get(data.task or "")
    if task and task.tolerance is not None and data.desired_goals is not None:
        at_goal = reached(data, task.tolerance)
        at_the_end = reached(data, task.success_tolerance or task.tolerance)[data.starts[1:] - 1]
        about["reached"] = {
            "ever": float(np.mean(np.maximum.reduceat(at_goal, data.starts[:-1]))),
            "at_the_end": float(np.mean(at_the_end)),
        }
        about["returns"] = summary(returns(data, at_goal))
    return about


def reached(data: Dataset, tolerance: float) -> np.ndarray:
    """For every state, whether its episode's desired goal is achieved there."""
    assert data.desired_goals is not None
    wanted = np.repeat(data.desired_goals, data.lengths, axis=0)
    return np.linalg.norm(data.achieved_goals - wanted, axis=1) <= tolerance


def returns(data: Dataset, at_goal: np.ndarray) -> np.ndarray:
    """The discounted number of recorded steps of each episode that end at its desired goal."""
    step = np.arange(len(at_goal)) - np.repeat(data.starts[:-1], data.lengths)
    worth = np.where(step > 0, DISCOUNT ** (step - 1.0), 0.0)  # no step ends in the first state
    return np.add.reduceat(at_goal * worth, data.starts[:-1])


def summary(values: np.ndarray) -> dict[str, Any]:
    """Mean, deviation, quantiles and histogram of one number per episode."""
    return {
        "discount": DISCOUNT,
        "mean": float(values.mean()),
        "std": float(values.std()),
        "quantiles": {f"{q:g}": float(np.quantile(values, q)) for q in QUANTILES},
        "histogram": histogram(values),
    }


def histogram(values: np.ndarray) -> dict[str, list[float]]:
    """Counts between edges; whole numbers get edges that are whole."""
    low, high = values.min(), values.max()
    edges = np.linspace(low, high, BINS + 1)
    if np.issubdtype(values.dtype, np.integer):
        edges = np.unique(np.linspace(low, high + 1, min(BINS, high - low + 1) + 1).round())
    if low == high:
        edges = np.array([low, high])
    counts, _ = np.histogram(values, edges)
    return {"edges": [float(edge) for edge in edges], "counts": [int(count) for count in counts]}


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
