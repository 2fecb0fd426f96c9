"""OGBench's .npz: all steps of all episodes back to back.

observations, actions   one row per step; the last action of an episode leads out of it
terminals               1 at the last step of every episode

Goals are states, or the columns of them given by phi. Fields that the layout does not define are
stored under additional keys, which other readers ignore: desired_goals, achieved_goals if they
differ from the states, and action_low and action_high.

`ogbench:NAME` is a file that OGBench has downloaded into its own folder.
"""

import io
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from merlin.data.archives import read_npz
from merlin.data.conversion import (
    achieved_goals,
    action_range,
    float32,
    float32_or_images,
    is_numeric,
    reading,
    refuse_phi,
)
from merlin.data.dataset import ORIGIN, Dataset
from merlin.envs.ogbench import DOWNLOADED, PREFIX, unknown
from merlin.envs.registry import own
from merlin.errors import MerlinError
from merlin.io.files import write_bytes

REQUIRED = ("observations", "actions", "terminals")
OPTIONAL = ("achieved_goals", "desired_goals", "action_low", "action_high")


def folder() -> Path:
    """Where OGBench stores its downloads."""
    return Path.home() / ".ogbench" / "data"


def file_of(name: str) -> Path:
    """The file of `ogbench:NAME`, which may not exist."""
    return folder() / f"{name.removeprefix(PREFIX)}.npz"


def is_downloaded(name: str) -> bool:
    return file_of(name).is_file()


def read(name: str, phi: Sequence[int] | None = None) -> Dataset:
    """Read an .npz, or `ogbench:NAME`; the last action of every episode is dropped.

    A plain .npz does not name a task.
    """
    if not name.startswith(PREFIX):
        return _read(name, phi)
    task, file = own(name), file_of(name)
    if task is None:
        raise unknown(name)
    refuse_phi(phi, name)
    if not file.is_file():
        raise MerlinError(
            f"{name}: is not downloaded, there is no {file}; "
            f"`merlin collect {name} --out DIR` makes such data."
        )
    data = _read(str(file), None)
    task.check_fit((*data.observation_shape, data.action_dim, data.goal_dim), str(file))
    about = {ORIGIN: DOWNLOADED, "read_from": str(file)}
    return replace(data, task=task.name, variant=DOWNLOADED, provenance=about)


def _read(path: str, phi: Sequence[int] | None) -> Dataset:
    arrays = _open(path)
    steps = arrays["observations"].shape[:1]
    for name in REQUIRED:
        array = arrays[name]
        if not steps or array.shape[:1] != steps or 0 in array.shape:
            raise MerlinError(
                f"{path}: {name} has the shape {array.shape}; give observations, actions and "
                "terminals the same number of rows, at least one."
            )
    ends = _ends(arrays["terminals"], path)
    observations = float32_or_images(arrays["observations"])
    kept = np.ones(len(observations), bool)
    kept[ends] = False
    actions = float32(arrays["actions"][kept])
    if actions.ndim != 2 or not len(actions):
        raise MerlinError(f"{path}: actions have the shape {actions.shape}; give steps x numbers.")
    desired = arrays.get("desired_goals")
    low, high = action_range(actions, within=(-1.0, 1.0))
    return Dataset(
        observations=observations,
        actions=actions,
        achieved_goals=achieved_goals(observations, arrays.get("achieved_goals"), phi, path),
        desired_goals=None if desired is None else float32(desired),
        starts=np.concatenate([[0], ends + 1]).astype(np.int64),
        action_low=float32(arrays.get("action_low", low)),
        action_high=float32(arrays.get("action_high", high)),
    )


def write(data: Dataset, path: str, overwrite: bool = False) -> None:
    """Write an .npz that OGBench's loader and `read` both accept."""
    if path.startswith(PREFIX):
        raise MerlinError(f"{path}: OGBench's folder is for its downloads; name a file, X.npz.")
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
    write_bytes(Path(path), file.getvalue(), overwrite=overwrite)


def _ends(terminals: np.ndarray, path: str) -> np.ndarray:
    """The index of the last step of each episode."""
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


def _open(path: str) -> dict[str, np.ndarray]:
    with reading(path, "an .npz of arrays"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a corrupt header may warn before it fails
        found = read_npz(Path(path), (*REQUIRED, *OPTIONAL))
    for name in REQUIRED:
        if name not in found:
            raise MerlinError(f"{path}: has no {name}; an .npz needs {', '.join(REQUIRED)}.")
    for name, array in found.items():
        if not is_numeric(array):
            raise MerlinError(f"{path}: {name} holds {array.dtype}, not numbers; convert it.")
    return found
