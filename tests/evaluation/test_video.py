"""Films: their frames, what is written on them, and that nothing is left of one that failed."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import imageio_ffmpeg
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from merlin.envs.registry import find
from merlin.errors import MerlinError
from merlin.evaluation.evaluate import FINAL_SEED, play
from merlin.evaluation.video import (
    BAR,
    GAP,
    check_drawing,
    check_video,
    film,
    mosaic,
    save_video,
    tile_size,
    write_video,
)


def straight(observation, goal, horizon=None, key=None):
    """At full speed towards the goal, where the first two numbers are a place; else it moves."""
    return jnp.clip(10.0 * (goal - observation[:2]), -1.0, 1.0)


def read_gif(path):
    with Image.open(path) as picture:
        frames = []
        for index in range(picture.n_frames):
            picture.seek(index)
            frames.append(np.asarray(picture.convert("RGB")))
    return np.stack(frames)


def read_mp4(path):
    program = imageio_ffmpeg.get_ffmpeg_exe()
    command = [program, "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert b"h264" in done.stderr
    width, height = map(int, re.search(rb", (\d+)x(\d+)", done.stderr).groups())
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3)


def test_a_film_has_a_frame_for_every_state(tmp_path):
    path = save_video(tmp_path / "film.mp4", straight, "Reacher", episodes=1)
    frames = read_mp4(path)
    size = tile_size(1)
    assert frames.shape == (51, size + BAR + 2 * GAP, size + 2 * GAP, 3)
    assert frames.std() > 10
    # Something moves below the writing.
    picture = frames[:, GAP + BAR : GAP + BAR + size, GAP : GAP + size].astype(int)
    assert np.abs(picture[3] - picture[0]).max() > 60
    assert list(tmp_path.iterdir()) == [path]


def test_films_show_the_episodes_that_are_scored_and_say_when_the_goal_is_reached():
    task = find("PointReach")
    played = play(straight, task, episodes=2)
    films = film(task, played, FINAL_SEED, 240)
    green = np.array([46, 158, 91])
    for frames, success in zip(films, played.success, strict=True):
        assert not success.all()
        # The rim of the picture is green from the step on at which the goal is reached.
        rims = [bool((frame[BAR + 2, 2] == green).all()) for frame in frames]
        assert rims == [False, *success.tolist()]
    # The other numbers change with the step.
    bars = np.stack([frame[:BAR] for frame in films[0]])
    assert (bars[1:] != bars[:-1]).any(axis=(1, 2, 3)).all()


def test_the_mosaic_puts_every_episode_in_its_place():
    films = [[np.full((6, 4, 3), 10 * (e + 1) + t, np.uint8) for t in range(2)] for e in range(3)]
    first, second = mosaic(films)
    assert first.shape == (2 * (6 + GAP) + GAP, 2 * (4 + GAP) + GAP, 3)
    assert first[GAP, GAP, 0] == 10
    assert first[GAP, 2 * GAP + 4, 0] == 20
    assert second[2 * GAP + 6, GAP, 0] == 31
    assert second[2 * GAP + 6, 2 * GAP + 4, 0] == 255


@pytest.mark.parametrize("name", ["film.avi", "film", "gif"])
def test_an_ending_that_no_film_has_is_refused(name, tmp_path):
    with pytest.raises(MerlinError, match=r"does not end in \.mp4 or \.gif"):
        check_video(tmp_path / name, 1)


@pytest.mark.parametrize("episodes", [0, -1, 37])
def test_a_number_of_episodes_that_no_film_shows_is_refused(episodes, tmp_path):
    with pytest.raises(MerlinError, match=f"video_episodes: {episodes} is not between"):
        check_video(tmp_path / "film.gif", episodes)


def test_without_ffmpeg_the_way_out_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(MerlinError, match=r"merlin-rl\[video\].*or write a \.gif"):
        check_video(tmp_path / "film.mp4", 1)
    check_video(tmp_path / "film.gif", 1)


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_a_film_that_fails_half_way_leaves_nothing(suffix, tmp_path):
    def frames():
        yield np.zeros((32, 32, 3), np.uint8)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_video(tmp_path / f"film{suffix}", frames())
    assert not list(tmp_path.iterdir())


def test_what_ffmpeg_says_is_passed_on(tmp_path):
    odd = np.zeros((33, 32, 3), np.uint8)  # this encoding knows even sizes only
    with pytest.raises(MerlinError, match=r"film\.mp4 cannot be written"):
        write_video(tmp_path / "film.mp4", iter([odd] * 3))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_said_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MerlinError, match="cannot be written"):
        write_video(tmp_path / "file" / "film.gif", iter([np.zeros((8, 8, 3), np.uint8)]))


def test_a_task_that_gives_no_pictures_is_refused(monkeypatch):
    task = find("PointReach")
    blind = SimpleNamespace(reset=lambda seed: None, render=lambda: None, close=lambda: None)
    monkeypatch.setattr("merlin.evaluation.video.make_single", lambda task, render_mode: blind)
    with pytest.raises(MerlinError, match="PointReach: cannot be rendered"):
        film(task, play(straight, task, episodes=1), FINAL_SEED, 60)
    with pytest.raises(MerlinError, match="PointReach: cannot be rendered"):
        check_drawing(task)


def test_the_command(run_folder, tmp_path, call, capsys):
    path = tmp_path / "films" / "point.gif"
    printed = call(
        "eval", run_folder, "--episodes", 5, "--video", path, "--video-episodes", 2, "--json"
    )
    assert json.loads(printed.out.splitlines()[-1])["video"] == str(path)
    size, frames = tile_size(2), read_gif(path)
    assert frames.shape == (51, size + BAR + 2 * GAP, 2 * size + 3 * GAP, 3)
    # Both agents move below the writing.
    changed = (frames[0] != frames[5])[GAP + BAR :].any(axis=(0, 2))
    assert changed[:size].any()
    assert changed[size + 2 * GAP :].any()
    for wrong in (["--video", tmp_path / "a.avi"], ["--video", path, "--horizon", 1, 5]):
        with pytest.raises(SystemExit) as stop:
            call("eval", run_folder, *wrong)
        assert stop.value.code == 2
        message = capsys.readouterr().err
        assert message.startswith("merlin: --video")
        assert message.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["films"]


def test_long_episodes_are_shown_in_some_steps():
    """Every second of 400 steps; an episode that ends after the third stands still from there."""
    task = replace(find("Reacher"), episode_steps=400, environments=1)
    played = play(straight, task, episodes=1)._replace(lengths=np.array([3]))
    (frames,) = film(task, played, FINAL_SEED, 60)
    assert len(frames) == 201
    inside = [frame[BAR + 5 : -5, 5:-5] for frame in frames]
    assert not np.array_equal(inside[1], inside[2])
    assert all(np.array_equal(picture, inside[2]) for picture in inside[2:])
