"""Files that were damaged after they were written, and training that is no longer finite."""

import json
import math
import os
import shutil

import numpy as np
import pytest

import merlin.runtime
from helpers.sizes import SCHEDULE, SMALL
from helpers.training_runs import policy_bytes, train
from merlin.errors import MerlinError
from merlin.io import files, tensors
from merlin.io.files import sealed
from merlin.learners import GCSL
from merlin.training.folder import read_config
from merlin.training.log import read_metrics
from merlin.training.train import resume


def flipped(content, rng):
    changed = bytearray(content)
    changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


@pytest.mark.parametrize("name", ["seed-0/policy.safetensors", "checkpoint-0.safetensors"])
def test_300_flipped_bits_are_refused_or_change_nothing(run_folder, tmp_path, rng, name):
    content = (run_folder / name).read_bytes()
    arrays, about = tensors.read(run_folder / name)
    refused = 0
    for _ in range(300):
        path = tmp_path / "file.safetensors"
        path.write_bytes(flipped(content, rng))
        try:
            found, told = tensors.read(path)
        except MerlinError:
            refused += 1
            continue
        assert told == about
        assert found.keys() == arrays.keys()
        assert all(np.array_equal(found[name], array) for name, array in arrays.items())
    assert refused > 280


def test_a_damaged_checkpoint_gives_way_to_the_one_before(run_folder, tmp_path, capsys, rng):
    damaged, whole = tmp_path / "damaged", tmp_path / "whole"
    for folder in (damaged, whole):
        shutil.copytree(run_folder, folder)
    last = damaged / "checkpoint-0.safetensors"
    content = last.read_bytes()
    last.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    capsys.readouterr()
    resume(damaged, updates=70)
    said = capsys.readouterr().err
    assert f"{last}: is damaged (its checksum is wrong)" in said
    assert f"Continuing from {damaged / 'previous-0.safetensors'}." in said
    resume(whole, updates=70)
    assert policy_bytes(damaged) == policy_bytes(whole)
    assert (damaged / "result.json").read_bytes() == (whole / "result.json").read_bytes()


def test_a_kill_between_two_names_leaves_the_checkpoint_before(run_folder, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    (folder / "checkpoint-0.safetensors").unlink()
    resume(folder)
    assert policy_bytes(folder) == policy_bytes(run_folder)


@pytest.mark.parametrize("place", [".", "seed-0"])
def test_what_a_kill_left_behind_is_removed_when_a_complete_run_is_resumed(
    run_folder, tmp_path, place, monkeypatch
):
    """Also what was too young to be removed when the folder was first written to."""
    folder = tmp_path / "run"
    monkeypatch.setattr(files, "_swept", dict.fromkeys((folder, folder / "seed-0"), math.inf))
    shutil.copytree(run_folder, folder)
    left = folder / place / ".merlin-0123456789abcdef.partial"
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    resume(folder)
    assert not left.exists()


def test_a_kill_before_the_first_file_does_not_block_the_folder(point_data, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".merlin-0123456789abcdef.partial").write_bytes(b"half")
    train(point_data, folder, updates=2)
    assert (folder / "result.json").exists()


def test_files_without_a_checksum_are_read(run_folder, tmp_path):
    """As earlier versions wrote them."""
    path = tmp_path / "policy.safetensors"
    arrays, about = tensors.read(run_folder / "seed-0" / "policy.safetensors")
    import safetensors.numpy

    safetensors.numpy.save_file(arrays, path, {"merlin": json.dumps(about)})
    assert tensors.read(path)[1] == about
    assert merlin.runtime.load(path)


def test_training_stops_when_it_is_no_longer_finite(point_data, tmp_path):
    learner = GCSL(**SMALL, learning_rate=1e30)
    said = r"^seed 0: the (loss is|parameters are) no longer finite after update \d+; "
    with pytest.raises(MerlinError, match=said):
        merlin.train(learner, point_data, updates=200, out=tmp_path / "run", **SCHEDULE)
    for file in tmp_path.rglob("*.safetensors"):
        tensors.read(file)  # refuses what is not finite
    assert not (tmp_path / "run" / "result.json").exists()
    with pytest.raises(MerlinError, match=said):
        merlin.train(learner, point_data, updates=200, **SCHEDULE)


@pytest.mark.parametrize("name", ["seed-0", "seed-0/.metrics.jsonl.partial", ".lock", "events.x"])
def test_a_link_in_a_run_folder_is_refused_before_anything_is_written(run_folder, tmp_path, name):
    folder, victim = tmp_path / "run", tmp_path / "victim"
    shutil.copytree(run_folder, folder)
    victim.mkdir()
    if (folder / name).is_dir():
        shutil.rmtree(folder / name)
    (folder / name).symlink_to(victim)
    with pytest.raises(MerlinError, match="is a symbolic link"):
        resume(folder, updates=70)
    assert list(victim.iterdir()) == []
    assert read_config(folder).schedule.updates == 60


def test_two_runs_of_one_command_do_not_share_a_folder(point_data, tmp_path):
    """In one process as well: a lock is held by a run, not by a process."""
    from merlin.training.folder import opened

    train(point_data, tmp_path / "run", updates=2)
    with opened(tmp_path / "run", resume=True), pytest.raises(MerlinError, match="is in use by"):
        resume(tmp_path / "run", updates=4)


def test_300_flipped_bits_of_a_log(run_folder, tmp_path, rng):
    content = (run_folder / "seed-0" / "metrics.jsonl").read_bytes()
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content)
    known = list(read_metrics(path))
    assert b"".join(line for _, line in known) == content
    ends = [content[:-1] + bytes([content[-1] ^ 1 << bit]) for bit in range(8)]
    refused = 0
    for damaged in [*ends, *(flipped(content, rng) for _ in range(300))]:
        path.write_bytes(damaged)
        try:
            assert list(read_metrics(path)) == known
        except MerlinError:
            refused += 1
    assert refused > 250


def test_a_digit_beyond_the_precision_of_a_number_is_written_again_as_it_was(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(line := json.dumps(sealed({"step": 1, "loss": 1.6775599718093872})) + "\n")
    path.write_text(line.replace("872,", "873,"))
    assert list(read_metrics(path)) == [({"step": 1, "loss": 1.6775599718093872}, line.encode())]
