"""Frames of video files, decoded by ffmpeg and scaled to a square."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from merlin.data.logs import regular_file
from merlin.errors import MerlinError
from merlin.io.ffmpeg import ffmpeg

SIZE, SMALLEST, LARGEST = 64, 8, 512
"""Height and width of a decoded frame: the default and the limits."""
MOST_PIXELS = 1 << 25
"""ffmpeg refuses frames with more pixels before it allocates them."""
SHARE = 0.5
"""Decoded frames may take this share of the machine's memory."""


@dataclass(frozen=True)
class Clip:
    """The frames of one episode: a part of a video file."""

    file: Path
    first: int
    length: int


def check_size(size: int) -> int:
    """A height and width that frames can be scaled to."""
    if not SMALLEST <= size <= LARGEST:
        raise MerlinError(f"image_size {size}: is not between {SMALLEST} and {LARGEST} pixels.")
    return size


def decode(
    clips: Sequence[Clip], size: int, where: str
) -> UInt8[np.ndarray, "frames size size channels"]:
    """The frames of all clips, back to back."""
    for clip in clips:
        if not clip.file.exists():
            raise MerlinError(
                f"{clip.file}: is missing; copy the log with its videos, or name another `state`."
            )
        regular_file(clip.file)
    rows = np.cumsum([0, *(clip.length for clip in clips)])
    needed = int(rows[-1]) * size * size * 3
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > SHARE * memory:
        raise MerlinError(
            f"{where}: {rows[-1]} frames of {size}x{size} pixels take {needed / 1e9:.1f} GB, more "
            "than half of the memory; pass a smaller `image_size`, or split the log."
        )
    found = np.empty((int(rows[-1]), size, size, 3), np.uint8)
    by_file: dict[Path, list[int]] = {}
    for number, clip in enumerate(clips):
        by_file.setdefault(clip.file, []).append(number)
    for file, numbers in by_file.items():
        places = [
            (clips[n].first + k, rows[n] + k) for n in numbers for k in range(clips[n].length)
        ]
        _decode_file(file, dict(places), len(places), found)
    return found


def _decode_file(file: Path, row_of: dict[int, int], count: int, found: np.ndarray) -> None:
    """Copy the frames of one file to their rows."""
    if len(row_of) != count:
        raise MerlinError(f"{file}: two episodes claim the same frames; copy the log again.")
    last = max(row_of)
    seen = 0
    with contextlib.closing(_frames(file, found.shape[1])) as frames:
        for number, frame in enumerate(frames):
            seen = number + 1
            if number in row_of:
                found[row_of[number]] = frame
            if number == last:
                return
    raise MerlinError(
        f"{file}: has {seen} frames, but its episodes need {last + 1}; copy the log again."
    )


def _frames(
    file: Path, size: int
) -> Generator[UInt8[np.ndarray, "size size channels"], None, None]:
    """Yield frames in order. Only the file itself is read: no playlist, no network."""
    program = ffmpeg(f"{file}:", "name a `state` that is not a video")
    command = [
        *(program, "-nostdin", "-loglevel", "error", "-xerror", "-threads", "1"),
        *("-max_pixels", str(MOST_PIXELS), "-protocol_whitelist", "file", "-f", "mov"),
        *("-i", f"file:{file.resolve()}", "-map", "0:v:0", "-fps_mode", "passthrough"),
        *("-vf", f"scale={size}:{size}:flags=area", "-pix_fmt", "rgb24", "-f", "rawvideo", "-"),
    ]
    length = size * size * 3
    with (
        tempfile.TemporaryFile() as complaints,  # a pipe that nobody reads could fill up
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints) as process,
    ):
        assert process.stdout is not None
        try:
            while len(content := process.stdout.read(length)) == length:
                yield np.frombuffer(content, np.uint8).reshape(size, size, 3)
            failed = process.wait() != 0
        finally:
            process.kill()  # where the caller has seen enough
        if failed:
            complaints.seek(0)
            words = complaints.read(4096).decode(errors="replace").partition("\n")[0].strip()
            raise MerlinError(
                f"{file}: cannot be decoded ({words[:120]}); copy the log again, or name another "
                "`state`."
            )
