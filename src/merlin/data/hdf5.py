"""HDF5 files that may come from anyone: only arrays stored in the file itself are read."""

import math
from typing import Any

from merlin.errors import MerlinError

MOST_CHUNK_BYTES = 1 << 26


def inside(group: Any, path: str) -> Any:
    """The object at a path in the same file; links are rejected, since they can leave it."""
    import h5py

    for part in path.split("/"):
        if not isinstance(group.get(part, getlink=True), h5py.HardLink):
            raise ValueError(f"{part[:80]} is missing or a link")
        group = group[part]
    return group


def check_stored(node: Any) -> None:
    """Refuse an array that would read other files, or that is unpacked in huge pieces."""
    if node.is_virtual or node.external:
        raise MerlinError(
            f"{node.file.filename}: {node.name} is kept in another file; copy it into this one."
        )
    if math.prod(node.chunks or ()) * node.dtype.itemsize > MOST_CHUNK_BYTES:
        raise ValueError(f"{node.name} has chunks of {node.chunks}")
