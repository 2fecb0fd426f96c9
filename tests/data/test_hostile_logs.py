"""Logs that are broken, or meant to do harm: one sentence or sound data, and nothing runs."""

import contextlib
import json
import os
import pickle
import resource
import shutil
from pathlib import Path

import h5py
import numcodecs
import numpy as np
import pyarrow.parquet as pq
import pytest

from helpers.log_data import FORMS, arrow_table, columns, write_log, write_zarr_array
from merlin.data import load
from merlin.data.goal_table import read_goals
from merlin.errors import MerlinError

LENGTHS = (12, 9, 15)
MOST_BYTES = 400 << 20


def files_of(path):
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def spoil_bytes(rng, path):
    """Cut a file short, or turn up to three of its bytes over."""
    files = files_of(path)
    file = files[rng.integers(len(files))]
    content = bytearray(file.read_bytes())
    if rng.random() < 0.25:
        content = content[: rng.integers(len(content))]
    else:
        for at in rng.integers(len(content), size=rng.integers(1, 4)):
            content[at] = int(rng.integers(256))
    file.write_bytes(content)


WRONG = [None, -1, 0, 3, 10**12, 2**62, 1e400, "<f8", "|O", "pickle", [], [2**40, 3], {}, True, ""]


def spoil_json(rng, path):
    """Put a wrong value somewhere into the metadata; if there is none, spoil bytes."""
    files = [f for f in files_of(path) if f.suffix == ".json" or f.name.startswith(".z")]
    if not files:
        return spoil_bytes(rng, path)
    file = files[rng.integers(len(files))]
    tree = json.loads(file.read_text())
    node = tree
    while isinstance(node, dict) and node:
        key = sorted(node)[rng.integers(len(node))]
        if not isinstance(node[key], dict) or not node[key] or rng.random() < 0.5:
            node[key] = WRONG[rng.integers(len(WRONG))]
            break
        node = node[key]
    file.write_text(json.dumps(tree))


def drop_file(rng, path):
    """Remove a file or put a folder in its place; if there is but one, spoil bytes."""
    files = files_of(path)
    if len(files) == 1:
        return spoil_bytes(rng, path)
    file = files[rng.integers(len(files))]
    file.unlink()
    if rng.random() < 0.5:
        file.mkdir()


@pytest.mark.parametrize("form", FORMS)
def test_200_broken_copies_are_refused_or_sound(rng, tmp_path, form):
    good, _, said = write_log(tmp_path, form, rng, LENGTHS)
    bad = tmp_path / f"bad{good.suffix}"
    load(good, **said)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sentences = []
    for seed in range(200):
        if bad.is_dir():
            shutil.rmtree(bad)
        (shutil.copytree if good.is_dir() else shutil.copy)(good, bad)
        mutation = np.random.default_rng(seed)
        (spoil_bytes, spoil_json, spoil_bytes, drop_file)[seed % 4](mutation, bad)
        try:
            found = load(bad, **said)
        except MerlinError as error:
            sentences.append(str(error))
            continue
        for name, array in found.arrays().items():
            assert np.isfinite(array).all(), (seed, name)
        assert len(found.observations) <= sum(LENGTHS), seed
    print(f"{form}: {len(sentences)} of 200 refused")
    assert len(sentences) >= 40
    assert all(text[-1] in ".?" and "\n" not in text for text in sentences)
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < MOST_BYTES


def change_json(file, **values):
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


class Call:
    def __init__(self, function, *arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


def test_pickles_in_arrays_and_filters_do_not_run(rng, tmp_path):
    sentinel = tmp_path / "sentinel"
    attack = np.array([Call(os.system, f"touch {sentinel}")] * 3, dtype=object)
    for form, save in (("npz", np.savez), ("npy", np.save)):
        folder = tmp_path / form
        folder.mkdir()
        arrays = {"state": attack, "action": attack} if form == "npz" else {"arr": attack}
        save(folder / f"a.{form}", allow_pickle=True, **arrays)
        with pytest.raises(MerlinError, match="cannot be read as arrays"):
            load(folder, state="0", action="0")
    path, _, _ = write_log(tmp_path, "zarr", rng)
    state = path / "data" / "state"
    (state / "0.0").write_bytes(pickle.dumps(attack))
    change_json(state / ".zarray", filters=[{"id": "pickle"}])
    with pytest.raises(MerlinError, match="has filters, which are not supported"):
        load(path)
    change_json(state / ".zarray", filters=None, compressor={"id": "pickle"})
    with pytest.raises(MerlinError, match='is compressed by "pickle", which is unsupported'):
        load(path)
    change_json(state / ".zarray", compressor=None, dtype="|O")
    with pytest.raises(MerlinError, match=r"dtype is .* not a number"):
        load(path)
    assert not sentinel.exists()
    pickle.loads(pickle.dumps(attack))  # the attack is a real one
    assert sentinel.exists()


def huge_zarr(path):
    change_json(path / "data" / "state" / ".zarray", shape=[10**12, 4])


def huge_chunks(path):
    change_json(path / "data" / "state" / ".zarray", shape=[16, 4], chunks=[10**12, 4])


def bomb(path):
    state = path / "data" / "state"
    shutil.rmtree(state)
    write_zarr_array(state, np.zeros((10**7, 4)), (10**7, 4))
    change_json(state / ".zarray", shape=[16, 4])


@pytest.mark.parametrize("change", [huge_zarr, huge_chunks, bomb])
def test_sizes_are_checked_before_memory_is_taken(rng, tmp_path, change):
    path, _, _ = write_log(tmp_path, "zarr", rng)
    change(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(MerlinError, match=r"log\.zarr.*(claims|has \d+)"):
        load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_an_hdf5_file_stays_within_itself(rng, tmp_path):
    path, _, _ = write_log(tmp_path, "robomimic", rng)
    other = tmp_path / "other.hdf5"
    shutil.copy(path, other)
    with h5py.File(path, "r+") as file:
        del file["data/demo_1/obs/pose"]
        file["data/demo_1/obs/pose"] = h5py.ExternalLink(str(other), "data/demo_1/obs/pose")
    with pytest.raises(MerlinError, match="pose is missing or a link"):
        load(path)
    with h5py.File(path, "r+") as file:
        del file["data/demo_1/obs/pose"]
        layout = h5py.VirtualLayout(shape=(7, 3), dtype="f4")
        layout[:] = h5py.VirtualSource(str(other), "data/demo_1/obs/pose", shape=(7, 3))
        file["data/demo_1/obs"].create_virtual_dataset("pose", layout)
    with pytest.raises(MerlinError, match="pose is kept in another file"):
        load(path)
    with h5py.File(path, "r+") as file:
        del file["data/demo_1/obs/pose"], file["data/demo_1/actions"]
        file["data/demo_1"].create_dataset("actions", (10**9, 2), "f4", chunks=(1000, 2))
        file["data/demo_1/obs"].create_dataset("pose", (10**9, 3), "f4", chunks=(1000, 3))
    with pytest.raises(
        MerlinError, match="pose: claims to hold 12000000108 bytes in a file of 130"
    ):
        load(path, state="obs/pose")


def test_an_hdf5_attribute_of_another_type_is_not_read(rng, tmp_path):
    """The HDF5 library crashes on a string whose type was changed to a sequence by one bit."""
    path, _, _ = write_log(tmp_path, "robomimic", rng)
    content = bytearray(path.read_bytes())
    kind = content.index(b"env_args") + 17  # the name takes 16 bytes, its type follows
    assert content[kind - 1 : kind + 1] == b"\x19\x01"
    content[kind] ^= 4
    path.write_bytes(content)
    assert "robosuite_environment" not in load(path).provenance["log"]


@pytest.mark.parametrize("form", ["csv", "parquet", "robomimic"])
def test_only_regular_files_are_read(tmp_path, form):
    path = tmp_path / {"csv": "a.csv", "parquet": "a.parquet", "robomimic": "a.hdf5"}[form]
    os.mkfifo(path)
    with pytest.raises(MerlinError, match="is not a regular file"):
        load(path)
    path.unlink()
    with pytest.raises(MerlinError, match=r"is missing|no such"):
        load(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"total_frames": 17}, "total_frames is 17, but the files hold 16"),
        ({"total_episodes": None}, "total_episodes is None, but the files hold 3"),
        ({"codebase_version": "v9"}, "codebase_version is 'v9', not v2.0"),
    ],
)
@pytest.mark.parametrize("form", ["lerobot-v3", "lerobot-v21"])
def test_metadata_that_does_not_fit_its_files(rng, tmp_path, form, change, said):
    path, _, _ = write_log(tmp_path, form, rng)
    change_json(path / "meta" / "info.json", **change)
    with pytest.raises(MerlinError, match=said):
        load(path)


def test_rows_that_are_empty_or_uneven(rng, tmp_path):
    content = columns(rng)
    path = tmp_path / "log.parquet"
    for spoil, said in (
        (lambda rows: [*rows[:-1], None], "state has empty rows"),
        (lambda rows: [*rows[:-1], rows[0][:3]], "state does not hold 4 numbers in every row"),
        (lambda rows: [*rows[:-2], [*rows[0], 1.0], rows[0][:3]], "state does not hold 4"),
        (lambda rows: [*rows[:-1], [1.0, None, 2.0, 3.0]], "state does not hold 4"),
        (lambda rows: [*rows[:-1], [1.0, np.nan, 2.0, 3.0]], "observations row 15"),
    ):
        table = arrow_table(content)
        rows = spoil(table.column("state").to_pylist())
        table = table.set_column(0, "state", [rows])
        pq.write_table(table, path)
        with pytest.raises(MerlinError, match=said):
            load(path)


def test_a_chunk_that_is_short_or_another_size(rng, tmp_path):
    path, _, _ = write_log(tmp_path, "zarr", rng)
    chunk = Path(path) / "data" / "state" / "1.0"
    for content in (numcodecs.Blosc().encode(np.zeros((5, 4), "f4")), b"", b"\x02\x01"):
        chunk.write_bytes(content)
        with pytest.raises(MerlinError, match=r"1\.0: cannot be read as a Zarr chunk"):
            load(path)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_mark_that_editors_put_first_is_no_text(rng, tmp_path, mark):
    """Windows editors write one; a goal or a file must not get lost by it."""
    path, _, said = write_log(tmp_path, "npy", rng)
    names = [f"log/{file.name}" for file in sorted(path.iterdir())]
    (tmp_path / "list.txt").write_bytes(mark + "\r\n".join(names).encode())
    assert len(load(tmp_path / "list.txt", **said)) == 3
    (tmp_path / "goals.csv").write_bytes(mark + b"1,2\r\n3,4\r\n")
    assert read_goals(tmp_path / "goals.csv", 2).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("at", [20, 40, 60])
def test_a_garbled_table_of_goals(tmp_path, at):
    path = tmp_path / "goals.npy"
    np.save(path, np.zeros((3, 2), np.float32))
    for sign in b"({[\\'\"\x00":
        content = bytearray(path.read_bytes())
        content[at] = sign
        (tmp_path / "bad.npy").write_bytes(content)
        with contextlib.suppress(MerlinError):
            read_goals(tmp_path / "bad.npy", 2)


def test_a_table_of_goals_that_claims_too_much(tmp_path):
    path = tmp_path / "goals.npy"
    with path.open("wb") as file:
        about = {"descr": "<f4", "fortran_order": False, "shape": (10**12, 2)}
        np.lib.format.write_array_header_1_0(file, about)
    with pytest.raises(MerlinError, match="cannot be read as numbers"):
        read_goals(path, 2)


@pytest.mark.parametrize("ends", [[2**63 - 1, -2, 16], [2**62, 2**63 - 2, -(2**62), 16]])
def test_ends_of_episodes_whose_differences_overflow(tmp_path, ends):
    path, _, said = write_log(tmp_path, "zarr", np.random.default_rng(0))
    shutil.rmtree(path / "meta" / "episode_ends")
    write_zarr_array(path / "meta" / "episode_ends", np.array(ends, np.int64), (len(ends),))
    with pytest.raises(MerlinError, match="is not increasing from above 0"):
        load(path, **said)


@pytest.mark.parametrize("fps", [10**400, True, 0, -30], ids=lambda fps: str(fps)[:4])
def test_a_rate_that_is_none_is_left_out(tmp_path, fps):
    path, _, said = write_log(tmp_path, "lerobot-v3", np.random.default_rng(0))
    change_json(path / "meta" / "info.json", fps=fps)
    assert "rate" not in load(path, **said).provenance["log"]
