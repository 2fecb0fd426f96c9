"""LeRobot's videos as the state: real files, written and decoded by ffmpeg."""

import json
import shutil

import numpy as np
import pytest

from helpers.log_data import write_log
from helpers.videos import CAMERA, ROWS, WANTED, film, write_episodes, write_mp4
from merlin.data import load
from merlin.data.formats import is_data
from merlin.errors import MerlinError


@pytest.fixture(scope="module", params=["lerobot-v3", "lerobot-v21"])
def filmed(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    path, content, _ = write_log(folder, request.param, np.random.default_rng(0))
    film(path, request.param)
    return path, content


@pytest.fixture
def copy(filmed, tmp_path):
    return shutil.copytree(filmed[0], tmp_path / "log")


def test_every_row_has_the_frame_of_its_moment(filmed):
    path, content = filmed
    data = load(path, **WANTED, image_size=16)
    assert data.observations.shape == (ROWS, 16, 16, 3)
    greys = data.observations.mean((1, 2, 3))
    np.testing.assert_allclose(greys, 10 * np.arange(ROWS), atol=3)
    np.testing.assert_array_equal(data.achieved_goals, content["state"])
    assert load(data.source).fingerprint() == data.fingerprint()
    assert load(path, **WANTED).observation_shape == (64, 64, 3)
    assert "cameras_not_read" not in data.provenance["log"]
    assert load(path).provenance["log"]["cameras_not_read"] == ["top"]


@pytest.mark.more
def test_a_policy_learns_from_a_video(filmed, tmp_path, call):
    columns = ["--state", CAMERA, "--phi", "observation.state", "--image-size", "16"]
    call("info", filmed[0], *columns)
    call("convert", filmed[0], tmp_path / "data", *columns)
    assert is_data(str(tmp_path / "data"))
    few = ["--updates", "2", "--set", "hidden=16", "batch_size=8"]
    call("train", tmp_path / "data", *few, "--out", tmp_path / "run")
    assert (tmp_path / "run" / "result.json").exists()


def videos(path):
    return sorted(path.glob("videos/**/*.mp4"))


def damage(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 3 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 3)
    file.write_bytes(content[: len(content) * 2 // 3])


def playlist(file):
    file.write_text("#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda file: file.unlink(), "is missing; copy the log with its videos"),
        (damage, "cannot be decoded"),
        (playlist, "cannot be decoded"),
        (lambda file: write_mp4(file, [0, 1]), r"has 2 frames, but its episodes need \d+"),
    ],
)
def test_videos_that_are_missing_or_broken(copy, change, said):
    change(videos(copy)[0])
    with pytest.raises(MerlinError, match=said):
        load(copy, **WANTED)
    assert load(copy).observation_shape == (4,)  # the state alone needs no video


def test_frames_that_do_not_fit_into_memory(copy, monkeypatch):
    monkeypatch.setattr("merlin.data.video.SHARE", 1e-9)
    with pytest.raises(MerlinError, match=r"16 frames of 64x64 pixels take 0\.0 GB, more"):
        load(copy, **WANTED)


@pytest.mark.parametrize("size", [7, 513])
def test_sizes_that_are_no_images(filmed, size):
    with pytest.raises(MerlinError, match="not between 8 and 512"):
        load(filmed[0], **WANTED, image_size=size)


def test_a_size_is_for_videos(filmed, rng, tmp_path):
    with pytest.raises(MerlinError, match="not read from a video"):
        load(filmed[0], image_size=32)
    with pytest.raises(MerlinError, match="not read from a video"):
        load(write_log(tmp_path, "csv", rng)[0], image_size=32)


@pytest.mark.parametrize(
    ("begins", "said"),
    [
        ([0.3, 0.3, 0.0], "two episodes claim the same frames"),
        ([0.3, np.nan, 0.0], "row 1 has an impossible number"),
        ([0.3, 0.8], "has no episode 2"),
    ],
)
def test_a_table_of_episodes_that_is_wrong(rng, tmp_path, begins, said):
    path, _, _ = write_log(tmp_path, "lerobot-v3", rng)
    film(path, "lerobot-v3")
    write_episodes(path, [0, 0, 1][: len(begins)], begins)
    with pytest.raises(MerlinError, match=said):
        load(path, **WANTED)


def test_a_camera_with_the_name_of_a_path_is_none(rng, tmp_path):
    path, _, _ = write_log(tmp_path, "lerobot-v21", rng)
    file = path / "meta" / "info.json"
    info = json.loads(file.read_text())
    info["features"] = {"../../secret": {"dtype": "video", "shape": [8, 8, 3]}}
    file.write_text(json.dumps(info))
    with pytest.raises(MerlinError, match="no such column"):
        load(path, state="../../secret", phi="observation.state")


def test_ffmpeg_is_an_extra(filmed, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "imageio_ffmpeg", None)
    with pytest.raises(MerlinError, match=r"needs ffmpeg, .*merlin-rl\[video\]"):
        load(filmed[0], **WANTED)
