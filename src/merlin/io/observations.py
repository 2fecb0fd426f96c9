"""The inputs of a policy, checked before it acts."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from merlin.errors import MerlinError


def state_and_goal(observation: Any, goal: Any) -> tuple[Any, Any]:
    """Observation and goal, from `policy(observation, goal)` or from Gymnasium's dict."""
    if isinstance(observation, (dict, Mapping)):  # dict first: the abstract class is slower
        if goal is not None:
            raise MerlinError(
                "goal: is given in addition to a dict that has its own; give only one of them."
            )
        try:
            return observation["observation"], observation["desired_goal"]
        except KeyError:
            missing = "desired_goal" if "observation" in observation else "observation"
            raise MerlinError(f"observation: the dict has no {missing!r}; add it.") from None
    if goal is None:
        raise MerlinError(
            "goal: is missing; call policy(observation, goal), or give a dict with "
            "'observation' and 'desired_goal'."
        )
    return observation, goal


def checked(value: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    """A finite float32 array of the given shape, or a batch of them; images are uint8."""
    try:
        array = np.asarray(value)
    except ValueError:  # nested lists of different lengths
        raise MerlinError(f"{what}: its rows have different lengths; give an array.") from None
    size = "x".join(map(str, shape))
    if len(shape) == 3:
        if array.shape[-3:] != shape or array.ndim not in (3, 4) or array.dtype != np.uint8:
            raise MerlinError(
                f"{what}: this policy takes images of {size} in uint8, not an array of shape "
                f"{array.shape} in {array.dtype}."
            )
        return array
    if array.dtype.kind not in "biuf":
        kind = type(value).__name__
        raise MerlinError(f"{what}: has the type {kind}; give an array of numbers.")
    extra = array.ndim - len(shape)
    if extra not in (0, 1) or array.shape[extra:] != shape:
        wanted = (
            f"{size} numbers, or a batch of such rows" if shape else "one number, or one per row"
        )
        raise MerlinError(f"{what}: has the shape {array.shape}, but this policy takes {wanted}.")
    with np.errstate(over="ignore"):  # values beyond float32 become infinite
        array = array.astype(np.float32)
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0]) if shape else ()
        at = f" at {', '.join(map(str, where))}" if where else ""
        raise MerlinError(
            f"{what}: is {array[where]}{at}; check the sensor or the code that produced it."
        )
    return array


def rows_of(
    state: Any, goal: Any, horizon: Any, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, np.ndarray], int | None]:
    """The checked inputs of a deployed policy by name, and their number of rows, if any.

    Inputs without a batch axis are repeated for every row. `shapes` are those of a single row.
    """
    given = {"observation": state, "goal": goal}
    given |= {} if horizon is None else {"horizon": horizon}
    parts = {name: checked(value, shapes[name], name) for name, value in given.items()}
    rows = batch_size({name: (x, len(shapes[name])) for name, x in parts.items()})
    if rows is None:
        return parts, None
    return {name: np.broadcast_to(x, (rows, *shapes[name])) for name, x in parts.items()}, rows


def batch_size(parts: Mapping[str, tuple[np.ndarray, int]]) -> int | None:
    """Number of rows, or None without a batch axis; each part comes with its dimensions."""
    rows = {name: len(x) for name, (x, dimensions) in parts.items() if x.ndim > dimensions}
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{count} of {name}" for name, count in rows.items())
        raise MerlinError(f"batch: has {counts}; give the same number of each, or a single one.")
    return next(iter(rows.values()), None)
