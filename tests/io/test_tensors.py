"""Files of arrays: the same bytes however they are written, and a checksum of all of them."""

import numpy as np
import pytest

from merlin.errors import MerlinError
from merlin.io import tensors

ARRAYS = {
    "b.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "a.count": np.array(7, np.int32),
    "empty": np.zeros((0, 2), np.float32),
    "mask": np.array([True, False]),
}


def test_small_and_large_files_have_one_format(tmp_path, monkeypatch):
    small, large = tmp_path / "small.safetensors", tmp_path / "large.safetensors"
    tensors.write(small, ARRAYS, {"step": 3})
    monkeypatch.setattr(tensors, "SMALL_BYTES", 0)
    tensors.write(large, ARRAYS, {"step": 3})
    assert small.read_bytes() == large.read_bytes()
    found, about = tensors.read(small)
    assert about == {"step": 3}
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)


def test_a_flipped_bit_is_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    tensors.write(path, ARRAYS, {"step": 3})
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(MerlinError, match="its checksum is wrong"):
        tensors.read(path)
