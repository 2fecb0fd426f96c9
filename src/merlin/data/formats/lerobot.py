"""LeRobot logs, v2.1 and v3: parquet files under data/, described by meta/info.json.

Both versions are read in the same way: every file under data/ in the order of its name, with
episodes given by the column episode_index. A video is decoded only if it is named as the state.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from merlin.data import parquet
from merlin.data.dataset import Dataset
from merlin.data.formats import lerobot_videos
from merlin.data.logs import Column, Fields, Log, Rows, episode_ends, regular_file, to_dataset
from merlin.data.timestamps import as_rate
from merlin.data.video import SIZE, check_size, decode
from merlin.errors import MerlinError
from merlin.io.files import read_json

INFO = Path("meta") / "info.json"
VERSIONS = ("v2.0", "v2.1", "v3.0")
MOST_TASKS, MOST_TASK_BYTES = 20, 1 << 20


def recognises(folder: Path) -> bool:
    """Whether there is a LeRobot log at a path."""
    return (folder / INFO).is_file()


def read(name: str, fields: Fields) -> Dataset:
    """Read a log. State and action default to observation.state and action."""
    folder = Path(name)
    info = read_json(folder / INFO, "a LeRobot log")
    version = info.get("codebase_version")
    if version not in VERSIONS:
        raise MerlinError(
            f"{folder / INFO}: codebase_version is {version!r}, not {', '.join(VERSIONS)}; convert "
            "it with LeRobot's own scripts."
        )
    files = sorted((folder / "data").glob("chunk-*/*.parquet"))
    if not files:
        raise MerlinError(f"{folder / 'data'}: has no parquet files; copy the log again.")
    features = info.get("features")
    features = features if isinstance(features, dict) else {}
    table = parquet.Table(files)
    columns = {
        key: Column(column.shape, _names(features.get(key), column))
        for key, column in table.columns.items()
    }
    by = fields.episode or "episode_index"
    if by not in columns:
        raise MerlinError(f"{files[0]}: has no column {by}; name it with `episode`.")
    size = SIZE if fields.image_size is None else check_size(fields.image_size)
    videos = dict.fromkeys(lerobot_videos.cameras(features), Column((size, size, 3)))

    def read_columns(names: Sequence[str]) -> Rows:
        found = table.read([*(key for key in names if key not in (by, *videos)), by])
        ends = episode_ends(found[by], name)
        _check_totals(folder, info, ends)
        numbers, lengths = found[by][ends - 1].astype(int).tolist(), np.diff(ends, prepend=0)
        for key in (key for key in names if key in videos):
            clips = lerobot_videos.clips(folder, info, key, numbers, lengths.tolist())
            found[key] = decode(clips, size, name)
        return Rows(found, ends)

    log = Log(
        where=name,
        format=f"LeRobot {version}",
        columns={**columns, **videos},
        read=read_columns,
        about=_about(folder, info, features, fields.state),
    )
    return to_dataset(log, fields)


def _check_totals(folder: Path, info: dict[str, Any], ends: np.ndarray) -> None:
    for key, found in (("total_episodes", len(ends)), ("total_frames", int(ends[-1]))):
        if info.get(key) != found:
            raise MerlinError(
                f"{folder / INFO}: {key} is {info.get(key)!r}, but the files hold {found}; copy "
                "the log again, or correct it."
            )


def _names(feature: Any, column: Column) -> tuple[str, ...]:
    """The names of a feature's dimensions: a list, a nested list, or a dict with one list."""
    names = feature.get("names") if isinstance(feature, dict) else None
    while isinstance(names, dict | list) and len(names) == 1 and column.width != 1:
        names = next(iter(names.values())) if isinstance(names, dict) else names[0]
    if not isinstance(names, list) or len(names) != column.width:
        return ()
    return tuple(names) if all(isinstance(n, str) and n.isprintable() for n in names) else ()


def _about(
    folder: Path, info: dict[str, Any], features: dict[str, Any], state: str | None
) -> dict[str, Any]:
    """Other information in the log: rate, robot, task descriptions, and cameras (not read)."""
    about: dict[str, Any] = {}
    if (rate := as_rate(info.get("fps"))) is not None:
        about["rate"] = rate
    if isinstance(info.get("robot_type"), str):
        about["robot"] = info["robot_type"][:80]
    if tasks := _tasks(folder):
        about["tasks"] = tasks
    found = lerobot_videos.cameras(features, ("video", "image"))
    cameras = [key.rpartition(".")[2] for key in found if key != state]
    if cameras:
        about["cameras_not_read"] = cameras
    return about


def _tasks(folder: Path) -> list[str]:
    """The task descriptions in a v2 log; v3 stores them as a pandas index."""
    file = folder / "meta" / "tasks.jsonl"
    if not file.exists():
        return []
    with regular_file(file).open("rb") as opened:
        content = opened.read(MOST_TASK_BYTES)
    found = []
    for line in content.splitlines()[:MOST_TASKS]:
        try:
            task = json.loads(line).get("task")
        except (ValueError, AttributeError, RecursionError):
            continue
        found += [task[:200]] if isinstance(task, str) else []
    return found
