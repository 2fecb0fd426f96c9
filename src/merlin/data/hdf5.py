"""Reading untrusted HDF5 files: only arrays stored in the file itself are read."""

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


def text_attribute(group: Any, name: str) -> str | None:
    """An attribute that is one string, or None.

    The HDF5 library reads beyond its memory where the type of a damaged attribute does not fit
    what is stored, so only strings are read.
    """
    import h5py

    if name not in group.attrs:
        return None
    attribute = group.attrs.get_id(name)
    if attribute.get_type().get_class() != h5py.h5t.STRING or attribute.shape != ():
        return None
    value = group.attrs[name]
    return value if isinstance(value, str) else None


def check_stored(node: Any) -> None:
    """Refuse an array that is stored in other files, or that has huge chunks."""
    if node.is_virtual or node.external:
        raise MerlinError(
            f"{node.file.filename}: {node.name} is kept in another file; copy it into this one."
        )
    if math.prod(node.chunks or ()) * node.dtype.itemsize > MOST_CHUNK_BYTES:
        raise ValueError(f"{node.name} has chunks of {node.chunks}")
