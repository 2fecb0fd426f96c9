"""Compressed data whose size is checked before memory is allocated."""

import math
import os
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from merlin.errors import MerlinError
from merlin.io.files import open_regular

FREE_BYTES, RATIO = 1 << 28, 200
"""Limits on unpacked data: in bytes, and relative to the file's size. The larger one applies."""

END_BYTES = 22 + (1 << 16)
"""Maximum size of the last record of a zip archive, in bytes."""


def check_unpacked(where: str | Path, unpacked: int, stored: int) -> None:
    """Raise an error for data that claims to be far larger than its file, before allocating memory.

    The environment variable `MERLIN_MAX_RATIO` allows a larger ratio.
    """
    given = os.environ.get("MERLIN_MAX_RATIO", str(RATIO))
    if not given.isdecimal() or len(given) > 18:
        raise MerlinError(f"MERLIN_MAX_RATIO: {given[:20]!r} is not a whole number; give one.")
    if unpacked > max(FREE_BYTES, int(given) * stored):
        raise MerlinError(
            f"{where}: claims to hold {unpacked} bytes in a file of {stored}; if that is right, "
            f"set MERLIN_MAX_RATIO to more than {unpacked // max(stored, 1)}."
        )


class Header(NamedTuple):
    """The header of an .npy file."""

    shape: tuple[int, ...]
    column_major: bool
    dtype: np.dtype

    @property
    def size(self) -> int:
        """In bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes], size: int) -> Header:
    """Read the header of an .npy of `size` bytes, which the array must fit into."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a corrupt header may warn before it fails
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise ValueError(f"an array of version {version}")
        header = Header(*read(file))
    if header.dtype.hasobject or header.size > size:
        raise ValueError(f"{header.dtype} of shape {header.shape} in {size} bytes")
    return header


def read_npz(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Read those of the named arrays that an .npz holds, verifying their checksums."""
    wanted = {f"{name}.npy": name for name in names}
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        _check_directory(file, archive)
        for member in archive.infolist():
            archive.open(member).close()  # fails if the two copies of the name differ
        members = [member for member in archive.infolist() if member.filename in wanted]
        unpacked = sum(member.file_size for member in members)
        check_unpacked(path, unpacked, os.fstat(file.fileno()).st_size)
        return {wanted[member.filename]: _array(archive, member) for member in members}


def _check_directory(file: IO[bytes], archive: zipfile.ZipFile) -> None:
    """Raise an error if members are missing: damaged lengths in the directory hide those behind."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - END_BYTES))
    end = file.read()
    at = end.rfind(b"PK\5\6") + 10  # the number of members is at this place of the last record
    if int.from_bytes(end[at : at + 2], "little") != len(archive.infolist()):
        raise ValueError("its directory does not list all members")


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Read one array, whose declared shape must match its number of bytes."""
    with archive.open(member) as file:
        shape, column_major, dtype = read_header(file, member.file_size)
        size = member.file_size - file.tell()
        if math.prod(shape) * dtype.itemsize != size:
            raise ValueError(f"{member.filename} has {size} bytes for {dtype}{list(shape)}")
        content = bytearray(file.read(size))  # to the end, where the checksum is verified
    array = np.frombuffer(content, dtype)
    return array.reshape(shape[::-1]).T if column_major else array.reshape(shape)
