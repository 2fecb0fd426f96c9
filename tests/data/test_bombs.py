"""Small files that claim to be large: refused before memory is set aside."""

import io
import os
import resource
import zipfile

import numpy as np
import pytest

from helpers.format_data import change_minari, episodes, maze, saved, write
from merlin.data import archives, load
from merlin.errors import MerlinError


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
    with pytest.raises(MerlinError, match=r"observations\.npy has 1048576 bytes"):
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


def test_many_demos_that_claim_a_little_each(tmp_path):
    """Together they claim 4 GB, and none of them more than a reader allows a small file."""
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        for demo in range(128):
            for name in ("actions", "obs/x"):  # chunks that were never written
                file.create_dataset(f"data/demo_{demo}/{name}", (1 << 20, 4), "f4", chunks=(999, 4))
    with pytest.raises(MerlinError, match=r"a\.hdf5: /data/demo_0/obs/x: claims 2147483648 bytes"):
        load(path)


def test_many_archives_that_claim_a_little_each(tmp_path):
    np.savez_compressed(tmp_path / "0.npz", **dict.fromkeys("sa", np.zeros((1 << 20, 4), "f4")))
    for copy in range(1, 64):
        os.link(tmp_path / "0.npz", tmp_path / f"{copy}.npz")
    with pytest.raises(MerlinError, match="claims 2147483648 bytes"):
        load(tmp_path, state="s", action="a")
