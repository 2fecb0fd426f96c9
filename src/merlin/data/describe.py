"""A summary of a dataset, as numbers and as text."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from merlin.data.dataset import ENVIRONMENT, SUCCESS, Dataset
from merlin.data.quality import ROWS, action_kind, dimension_names, findings
from merlin.envs.registry import own

DISCOUNT = 0.98
"""The same as in evaluations, so that returns of data and policies are comparable."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BINS = 8


def describe(data: Dataset, tolerance: float | None = None) -> dict[str, Any]:
    """Sizes, ranges and, if it is known when a goal is reached, how often episodes reach theirs.

    `tolerance` is the distance at which a goal counts as reached; by default that of the task.
    """
    about: dict[str, Any] = {
        "task": data.task,
        "variant": data.variant,
        "episodes": len(data),
        "states": len(data.observations),
        "transitions": len(data.actions),
        **({} if data.drawn_steps is None else {"drawn_steps": data.drawn_steps}),
        "lengths": {"min": int(data.lengths.min()), "max": int(data.lengths.max())},
        "observation_shape": list(data.observation_shape),
        "action_dim": data.action_dim,
        "goal_dim": data.goal_dim,
        "desired_goals": data.desired_goals is not None,
        "provenance": dict(data.provenance),
        "ranges": {
            name: _ranges(array, dimension_names(data, name))
            for name, array in data.arrays().items()
            if name != "starts" and array.ndim == 2
        },
        "findings": findings(data),
        "actions_look": action_kind(data),
    }
    if about["lengths"]["min"] < about["lengths"]["max"]:
        about["length_histogram"] = histogram(data.lengths)
    if shares := successes(data, tolerance):
        about["reached"] = shares
    near = tolerances(data, tolerance)
    if near is not None and data.desired_goals is not None:
        about["returns"] = summary(returns(data, reached(data, near[0])))
    return about


def tolerances(data: Dataset, tolerance: float | None = None) -> tuple[float, float] | None:
    """The distances at which a goal counts as reached at any step and at the end, if known."""
    if tolerance is not None:
        return tolerance, tolerance
    task = own(data.task)
    if task is None or task.tolerance is None:
        return None
    return task.tolerance, task.success_tolerance or task.tolerance


def successes(data: Dataset, tolerance: float | None = None) -> dict[str, Any] | None:
    """The shares of episodes that reach their goal at any step and at their end.

    They are measured if the tolerance is known; otherwise they are the recorded ones, if any.
    """
    near = tolerances(data, tolerance)
    if near is None:
        return recorded_successes(data)
    if data.desired_goals is None:
        return None
    ever, at_the_end = (reached(data, distance) for distance in near)
    return {
        "ever": float(np.mean(np.maximum.reduceat(ever, data.starts[:-1]))),
        "at_the_end": float(np.mean(at_the_end[data.starts[1:] - 1])),
    }


def recorded_successes(data: Dataset) -> dict[str, Any] | None:
    """The shares of successful episodes that the data records, and where they were read from."""
    found = data.provenance.get(SUCCESS)
    if not isinstance(found, Mapping):
        return None
    shares = {key: found.get(key) for key in ("ever", "at_the_end")}
    if not all(isinstance(share, float) and 0.0 <= share <= 1.0 for share in shares.values()):
        return None
    return {**shares, "told_by": str(found.get("told_by", "the data"))}


def reached(data: Dataset, tolerance: float) -> np.ndarray:
    """For every state, whether it achieves the desired goal of its episode."""
    assert data.desired_goals is not None
    wanted = np.repeat(data.desired_goals, data.lengths, axis=0)
    return np.linalg.norm(data.achieved_goals - wanted, axis=1) <= tolerance


def returns(data: Dataset, at_goal: np.ndarray) -> np.ndarray:
    """The discounted number of steps that end at the desired goal, for each episode."""
    step = np.arange(len(at_goal)) - np.repeat(data.starts[:-1], data.lengths)
    worth = np.where(step > 0, DISCOUNT ** (step - 1.0), 0.0)  # no step leads to the first state
    return np.add.reduceat(at_goal * worth, data.starts[:-1])


def summary(values: np.ndarray) -> dict[str, Any]:
    """Mean, standard deviation, quantiles and histogram of one number per episode."""
    return {
        "discount": DISCOUNT,
        "mean": float(values.mean()),
        "std": float(values.std()),
        "quantiles": {f"{q:g}": float(np.quantile(values, q)) for q in QUANTILES},
        "histogram": histogram(values),
    }


def histogram(values: np.ndarray) -> dict[str, list[float]]:
    """Counts and bin edges; integers get integer edges."""
    low, high = values.min(), values.max()
    edges = np.linspace(low, high, BINS + 1)
    if np.issubdtype(values.dtype, np.integer):
        edges = np.unique(np.linspace(low, high + 1, min(BINS, high - low + 1) + 1).round())
    if low == high:
        edges = np.array([low, high])
    counts, _ = np.histogram(values, edges)
    return {"edges": [float(edge) for edge in edges], "counts": [int(count) for count in counts]}


def in_words(data: Dataset, tolerance: float | None = None) -> str:
    """Kind and sizes, in one line."""
    low, high = data.lengths.min(), data.lengths.max()
    lengths = f"{low}" if low == high else f"{low} to {high}"
    kind = " ".join(part for part in (data.task, data.variant) if part)
    if data.task is None and (environment := environment_of(data)):
        kind = f"{kind} recorded in {environment}".lstrip()
    shape = "x".join(map(str, data.observation_shape))
    text = (
        f"{kind or 'no task named'}, {len(data)} episodes of {lengths} states; "
        f"observation {shape}, action {data.action_dim}, goal {data.goal_dim}"
    )
    if data.desired_goals is None:
        return text + "; no desired goals"
    if shares := successes(data, tolerance):
        text += "; goal reached at the end of {at_the_end:.1%} of them".format(**shares)
        text += " (reported by {told_by})".format(**shares) if "told_by" in shares else ""
    return text


def environment_of(data: Dataset) -> str | None:
    """The name of the environment that the data was recorded in, if the data has it.

    The file may be untrusted: the name is printed, never imported.
    """
    name = data.provenance.get(ENVIRONMENT)
    return name if isinstance(name, str) and name.isprintable() else None


def how_to_evaluate(data: Dataset) -> str | None:
    """A hint for data that names an environment but no task, else None."""
    environment = environment_of(data)
    if data.task is not None or environment is None:
        return None
    if ":" not in environment:
        return (
            f"pass `task={f'MODULE:{environment}'!r}` to evaluate in it, with the module "
            "that registers it."
        )
    return f"pass `task={environment!r}` to evaluate in it."


def why_not_counted(data: Dataset, tolerance: float | None = None) -> str | None:
    """The reason why successes cannot be counted, for data with goals, else None."""
    if data.desired_goals is None or successes(data, tolerance) is not None:
        return None
    return (
        "successes are not counted, since the distance at which a goal counts as reached is "
        "unknown; pass `tolerance`."
    )


def _ranges(array: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    columns = {
        "min": array.min(0),
        "mean": array.mean(0, dtype=np.float64),
        "max": array.max(0),
        "std": array.std(0, dtype=np.float64),
    }
    # In float64: for columns that hardly vary, float32 cannot represent distinct bin edges.
    some = array[:: max(1, len(array) // ROWS)].astype(np.float64)
    return [
        {
            "name": names[dim] if names else "",
            **{name: float(values[dim]) for name, values in columns.items()},
            "histogram": np.histogram(some[:, dim], BINS)[0].tolist(),
        }
        for dim in range(array.shape[1])
    ]
