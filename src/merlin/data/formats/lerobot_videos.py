"""The location of an episode's frames: in LeRobot v2 a file, in v3 a part of a file."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from merlin.data import parquet
from merlin.data.timestamps import as_rate
from merlin.data.video import Clip
from merlin.errors import MerlinError

CHUNK = 1000
"""Episodes per folder in v2, unless meta/info.json states another number."""
MOST_SECONDS = 1e7
_KEY = re.compile(r"\w[\w.-]*")


def cameras(features: dict[str, Any], kinds: Sequence[str] = ("video",)) -> list[str]:
    """The features that are videos, or of other `kinds`."""
    return [
        key
        for key, feature in features.items()
        if isinstance(feature, dict) and feature.get("dtype") in kinds and _KEY.fullmatch(key)
    ]


def clips(
    folder: Path, info: dict[str, Any], key: str, episodes: Sequence[int], lengths: Sequence[int]
) -> list[Clip]:
    """The frames of a camera, for each episode."""
    if not str(info["codebase_version"]).startswith("v3"):
        size = info.get("chunks_size", CHUNK)
        size = size if isinstance(size, int) and size > 0 else CHUNK
        files = [
            folder / f"videos/chunk-{number // size:03d}/{key}/episode_{number:06d}.mp4"
            for number in episodes
        ]
        return [Clip(file, 0, count) for file, count in zip(files, lengths, strict=True)]
    return _parts(folder, info, key, episodes, lengths)


def _parts(
    folder: Path, info: dict[str, Any], key: str, episodes: Sequence[int], lengths: Sequence[int]
) -> list[Clip]:
    """The clips of v3: meta/episodes has the file of each episode and the second it begins at."""
    if (rate := as_rate(info.get("fps"))) is None:
        raise MerlinError(f"{folder}/meta/info.json: fps is not a rate in Hz; correct it.")
    about = folder / "meta" / "episodes"
    files = sorted(about.glob("chunk-*/*.parquet"))
    names = ["episode_index", *(f"videos/{key}/{x}" for x in ("chunk_index", "file_index"))]
    names.append(f"videos/{key}/from_timestamp")
    told = parquet.Table(files)
    numbers = [name for name, column in told.columns.items() if column.shape == ()]
    if missing := [name for name in names if name not in numbers]:
        raise MerlinError(
            f"{about}: does not tell where the videos of {key} are (no column {missing[0]}); copy "
            "the log again, or leave the camera out of `state`."
        )
    columns = told.read(names)
    table = np.stack([np.asarray(columns[name], np.float64) for name in names], axis=1)
    bad = ~np.isfinite(table).all(1) | (table < 0).any(1) | (table > MOST_SECONDS).any(1)
    if bad.any():
        raise MerlinError(f"{about}: row {bad.argmax()} has an impossible number; copy it again.")
    row_of = {int(number): row for row, number in enumerate(table[:, 0])}
    found = []
    for number, count in zip(episodes, lengths, strict=True):
        if number not in row_of:
            raise MerlinError(f"{about}: has no episode {number}; copy the log again.")
        _, chunk, file, begin = table[row_of[number]]
        place = folder / f"videos/{key}/chunk-{int(chunk):03d}/file-{int(file):03d}.mp4"
        found.append(Clip(place, round(begin * rate), count))
    return found
