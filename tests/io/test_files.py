"""Files are written whole, by names that nobody can guess, and read only if they are files."""

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from merlin.errors import MerlinError
from merlin.io import files
from merlin.io.files import (
    new_file,
    new_folder,
    parse_json,
    read_json,
    refuse_links,
    sha256,
    write_bytes,
    write_json,
    write_pieces,
)
from merlin.io.locks import lock


def test_a_link_with_the_name_of_the_target_is_replaced_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "run.json").symlink_to(victim)
    write_bytes(tmp_path / "run.json", b"new")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "run.json").is_symlink()


def failing():
    yield b"new"
    raise OSError("no such luck")


def test_after_an_error_the_old_file_is_there_and_nothing_else(tmp_path):
    path = tmp_path / "a"
    write_bytes(path, b"old")
    with pytest.raises(OSError, match="no such"):
        write_pieces(path, failing())
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert path.read_bytes() == b"old"


def test_the_file_before_is_kept_if_asked_for(tmp_path):
    last, before = tmp_path / "last", tmp_path / "before"
    for content in (b"1", b"2", b"3"):
        write_pieces(last, [content], keep=before)
    assert (last.read_bytes(), before.read_bytes()) == (b"3", b"2")


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o700), (0o022, 0o755)])
def test_the_umask_is_respected(tmp_path, mask, mode):
    previous = os.umask(mask)
    try:
        with new_folder(tmp_path / "d") as folder:
            write_bytes(folder / "a", b"")
    finally:
        os.umask(previous)
    assert (tmp_path / "d").stat().st_mode & 0o777 == mode
    assert (tmp_path / "d" / "a").stat().st_mode & 0o777 == mode & 0o666


def test_leftovers_of_the_dead_are_swept_and_those_of_the_living_are_not(tmp_path):
    dead, living, young = (tmp_path / f".merlin-{n}.partial" for n in ("dead", "alive", "young"))
    folder = tmp_path / ".merlin-folder.partial"
    (folder / "data").mkdir(parents=True)
    for path in (dead, living, young):
        path.write_bytes(b"half")
    for path in (dead, living, folder):
        os.utime(path, (time.time() - 100,) * 2)
    files._swept.clear()
    with living.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write_bytes(tmp_path / "new", b"")
    assert {path.name for path in tmp_path.iterdir()} == {living.name, young.name, "new"}


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    with pytest.raises(OSError, match="no such"), new_folder(tmp_path / "d") as folder:
        write_pieces(folder / "a", failing())
    assert list(tmp_path.iterdir()) == []
    with new_folder(tmp_path / "d") as folder:
        assert not (tmp_path / "d").exists()
    with pytest.raises(MerlinError, match="already exists"), new_folder(tmp_path / "d"):
        pass
    with new_folder(tmp_path / "d", overwrite=True) as folder:
        write_bytes(folder / "b", b"")
    assert [path.name for path in tmp_path.rglob("*")] == ["d", "b"]


def test_an_error_names_the_file_that_was_asked_for():
    """Not the temporary one, of which nobody has heard; /proc is read-only for everyone."""
    with pytest.raises(OSError, match="/proc/policy") as found:
        write_bytes(Path("/proc/policy.onnx"), b"")
    assert found.value.filename == "/proc/policy.onnx"


@pytest.mark.parametrize("can_rename", [True, False])
@pytest.mark.parametrize("kind", [new_file, new_folder])
def test_the_first_of_two_writers_wins(tmp_path, kind, can_rename, monkeypatch):
    """Both found the name free when they began."""
    if not can_rename:  # as on a file system without renameat2
        monkeypatch.setattr(files, "_renamed", lambda *_: False)
    target = tmp_path / "d"
    with (
        pytest.raises(MerlinError, match="already exists"),
        kind(target, overwrite=False),
        kind(target, overwrite=False),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_everything_is_synced_before_it_has_its_name(tmp_path, monkeypatch):
    synced = []
    real = os.fsync

    def fsync(opened):
        synced.append(os.readlink(f"/proc/self/fd/{opened}"))
        real(opened)

    monkeypatch.setattr(os, "fsync", fsync)
    with new_folder(tmp_path / "d") as folder:
        (folder / "array.npy").write_bytes(b"1")
    assert synced == [str(folder / "array.npy"), str(folder), str(tmp_path)]


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_regular_files_are_read(tmp_path, kind):
    path = tmp_path / "meta.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(MerlinError, match=r"meta\.json: (is not a regular file|cannot be read)"):
        read_json(path, "anything")
    with pytest.raises((MerlinError, IsADirectoryError)):
        sha256(path)


def test_json_has_a_checksum_that_a_flipped_bit_does_not_pass(tmp_path):
    path = tmp_path / "a.json"
    content = {"numbers": [1, 2.5, 1e-300], "text": "ü", "nested": {"1": None}}
    write_json(path, content)
    assert read_json(path, "a test") == content
    text = path.read_bytes()
    for at in range(len(text)):
        for bit in range(8):
            changed = bytearray(text)
            changed[at] ^= 1 << bit
            path.write_bytes(changed)
            try:
                found = read_json(path, "a test")
            except MerlinError:
                continue
            assert {key: found.get(key) for key in content} == content, (at, bit)


def test_json_of_before_there_were_checksums_is_read(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"a": 1}))
    assert read_json(tmp_path / "a.json", "a test") == {"a": 1}


@pytest.mark.parametrize("depth", [66, 900, 100_000])
def test_json_that_is_nested_too_deeply(depth):
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * depth + "]" * depth)
    assert parse_json("[" * 60 + "]" * 60)


def test_links_in_a_folder_of_ours_are_refused(tmp_path):
    (tmp_path / "run" / "seed-0").mkdir(parents=True)
    refuse_links(tmp_path / "run")
    (tmp_path / "run" / "seed-0" / "x").symlink_to(tmp_path)
    with pytest.raises(MerlinError, match=r"seed-0/x: is a symbolic link"):
        refuse_links(tmp_path / "run")


HOLD = """
import sys, time
from pathlib import Path
from merlin.io.locks import lock
with lock(Path(sys.argv[1]), "the cache"):
    print("ready", flush=True)
    time.sleep(60)
"""


def test_a_lock_names_its_holder_and_ends_with_it(tmp_path, capsys):
    path = tmp_path / ".lock"
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"ready\n"
    said = rf"the cache: is in use by process {other.pid} on \S+;"
    with pytest.raises(MerlinError, match=said), lock(path, "the cache"):
        pass
    other.kill()
    other.communicate()
    with lock(path, "the cache", wait=True):
        assert path.exists()
    assert not path.exists()
    assert capsys.readouterr().err == ""


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(MerlinError, match="cannot be created"), lock(tmp_path / ".lock", "it"):
        pass
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_lock_that_is_another_file_too_is_not_emptied(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / ".lock").hardlink_to(tmp_path / "victim")
    with pytest.raises(MerlinError, match="is also another file"), lock(tmp_path / ".lock", "it"):
        pass
    assert (tmp_path / "victim").read_text() == "precious"


REPLACE = """
import os, sys
from pathlib import Path
from merlin.io.files import new_folder
real = os.replace
def killed(*names):
    real(*names)
    os._exit(9)
with new_folder(Path(sys.argv[1]), overwrite=True) as folder:
    (folder / "a").write_text("new")
    os.replace = killed
"""


def test_a_kill_while_a_folder_is_replaced_leaves_one_of_the_two(tmp_path):
    with new_folder(tmp_path / "d") as folder:
        (folder / "a").write_text("old")
    subprocess.run([sys.executable, "-c", REPLACE, str(tmp_path / "d")], check=False)
    assert (tmp_path / "d" / "a").read_text() in ("old", "new")
