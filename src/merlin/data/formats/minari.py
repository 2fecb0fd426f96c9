"""Minari datasets, from the local store as `minari:ID` or from any folder.

Goal observations (dicts of observation, achieved_goal and desired_goal) are read as they are. Plain
observations are their own goals, or phi gives the columns that are. Minari is imported on first
use.
"""

import errno
import math
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from merlin.data.archives import check_unpacked
from merlin.data.conversion import (
    achieved_goals,
    action_range,
    constant_goals,
    float32,
    float32_or_images,
    reading,
)
from merlin.data.dataset import ENVIRONMENT, SUCCESS, Dataset, Episode, join
from merlin.data.hdf5 import check_stored, inside
from merlin.envs.registry import OGBENCH, TASKS, own
from merlin.errors import MerlinError
from merlin.io.extras import require
from merlin.io.files import (
    SEAL,
    check_regular,
    new_folder,
    parse_json,
    read_json,
    sealed,
    sha256,
)

PREFIX = "minari:"
METADATA, HDF5 = "metadata.json", "main_data.hdf5"
KEYS = ("observation", "achieved_goal", "desired_goal")
OURS = "merlin"
"""Key in Minari's metadata for our own fields."""
CHECKSUM = "sha256"
CHECKED = ("observation_space", "action_space", "total_episodes", "total_steps", "data_format")
BYTES_PER_EPISODE = 16_000
"""Upper bound on HDF5's overhead per episode."""
_ID = re.compile(r"([-\w]+/)*[-\w]+-v\d+")
_ENV_ID = re.compile(r"[\w./-]{1,200}", re.ASCII)
_PACKAGE = re.compile(r"(?!__main__)[A-Za-z_]\w*(?=[.:])", re.ASCII)


def store() -> Path:
    """Where Minari stores its datasets on this machine."""
    configured = os.environ.get("MINARI_DATASETS_PATH")
    return Path(configured) if configured else Path.home() / ".minari" / "datasets"


def full_name(name: str) -> str:
    """Prefix a bare id of a dataset in the store with `minari:`; return other names unchanged."""
    in_store = not Path(name).exists() and _ID.fullmatch(name) and recognises(PREFIX + name)
    return PREFIX + name if in_store else name


def folder_of(name: str) -> Path:
    """The folder of a dataset given as `minari:ID` or as a path."""
    if name.startswith(PREFIX):
        return store() / name.removeprefix(PREFIX)
    return Path(name)


def recognises(name: str) -> bool:
    """Whether there is a Minari dataset at a path or id."""
    folder = folder_of(name)
    return any((home / METADATA).is_file() for home in (folder / "data", folder))


def _check_installed() -> None:
    for module in ("minari", "h5py"):
        require(module, "formats", "Minari's format")


def read(name: str, phi: Sequence[int] | None = None) -> Dataset:
    """Read a Minari dataset: the task from its environment, the bounds from its action space."""
    _check_id(name)
    _check_installed()
    folder = folder_of(name)
    if not folder.is_dir():
        raise MerlinError(f"{name}: no such dataset in {store()}; see `minari list local`.")
    home = folder / "data" if (folder / "data").is_dir() else folder
    about = read_json(home / METADATA, "a Minari dataset")
    _check_metadata(about, home / METADATA)
    kept = about.get(OURS)
    with reading(name, "a Minari dataset"):
        _verify(about, home / HDF5)
        kinds = _kinds(about, name)
        recorded = _recorded(home / HDF5, about, kinds)
        episodes = [_episode(parts, phi, name, number) for number, parts in enumerate(recorded)]
        if not isinstance(kept, dict):
            kept = _origin(about, home / HDF5)
    action_space = kinds["actions"]
    actions = np.concatenate([episode.actions for episode in episodes])
    low, high = action_range(actions)
    provenance = kept.get("provenance")
    return join(
        episodes,
        action_low=np.where(np.isfinite(action_space.low), action_space.low, low),
        action_high=np.where(np.isfinite(action_space.high), action_space.high, high),
        task=kept["task"] if isinstance(kept.get("task"), str) else None,
        variant=kept["variant"] if isinstance(kept.get("variant"), str) else None,
        provenance=provenance if isinstance(provenance, dict) else {},
    )


def write(data: Dataset, name: str, overwrite: bool = False) -> None:
    """Write a dataset for `minari.load_dataset`, with goal observations and -1/0 rewards."""
    _check_id(name)
    _check_installed()
    import minari
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    folder = folder_of(name).absolute()  # Minari does not support relative paths
    ours = {"task": data.task, "variant": data.variant, "provenance": dict(data.provenance)}
    if folder.exists() and not recognises(name):
        raise MerlinError(f"{folder}: is no Minari dataset and is not overwritten; move it away.")
    with new_folder(folder, overwrite) as temporary:
        _check_room(data, temporary)
        storage = MinariStorage.new(
            temporary / "data",
            observation_space=_observation_space(data),
            action_space=spaces.Box(data.action_low, data.action_high, dtype=np.float32),
            env_spec=_env_spec(data.task),
            jpeg_encoding=False,  # it would change the pixels
        )
        storage.update_episodes(EpisodeBuffer(**episode) for episode in _buffers(data))
        storage.update_metadata(
            {
                "dataset_id": _dataset_id(name),
                "minari_version": minari.__version__,
                "algorithm_name": data.variant or "unknown",
                OURS: ours,
            }
        )
        about = read_json(temporary / "data" / METADATA, "a Minari dataset")
        checksum = _checksum(about, temporary / "data" / HDF5)
        storage.update_metadata({OURS: {**ours, CHECKSUM: checksum}})


def _check_room(data: Dataset, folder: Path) -> None:
    """Raise an error if the disk is too full: HDF5 would crash the process, uncatchably."""
    rows = data.observations.dtype.itemsize * math.prod(data.observations.shape)
    goals = 2 * data.achieved_goals.nbytes
    needed = rows + goals + data.actions.nbytes + BYTES_PER_EPISODE * len(data)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(errno.ENOSPC, f"it needs {needed} bytes and {free} are free")


def _verify(about: dict[str, Any], file: Path) -> None:
    """Compare a dataset written by us with its checksum."""
    kept = about.get(OURS)
    if isinstance(kept, dict) and CHECKSUM in kept and kept[CHECKSUM] != _checksum(about, file):
        raise MerlinError(
            f"{file.parent}: its checksum is wrong; copy the dataset again, or delete "
            f"{CHECKSUM!r} from {METADATA} if it was changed on purpose."
        )


def _checksum(about: dict[str, Any], file: Path) -> str:
    """A checksum of the array file and the metadata used with it."""
    ours = {key: value for key, value in about[OURS].items() if key != CHECKSUM}
    spaces_and_sizes = {key: about[key] for key in CHECKED}
    return sealed({**spaces_and_sizes, OURS: ours, "file": sha256(file)})[SEAL]


def _check_id(name: str) -> None:
    if name.startswith(PREFIX) and not _ID.fullmatch(name.removeprefix(PREFIX)):
        raise MerlinError(f"{name}: is not a Minari id; write it like {PREFIX}mine/reach-v0.")


def _check_metadata(about: dict[str, Any], where: Path) -> None:
    # If its spaces are missing, Minari instantiates the environment named in the file, which can
    # call arbitrary functions.
    for key in ("observation_space", "action_space"):
        if not isinstance(about.get(key), str):
            raise MerlinError(f"{where}: has no {key}; write it again with Minari.")
    for key in ("total_episodes", "total_steps"):
        if type(about.get(key)) is not int or about[key] < 1:
            raise MerlinError(f"{where}: {key} is {about.get(key)!r}; collect at least one.")
    if about.get("data_format") != "hdf5":
        raise MerlinError(
            f"{where}: data_format is {about.get('data_format')!r}; write it with Minari as hdf5."
        )


def _kinds(about: dict[str, Any], name: str) -> dict[str, spaces.Box]:
    """The space of each array of an episode, keyed by its path in the file."""
    from minari.serialization import deserialize_space

    seen = deserialize_space(about["observation_space"])
    kinds = {"actions": deserialize_space(about["action_space"])}
    if isinstance(seen, spaces.Dict):
        kinds |= {f"observations/{key}": seen[key] for key in KEYS if key in seen.spaces}
    else:
        kinds["observations"] = seen
    for path, space in kinds.items():
        if not isinstance(space, spaces.Box):
            raise MerlinError(f"{name}: {path} are {space}, not a Box of numbers; convert them.")
    if not kinds.keys() & {"observations", "observations/observation"}:
        raise MerlinError(f"{name}: its observations have no key 'observation'; add it.")
    return kinds


def _recorded(
    file: Path, about: dict[str, Any], kinds: dict[str, spaces.Box]
) -> Iterator[dict[str, np.ndarray]]:
    """The arrays of each episode; nothing is read before its size has been checked."""
    import h5py

    stored, unpacked = check_regular(file), 0
    with h5py.File(file, "r") as opened:
        for number in range(about["total_episodes"]):
            nodes = {path: inside(opened, f"episode_{number}/{path}") for path in kinds}
            for path, node in nodes.items():
                _check_size(node, kinds[path], about["total_steps"] + 1)
                unpacked += node.nbytes
            check_unpacked(file, unpacked, stored)
            yield {path.rpartition("/")[2]: node[()] for path, node in nodes.items()}


def _successes(file: Path, about: dict[str, Any]) -> dict[str, Any] | None:
    """Fractions of episodes that reached their goal, from infos or sparse rewards, if available."""
    import h5py

    with h5py.File(file, "r") as opened:
        for key in ("infos/is_success", "infos/success", "rewards"):
            nodes = [_find(opened, f"episode_{n}/{key}") for n in range(about["total_episodes"])]
            if not all(_is_column(node, about["total_steps"] + 1) for node in nodes):
                continue
            columns = [node[()] for node in nodes]
            worth = _reward_of_success(columns) if key == "rewards" else 1
            if worth is not None:
                return {
                    "ever": float(np.mean([(column == worth).any() for column in columns])),
                    "at_the_end": float(np.mean([column[-1] == worth for column in columns])),
                    "told_by": f"rewards of {worth}" if key == "rewards" else key,
                }
    return None


def _find(opened: Any, path: str) -> Any:
    """The array at a path that is stored in the file itself, or None."""
    try:
        node = inside(opened, path)
        check_stored(node)
    except (AttributeError, ValueError, MerlinError):
        return None
    return node


def _is_column(node: Any, most_rows: int) -> bool:
    """Whether an entry of the file holds one number per step, and no more numbers than steps."""
    import h5py

    if not isinstance(node, h5py.Dataset) or len(node.shape) != 1:
        return False
    return node.dtype.kind in "biuf" and 0 < node.shape[0] <= most_rows


def _reward_of_success(rewards: Sequence[np.ndarray]) -> int | None:
    """The reward at the goal, if the rewards are exactly -1 and 0, or 0 and 1."""
    return {(-1, 0): 0, (0, 1): 1}.get(tuple(np.unique(np.concatenate(rewards)).tolist()))


def _check_size(node: Any, space: spaces.Box, most_rows: int) -> None:
    """Raise an error for arrays that exceed memory or do not match their space."""
    rows, shape = node.shape[0], node.shape[1:]
    if shape != space.shape:
        hint = "; images are read if written with jpeg_encoding=False" * (len(space.shape) == 3)
        raise ValueError(f"{node.name} has rows of shape {shape}, not {space.shape}{hint}")
    if node.dtype.kind not in "biuf" or rows > most_rows:
        raise ValueError(f"{node.name} has {rows} rows of {node.dtype}")
    check_stored(node)


def _episode(
    parts: dict[str, np.ndarray], phi: Sequence[int] | None, name: str, number: int
) -> Episode:
    """Convert one episode for a dataset."""
    actions = float32(parts.pop("actions"))
    if not len(actions) or any(len(array) != len(actions) + 1 for array in parts.values()):
        counts = ", ".join(f"{len(array)} of {key}" for key, array in parts.items())
        raise MerlinError(
            f"{name}: episode {number} has {len(actions)} actions but {counts}; give every "
            "episode one state more than actions."
        )
    seen = parts["observations"] if "observations" in parts else parts["observation"]
    observations = float32_or_images(seen)
    achieved = achieved_goals(observations, parts.get("achieved_goal"), phi, name)
    goal = None
    if "desired_goal" in parts:
        goal = constant_goals(float32(parts["desired_goal"])[None], name, number)[0]
    return Episode(observations, actions, achieved, goal)


def _origin(about: dict[str, Any], file: Path) -> dict[str, Any]:
    """The origin of external data: our task, or its environment and successes."""
    environment = _environment(about)
    env_id = (environment or "").rpartition(":")[2]
    known = (t.name for t in (*TASKS.values(), *OGBENCH.values()) if t.env_id == env_id)
    if task := next(known, None):
        return {"task": task}
    told = {ENVIRONMENT: environment, SUCCESS: _successes(file, about)}
    return {"provenance": {key: value for key, value in told.items() if value is not None}}


def _environment(about: dict[str, Any]) -> str | None:
    """The recorded environment, as `module:EnvId` if its entry point names a module.

    The name is only text for the user; nothing named in a file is imported.
    """
    try:
        spec = parse_json(about["env_spec"])
        env_id, entry_point = spec["id"], spec.get("entry_point")
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    if not isinstance(env_id, str) or not _ENV_ID.fullmatch(env_id):
        return None
    package = _PACKAGE.match(entry_point) if isinstance(entry_point, str) else None
    return env_id if package is None else f"{package[0]}:{env_id}"


def _env_spec(task: str | None) -> Any:
    known = own(task)
    return gymnasium.spec(known.env_id) if known else None


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
    known = own(data.task)
    tolerance = known.tolerance if known else None
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
    """The id of a dataset in Minari; a folder outside the store has its own name as id."""
    if name.startswith(PREFIX):
        return name.removeprefix(PREFIX)
    plain = re.sub(r"[^-\w]", "_", Path(name).name)
    return plain if _ID.fullmatch(plain) else f"{plain}-v0"
