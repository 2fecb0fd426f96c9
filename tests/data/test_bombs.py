"""Small files that claim to be large: refused before memory is set aside."""

import io
import os
import resource
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.format_data import change_minari, episodes, maze, saved, write
from merlin.data import archives, load
from merlin.errors import MerlinError
from merlin.io.files import parse_json, read_json


@pytest.fixture(autouse=True)
def no_more_memory():
    """What is read here may take a gigabyte more than there is now, and not two."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20


def npz(path, **headers):
    """An .npz whose arrays are zeros of these shapes by their headers, and a megabyte in truth."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, shape in headers.items():
            head = io.BytesIO()
            about = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(head, about)
            archive.writestr(f"{name}.npy", head.getvalue() + bytes(1 << 20))
    return path


def test_an_archive_whose_headers_claim_too_much(tmp_path):
    shapes = {"observations": (10**12, 4), "actions": (10**12, 2), "terminals": (10**12,)}
    with pytest.raises(
        MerlinError, match=r"float32 of shape \(1000000000000, 4\) in 1048704 bytes"
    ):
        load(npz(tmp_path / "a.npz", **shapes))


def test_an_archive_that_unpacks_to_too_much(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(archives, "FREE_BYTES", 1 << 20)
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **maze(rng), achieved_goals=np.zeros((500_000, 2), np.float32))
    with pytest.raises(
        MerlinError, match=r"claims to hold \d+ bytes in a file of \d+; .*MAX_RATIO"
    ):
        load(path)
    monkeypatch.setenv("MERLIN_MAX_RATIO", "100000")
    with pytest.raises(MerlinError, match="achieved_goals has 500000 rows"):
        load(path)
    monkeypatch.setenv("MERLIN_MAX_RATIO", "much")
    with pytest.raises(MerlinError, match="MERLIN_MAX_RATIO: 'much'"):
        load(path)


def test_chunks_that_were_never_written(rng, tmp_path):
    home = write(episodes(rng), tmp_path, "minari")

    def grow(file):
        for name in ("actions", *(f"observations/{key}" for key in file["episode_0/observations"])):
            path = f"episode_0/{name}"
            width = file[path].shape[1:]
            del file[path]
            rows = 10**9 + (name != "actions")
            file.create_dataset(path, (rows, *width), "f4", chunks=(1024, *width))

    change_minari(tmp_path / "data", grow, total_steps=10**9)
    assert sum(path.stat().st_size for path in (tmp_path / "data").rglob("*")) < 1 << 20
    with pytest.raises(MerlinError, match="claims to hold"):
        load(home)


@pytest.mark.parametrize("name", ["a.npz", "a.pkl", "a"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(MerlinError, match=r"is not a regular file|is a file, not"):
        load(tmp_path / name)


def test_a_member_with_two_names_is_refused(tmp_path, rng):
    """A flipped bit in the index of an archive must not make an array disappear."""
    path = saved(tmp_path / "a.npz", maze(rng, action_low=np.full(2, -3.0, np.float32)))
    content = path.read_bytes()
    at = content.rindex(b"action_low.npy")
    path.write_bytes(content[:at] + b"b" + content[at + 1 :])
    with pytest.raises(MerlinError, match=r"a\.npz: cannot be read"):
        load(path)


def test_members_that_the_directory_hides_are_missed(tmp_path):
    """The length of a member's comment swallows the members behind it, here all goals."""
    write(episodes(np.random.default_rng(0)), tmp_path, "ogbench", "a")
    path = tmp_path / "a.npz"
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"action_high.npy") - 46
    behind = content.rindex(b"PK\5\6") - entry - 46 - len(b"action_high.npy")
    content[entry + 32 : entry + 34] = behind.to_bytes(2, "little")
    path.write_bytes(content)
    with pytest.raises(MerlinError, match="does not list all members"):
        load(path)


@pytest.mark.parametrize("lengths", [(4 * 10**7,), (4, 4 * 10**7)])
def test_a_row_of_parquet_that_unpacks_to_too_much(tmp_path, lengths):
    """Runs of equal numbers take a few bytes; the rows are few, so their number tells nothing."""
    values = pa.array(np.zeros(sum(lengths), np.float32))
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
    rows = len(lengths)
    content = {"action": [[0.0, 1.0]] * rows, "episode_index": [0] * rows}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"state": pa.ListArray.from_arrays(offsets, values), **content}), path)
    assert path.stat().st_size < 10_000
    with pytest.raises(MerlinError, match=r"a\.parquet: claims to hold 32\d{7} bytes"):
        load(path)


def test_json_of_millions_of_lists(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'{"a":[' + b"[]," * 20_000_000 + b"[]]}")
    with pytest.raises(MerlinError, match="more than the limit of 16777216"):
        read_json(path, "a test")
    with pytest.raises(ValueError, match="it has 60000010 characters"):
        parse_json(path.read_bytes())


@pytest.mark.parametrize("field", [b"1" * (1 << 22), b'"' + b"\n" * (1 << 22) + b'"'])
def test_a_table_with_a_line_without_end(tmp_path, field):
    path = tmp_path / "a.csv"
    path.write_bytes(b"episode,state,action\n0,1,2\n0," + field + b",2\n0,2,3\n")
    with pytest.raises(MerlinError, match="a line has more than 1048576 characters"):
        load(path)


def test_many_demos_that_claim_a_little_each(tmp_path):
    """Together they claim 4 GB, and none of them more than a reader allows a small file."""
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        for demo in range(128):
            for name in ("actions", "obs/x"):  # chunks that were never written
                file.create_dataset(f"data/demo_{demo}/{name}", (1 << 20, 4), "f4", chunks=(999, 4))
    with pytest.raises(
        MerlinError, match=r"a\.hdf5: /data/demo_0/obs/x: claims to hold 2147483648 bytes"
    ):
        load(path)


def test_many_archives_that_claim_a_little_each(tmp_path):
    np.savez_compressed(tmp_path / "0.npz", **dict.fromkeys("sa", np.zeros((1 << 20, 4), "f4")))
    for copy in range(1, 64):
        os.link(tmp_path / "0.npz", tmp_path / f"{copy}.npz")
    with pytest.raises(MerlinError, match="claims to hold 2147483648 bytes"):
        load(tmp_path, state="s", action="a")
