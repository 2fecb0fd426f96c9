"""Minari datasets, of the local store by `minari:ID` or anywhere as a folder.

Goal observations (dicts of observation, achieved_goal and desired_goal) are read as they are;
plain observations are their own goals, or phi names the part that is. Minari is imported when
the first such dataset is read or written.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from merlin.data.conversion import (
    action_range,
    constant_goals,
    float32,
    float32_or_images,
    goals_within,
    is_numeric,
    reason,
    refuse_phi,
)
from merlin.data.dataset import Dataset, Episode
from merlin.errors import MerlinError
from merlin.files import new_folder, read_json
from merlin.tasks.registry import TASKS, find

PREFIX = "minari:"
METADATA = "metadata.json"
OURS = "merlin"
"""Key of Minari's metadata under which we keep what has no place of its own there."""
_ID = re.compile(r"([-\w]+/)*[-\w]+-v\d+")


def store() -> Path:
    """Where Minari keeps its datasets on this machine."""
    configured = os.environ.get("MINARI_DATASETS_PATH")
    return Path(configured) if configured else Path.home() / ".minari" / "datasets"


def full_name(name: str) -> str:
    """`minari:ID` for the mere id of a dataset in the store, and any other name as it is."""
    in_store = not Path(name).exists() and _ID.fullmatch(name) and recognises(PREFIX + name)
    return PREFIX + name if in_store else name


def folder_of(name: str) -> Path:
    """The folder of a dataset that is named by `minari:ID` or by its path."""
    if name.startswith(PREFIX):
        return store() / name.removeprefix(PREFIX)
    return Path(name)


def recognises(name: str) -> bool:
    """Whether a Minari dataset stands at a path or id."""
    folder = folder_of(name)
    return any((home / METADATA).is_file() for home in (folder / "data", folder))


def read(name: str, phi: Sequence[int] | None = None) -> Dataset:
    """Read a Minari dataset: the task from its environment, the bounds from its action space."""
    _check_id(name)
    folder = folder_of(name)
    if not folder.is_dir():
        raise MerlinError(f"{name}: no such dataset in {store()}; see `minari list local`.")
    home = folder / "data" if (folder / "data").is_dir() else folder
    about = read_json(home / METADATA, "a Minari dataset")
    # Without its spaces Minari would make the environment that the file names, and so call any
    # function that is written there.
    for key in ("observation_space", "action_space"):
        if not isinstance(about.get(key), str):
            raise MerlinError(f"{home / METADATA}: has no {key}; write it anew with Minari.")
    count = about.get("total_episodes")
    if type(count) is not int or count < 1:
        raise MerlinError(f"{home / METADATA}: total_episodes is {count!r}; collect at least one.")
    try:
        storage = _storage(home)
        raw = list(storage.get_episodes(range(count)))
        action_space = storage.action_space
    except Exception as error:  # whatever Minari and HDF5 make of a damaged file
        raise MerlinError(
            f"{name}: Minari cannot read it ({reason(error)}); download it again."
        ) from None
    episodes = list(_episodes(raw, phi, name))
    actions = np.concatenate([episode.actions for episode in episodes])
    low, high = _bounds(action_space, actions, name)
    ours = about.get(OURS)
    kept = ours if isinstance(ours, dict) else {"task": _task_of(about)}
    provenance = kept.get("provenance")
    return Dataset.from_episodes(
        episodes,
        action_low=low,
        action_high=high,
        task=kept["task"] if isinstance(kept.get("task"), str) else None,
        variant=kept["variant"] if isinstance(kept.get("variant"), str) else None,
        provenance=provenance if isinstance(provenance, dict) else {},
    )


def write(data: Dataset, name: str, overwrite: bool = False) -> None:
    """Write a dataset that `minari.load_dataset` loads, with goal observations and -1/0 rewards."""
    _check_id(name)
    import minari
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    folder = folder_of(name)
    with new_folder(folder, overwrite) as temporary:
        storage = MinariStorage.new(
            temporary / "data",
            observation_space=_observation_space(data),
            action_space=spaces.Box(data.action_low, data.action_high, dtype=np.float32),
            env_spec=_env_spec(data.task),
            jpeg_encoding=False,  # which would change the pixels
        )
        storage.update_episodes(EpisodeBuffer(**episode) for episode in _buffers(data))
        storage.update_metadata(
            {
                "dataset_id": _dataset_id(name),
                "minari_version": minari.__version__,
                "algorithm_name": data.variant or "unknown",
                OURS: {
                    "task": data.task,
                    "variant": data.variant,
                    "provenance": dict(data.provenance),
                },
            }
        )


def _check_id(name: str) -> None:
    if name.startswith(PREFIX) and not _ID.fullmatch(name.removeprefix(PREFIX)):
        raise MerlinError(f"{name}: is no Minari id; write it like {PREFIX}mine/reach-v0.")


def _storage(home: Path) -> Any:
    from minari.dataset.minari_storage import MinariStorage

    return MinariStorage.read(home)


def _episodes(raw: list[dict], phi: Sequence[int] | None, name: str) -> Iterator[Episode]:
    """Episodes as a dataset takes them, all of the same widths."""
    first: tuple | None = None
    for number, recorded in enumerate(raw):
        where = f"{name}: episode {number}"
        seen = recorded["observations"]
        parts = dict(seen) if isinstance(seen, dict) else {"observation": seen}
        parts["actions"] = recorded["actions"]
        for key, array in parts.items():
            if not isinstance(array, np.ndarray) or not is_numeric(array) or array.ndim < 2:
                raise MerlinError(f"{where} has {key} that are not rows of numbers; convert them.")
        if "observation" not in parts:
            keys = ", ".join(sorted(parts))
            raise MerlinError(f"{name}: its observations have {keys} but no observation.")
        shapes = tuple((key, array.shape[1:]) for key, array in sorted(parts.items()))
        first = first or shapes
        if shapes != first:
            raise MerlinError(f"{where} has other dimensions than episode 0; write it anew.")
        steps = len(parts.pop("actions"))
        if steps < 1 or any(len(array) != steps + 1 for array in parts.values()):
            counts = ", ".join(f"{len(array)} of {key}" for key, array in parts.items())
            raise MerlinError(f"{where} has {steps} actions but {counts}; it needs one more.")
        observations = float32_or_images(parts["observation"], 4)
        desired = parts.get("desired_goal")
        if "achieved_goal" in parts:
            refuse_phi(phi, name)
            achieved = float32(parts["achieved_goal"])
        else:
            achieved = goals_within(observations, phi, name)
        yield Episode(
            observations=observations,
            actions=float32(recorded["actions"]),
            achieved_goals=achieved,
            desired_goal=None
            if desired is None
            else constant_goals(float32(desired)[None], name, number)[0],
        )


def _bounds(space: Any, actions: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(space, spaces.Box) or actions.ndim != 2 or space.shape != actions.shape[1:]:
        raise MerlinError(f"{name}: its actions must be a Box of one dimension, not {space}.")
    low, high = action_range(actions)
    low = np.where(np.isfinite(space.low), space.low, low)
    return low, np.where(np.isfinite(space.high), space.high, high)


def _task_of(about: dict[str, Any]) -> str | None:
    """The task whose environment the data was recorded in, if it is one of ours."""
    try:
        env_id = json.loads(about["env_spec"])["id"]
    except (KeyError, TypeError, ValueError):
        return None
    return next((task.name for task in TASKS.values() if task.env_id == env_id), None)


def _env_spec(task: str | None) -> Any:
    if task is None:
        return None
    try:
        return gymnasium.spec(find(task).env_id)
    except (MerlinError, gymnasium.error.Error):
        return None  # an environment that is not on this machine


def _observation_space(data: Dataset) -> spaces.Dict:
    def box(array: np.ndarray) -> spaces.Box:
        if array.dtype == np.uint8:
            return spaces.Box(0, 255, array.shape[1:], np.uint8)
        return spaces.Box(-np.inf, np.inf, array.shape[1:], np.float32)

    parts: dict[str, spaces.Space] = {
        "observation": box(data.observations),
        "achieved_goal": box(data.achieved_goals),
    }
    if data.desired_goals is not None:
        parts["desired_goal"] = box(data.desired_goals)
    return spaces.Dict(parts)


def _buffers(data: Dataset) -> Iterator[dict[str, Any]]:
    tolerance = TASKS[data.task].tolerance if data.task in TASKS else None
    for number in range(len(data)):
        episode = data.episode(number)
        steps = len(episode.actions)
        observations = {
            "observation": np.asarray(episode.observations),
            "achieved_goal": np.asarray(episode.achieved_goals),
        }
        rewards = np.zeros(steps)
        if episode.desired_goal is not None:
            goal = np.asarray(episode.desired_goal)
            observations["desired_goal"] = np.repeat(goal[None], steps + 1, axis=0)
            if tolerance is not None:
                distance = np.linalg.norm(episode.achieved_goals[1:] - goal, axis=1)
                rewards = np.where(distance <= tolerance, 0.0, -1.0)
        last = np.arange(steps) == steps - 1
        yield {
            "observations": observations,
            "actions": np.asarray(episode.actions),
            "rewards": rewards,
            "terminations": np.zeros(steps, bool),
            "truncations": last,
        }


def _dataset_id(name: str) -> str:
    """The id under which Minari will know it; a folder anywhere is called after itself."""
    if name.startswith(PREFIX):
        return name.removeprefix(PREFIX)
    plain = re.sub(r"[^-\w]", "_", Path(name).name)
    return plain if _ID.fullmatch(plain) else f"{plain}-v0"
