"""Videos of a policy's episodes: GIF by Pillow, MP4 by ffmpeg.

A video shows exactly the episodes that an evaluation scores. They are played first, and their
actions are then replayed with rendering.
"""

import contextlib
import io
import itertools
import math
import subprocess
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from merlin.envs.batch import make_single
from merlin.envs.registry import Task, find
from merlin.envs.rollout import Rollout
from merlin.errors import MerlinError
from merlin.evaluation.evaluate import FINAL_SEED, play
from merlin.io import extras
from merlin.io.ffmpeg import ffmpeg
from merlin.io.files import new_file, write_bytes
from merlin.io.progress import Progress
from merlin.policies.base import Policy

extras.require("PIL", "plots", "a film")

from PIL import Image, ImageDraw, ImageFont  # noqa: E402

Frame = UInt8[np.ndarray, "height width 3"]

FPS = 10
MAX_EPISODES = 36
MOST_FRAMES = 200
BAR = 40
"""Height of the two lines of text above each picture."""
GAP = 4
INK, PAPER, GREEN, GREY = (34, 39, 46), (255, 255, 255), (46, 158, 91), (154, 163, 173)


def save_video(
    path: Path,
    policy: Policy,
    task: Task | str,
    *,
    episodes: int = 4,
    seed: int = FINAL_SEED,
    horizon: int | None = None,
    temperature: float | None = None,
    quiet: bool = True,
) -> Path:
    """Record episodes `seed`, `seed + 1`, ... side by side in a .gif or an .mp4."""
    check_video(path, episodes)
    task = find(task)
    check_drawing(task)
    played = play(
        policy, task, episodes=episodes, seed=seed, horizon=horizon, temperature=temperature
    )
    write_video(path, mosaic(film(task, played, seed, tile_size(episodes), quiet=quiet)))
    return path


def check_video(path: Path, episodes: int) -> None:
    """Raise an error for invalid video options, before anything is played."""
    if not 1 <= episodes <= MAX_EPISODES:
        raise MerlinError(f"video_episodes: {episodes} is not between 1 and {MAX_EPISODES}.")
    if path.suffix.lower() not in _WRITERS:
        raise MerlinError(f"video: {path.name!r} does not end in .mp4 or .gif.")
    if path.suffix.lower() == ".mp4":
        _ffmpeg(path)
    if path.is_dir():
        raise MerlinError(f"video: {path} is a folder; name a file.")


def tile_size(episodes: int) -> int:
    """Width of one episode's picture, such that all fit on a screen."""
    return {1: 480, 2: 360, 3: 320}.get(_columns(episodes), 240)


def check_drawing(task: Task) -> None:
    """Raise an error for an environment that does not render, before anything is played."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium warns about what is rejected below
            env = make_single(task, render_mode="rgb_array")
            env.reset(seed=0)
            frame = env.render()
            env.close()
    except MerlinError:
        raise
    except Exception as error:  # third-party environments may raise anything
        why = f"{type(error).__name__}: {error}".strip(": ")
        raise MerlinError(
            f"task {task.name}: cannot be rendered ({why}), so it has no video; its "
            "environment must support render_mode='rgb_array'."
        ) from None
    _picture(task, frame, 8)


def film(
    task: Task, played: Rollout, seed: int, size: int, *, quiet: bool = True
) -> list[list[Frame]]:
    """Frames of every episode, including the start, with annotations above.

    Long episodes are subsampled, so that a video has about 200 frames.
    """
    env = make_single(task, render_mode="rgb_array")
    steps = played.actions.shape[1]
    shown = range(0, steps + 1, max(1, steps // MOST_FRAMES))
    episodes = []
    try:
        for index, actions in enumerate(_counted(played.actions, quiet)):
            env.reset(seed=seed + index)
            length = int(played.lengths[index])
            done, picture, frames = 0, _picture(task, env.render(), size), []
            for step in shown:
                for action in actions[done : min(step, length)]:
                    env.step(action)
                if min(step, length) > done:
                    picture = _picture(task, env.render(), size)
                done = min(step, length)
                frames.append(np.asarray(_annotated(picture, played, index, step)))
            episodes.append(frames)
    finally:
        env.close()
    return episodes


def _counted(episodes: np.ndarray, quiet: bool) -> Iterator[np.ndarray]:
    with Progress("rendering", len(episodes), "episodes", quiet=quiet) as bar:
        for done, episode in enumerate(episodes, 1):
            yield episode
            bar.update(done, force=True)


def mosaic(episodes: Sequence[Sequence[Frame]]) -> Iterator[Frame]:
    """Arrange episodes side by side, as close to a square as possible."""
    columns = _columns(len(episodes))
    rows = -(-len(episodes) // columns)
    height, width = episodes[0][0].shape[:2]
    for together in zip(*episodes, strict=True):
        canvas = np.full(
            (rows * (height + GAP) + GAP, columns * (width + GAP) + GAP, 3), 255, np.uint8
        )
        for index, frame in enumerate(together):
            top = GAP + index // columns * (height + GAP)
            left = GAP + index % columns * (width + GAP)
            canvas[top : top + height, left : left + width] = frame
        yield canvas


def _columns(episodes: int) -> int:
    return math.ceil(math.sqrt(episodes))


def write_video(path: Path, frames: Iterator[Frame]) -> None:
    """Write frames in the format of the file's suffix; leave no file after a failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _WRITERS[path.suffix.lower()](path, frames)
    except OSError as error:
        raise MerlinError(f"video: {path} cannot be written ({error}).") from None


def _picture(task: Task, frame: Any, size: int) -> Image.Image:
    if frame is None:
        raise MerlinError(f"task {task.name}: cannot be rendered (its render returns no picture).")
    return Image.fromarray(np.asarray(frame, np.uint8)).resize((size, size), Image.Resampling.BOX)


def _annotated(picture: Image.Image, played: Rollout, index: int, step: int) -> Image.Image:
    """Add a bar with goal, step, distance and success above a picture, and a border."""
    size, steps = picture.width, played.actions.shape[1]
    # Success is unknown before the first step.
    success = step > 0 and bool(played.success[index, step - 1])
    goal = played.desired_goals[index]
    distance = np.linalg.norm(played.achieved_goals[index, step] - goal)
    numbers = ", ".join(f"{x:.2f}" for x in goal) if len(goal) <= 3 else f"{len(goal)} numbers"
    tile = Image.new("RGB", (size, size + BAR), PAPER)
    tile.paste(picture, (0, BAR))
    draw = ImageDraw.Draw(tile)
    font = ImageFont.load_default(13)
    draw.text((4, 3), f"step {step}/{steps}", INK, font)
    draw.text((4, 20), f"goal {numbers}", INK, font)
    status, colour = ("reached", GREEN) if success else (f"{distance:.3f} away", GREY)
    draw.text((size - 4, 3), status, colour if success else INK, font, anchor="ra")
    draw.rectangle((0, BAR, size - 1, size + BAR - 1), outline=colour, width=4 if success else 1)
    return tile


def _write_gif(path: Path, frames: Iterator[Frame]) -> None:
    pictures = [Image.fromarray(frame).quantize(128) for frame in frames]
    # Hold the last frame, so that the outcome is visible.
    durations = [1000 // FPS] * (len(pictures) - 1) + [1500]
    content = io.BytesIO()
    pictures[0].save(
        content,
        "GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=durations,
        loop=0,
        optimize=False,
    )
    write_bytes(path, content.getvalue())


def _write_mp4(path: Path, frames: Iterator[Frame]) -> None:
    # Not imageio-ffmpeg's process: it forks, which is unsafe with JAX's threads.
    first = next(frames)
    height, width = first.shape[:2]
    command = [
        *(_ffmpeg(path), "-y", "-loglevel", "error"),
        *("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(FPS)),
        *("-i", "-", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "20"),
        *("-movflags", "+faststart", "-f", "mp4"),
    ]
    with new_file(path) as (_, partial):
        command.append(str(partial))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            with contextlib.suppress(BrokenPipeError):  # ffmpeg's own message is raised below
                for frame in itertools.chain([first], frames):
                    process.stdin.write(frame.tobytes())
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            complaint = process.stderr.read().decode(errors="replace").strip()
        if process.returncode:
            raise OSError(complaint.splitlines()[-1] if complaint else "ffmpeg failed")


def _ffmpeg(path: Path) -> str:
    """The program that encodes MP4."""
    return ffmpeg(f"video: {path.name}", "write a .gif")


_WRITERS: dict[str, Callable[[Path, Iterator[Frame]], None]] = {
    ".gif": _write_gif,
    ".mp4": _write_mp4,
}
