"""Real videos for LeRobot logs, written by ffmpeg."""

import subprocess

import imageio_ffmpeg
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from helpers.log_data import LENGTHS

CAMERA = "observation.images.top"
WANTED = {"state": CAMERA, "phi": "observation.state"}
ROWS = sum(LENGTHS)
BEFORE = 3
"""Frames in the file of v3 that belong to no episode."""


def write_mp4(path, greys, size="64x48"):
    """A video whose frames are each of one grey."""
    width, height = map(int, size.split("x"))
    frames = np.broadcast_to(
        np.asarray(greys, np.uint8)[:, None, None, None], (len(greys), height, width, 3)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [
        *(imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", "-f", "rawvideo"),
        *("-pix_fmt", "rgb24", "-s", size, "-r", "10", "-i", "-"),
        *("-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "5", str(path)),
    ]
    subprocess.run(command, input=np.ascontiguousarray(frames).tobytes(), check=True)


def film(path, form):
    """Give a log its videos; the grey of a frame is 10 times the number of its row."""
    greys = 10 * np.arange(ROWS)
    parts = np.split(greys, np.cumsum(LENGTHS)[:-1])
    if form == "lerobot-v21":
        for number, part in enumerate(parts):
            file = path / "videos" / "chunk-000" / CAMERA / f"episode_{number:06d}.mp4"
            write_mp4(file, part)
        return
    # The first two episodes in one file, the third in another.
    files = [np.concatenate([[255] * BEFORE, *parts[:2]]), parts[2]]
    for number, part in enumerate(files):
        write_mp4(path / "videos" / CAMERA / "chunk-000" / f"file-{number:03d}.mp4", part)
    write_episodes(path, [0, 0, 1], [BEFORE / 10, (BEFORE + LENGTHS[0]) / 10, 0.0])


def write_episodes(path, files, begins):
    folder = path / "meta" / "episodes" / "chunk-000"
    folder.mkdir(parents=True, exist_ok=True)
    table = {
        "episode_index": np.arange(len(files)),
        f"videos/{CAMERA}/chunk_index": np.zeros(len(files), int),
        f"videos/{CAMERA}/file_index": np.array(files),
        f"videos/{CAMERA}/from_timestamp": np.array(begins),
        "tasks": [["Reach."]] * len(files),
    }
    pq.write_table(pa.table(table), folder / "file-000.parquet")
