"""OGBench's .npz: all steps of all episodes back to back.

observations, actions   one row per step; the last action of an episode leads out of it
terminals               1 at the last step of every episode

Goals are states, or the part of them that phi names. What the layout has no place for stands
under further keys, which other readers pass over: desired_goals, achieved_goals where they are
not the states themselves, and action_low and action_high.
"""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from merlin.data.conversion import (
    action_range,
    float32,
    float32_or_images,
    goals_within,
    is_numeric,
    reason,
    refuse_phi,
)
from merlin.data.dataset import Dataset
from merlin.errors import MerlinError
from merlin.files import write_bytes

REQUIRED = ("observations", "actions", "terminals")
OPTIONAL = ("achieved_goals", "desired_goals", "action_low", "action_high")


def read(path: str, phi: Sequence[int] | None = None) -> Dataset:
    """Read an .npz; it names no task, and the last action of every episode is dropped."""
    arrays = _open(Path(path))
    steps = arrays["observations"].shape[:1]
    for name in REQUIRED:
        array = arrays[name]
        if not steps or array.shape[:1] != steps or 0 in array.shape:
            raise MerlinError(
                f"{path}: {name} has the shape {array.shape}; give observations, actions and "
                "terminals the same number of rows, at least one."
            )
    ends = _ends(arrays["terminals"], path)
    observations = float32_or_images(arrays["observations"], 4)
    kept = np.ones(len(observations), bool)
    kept[ends] = False
    actions = float32(arrays["actions"][kept])
    if actions.ndim != 2 or not len(actions):
        raise MerlinError(f"{path}: actions have the shape {actions.shape}; give steps x numbers.")
    if "achieved_goals" in arrays:
        refuse_phi(phi, path)
        achieved = float32(arrays["achieved_goals"])
    else:
        achieved = goals_within(observations, phi, path)
    desired = arrays.get("desired_goals")
    low, high = action_range(actions, within=(-1.0, 1.0))
    return Dataset(
        observations=observations,
        actions=actions,
        achieved_goals=achieved,
        desired_goals=None if desired is None else float32(desired),
        starts=np.concatenate([[0], ends + 1]).astype(np.int64),
        action_low=float32(arrays.get("action_low", low)),
        action_high=float32(arrays.get("action_high", high)),
    )


def write(data: Dataset, path: str) -> None:
    """Write an .npz that OGBench's loader and `read` both understand."""
    last = data.starts[1:] - 1
    taken = np.ones(len(data.observations), bool)
    taken[last] = False
    actions = np.zeros((len(taken), data.actions.shape[1]), np.float32)
    actions[taken] = data.actions
    content = {
        "observations": data.observations,
        "actions": actions,
        "terminals": ~taken,
        "action_low": data.action_low,
        "action_high": data.action_high,
    }
    if data.desired_goals is not None:
        content["desired_goals"] = data.desired_goals
    if not np.array_equal(data.achieved_goals, data.observations):
        content["achieved_goals"] = data.achieved_goals
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **content)
    write_bytes(Path(path), file.getvalue())


def _ends(terminals: np.ndarray, path: str) -> np.ndarray:
    """The last step of each episode."""
    if terminals.ndim != 1:
        raise MerlinError(f"{path}: terminals have the shape {terminals.shape}; give one column.")
    odd = np.flatnonzero((terminals != 0) & (terminals != 1))
    if len(odd):
        raise MerlinError(f"{path}: terminals row {odd[0]} is {terminals[odd[0]]}; write 0 or 1.")
    if not terminals[-1]:
        raise MerlinError(
            f"{path}: terminals do not mark the last step, so the last episode has no end; "
            "mark it or cut the episode off."
        )
    return np.flatnonzero(terminals)


def _open(path: Path) -> dict[str, np.ndarray]:
    if not path.exists():
        raise MerlinError(f"{path}: no such dataset; give a file, a folder or a task.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a garbled header may warn before it fails
            # NumPy would leave the file open if it is no archive.
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                names = set(file.files)
                found = {name: file[name] for name in (*REQUIRED, *OPTIONAL) if name in names}
    except Exception as error:  # whatever NumPy and zipfile make of a damaged archive
        raise MerlinError(
            f"{path}: cannot be read as an .npz of arrays ({reason(error)}); get it again."
        ) from None
    for name in REQUIRED:
        if name not in found:
            raise MerlinError(f"{path}: has no {name}; an .npz needs {', '.join(REQUIRED)}.")
    for name, array in found.items():
        if not is_numeric(array):
            raise MerlinError(f"{path}: {name} holds {array.dtype}, not numbers; convert it.")
    return found
