"""The unpacked size of parquet pages, computed from their headers alone.

A page of a few bytes can encode a billion equal numbers, and a reader allocates memory for all of
them. The footer has the location of the pages of each column, and the header of a page has the
number of values and bytes that it unpacks to.
"""

import os
from pathlib import Path

import numpy as np
from jaxtyping import Int

from merlin.data.thrift import INT32, INT64, read_struct
from merlin.io.files import open_regular

MAGIC = b"PAR1"
MOST_PAGES, MOST_FOOTER, HEADER_BYTES = 300_000, 1 << 24, 1 << 7
VALUE_BYTES = 8
ROW_GROUPS, COLUMNS, FILE, META = 4, 1, 1, 3
COMPRESSED, DATA_OFFSET, DICTIONARY_OFFSET = 7, 9, 11
CHUNK = {FILE: None, META: dict.fromkeys((COMPRESSED, DATA_OFFSET, DICTIONARY_OFFSET), INT64)}
FOOTER = {ROW_GROUPS: [{COLUMNS: [CHUNK]}]}
UNPACKED_SIZE, PACKED_SIZE, KINDS = 2, 3, (5, 7, 8)
PAGE = {UNPACKED_SIZE: INT32, PACKED_SIZE: INT32, **{kind: {1: INT32} for kind in KINDS}}
"""Numbers of the fields in the footer, its row groups and columns, and in the header of a page."""

Chunks = Int[np.ndarray, "groups columns 2"]
"""The start and end of each column of each row group in the file."""


def find_chunks(path: Path, columns: int) -> Chunks:
    """Read the positions of the columns from the footer; the schema has `columns` of them."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(size - 8, 0))
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != MAGIC or length + 12 > size or length > MOST_FOOTER:
            raise ValueError("it does not end as parquet files do")
        file.seek(size - 8 - length)
        footer = file.read(length)
    groups, _ = read_struct(footer, FOOTER)
    found = []
    for group in groups[ROW_GROUPS]:
        if len(group[COLUMNS]) != columns:
            raise ValueError("a row group does not hold every column once")
        for chunk in group[COLUMNS]:
            about = chunk[META]
            at = about[DATA_OFFSET]
            if 0 < (dictionary := about.get(DICTIONARY_OFFSET, at)) < at:
                at = dictionary
            if not 0 < at <= at + about[COMPRESSED] <= size:
                raise ValueError("a column lies outside of the file")
            found.append((at, at + about[COMPRESSED]))
    return np.array(found, np.int64).reshape(-1, columns, 2)


def unpacked_bytes(path: Path, chunks: Chunks) -> int:
    """The unpacked size of the given columns in bytes, computed from the headers of their pages."""
    places = chunks.reshape(-1, 2)
    unpacked = pages = 0
    with open_regular(path) as file:
        if (places[:, 1] - places[:, 0]).sum(dtype=float) > os.fstat(file.fileno()).st_size:
            raise ValueError("its columns overlap")
        for at, end in places.tolist():
            while at < end:
                taken, packed = _page(file.fileno(), at)
                unpacked, pages, at = unpacked + taken, pages + 1, at + packed
                if pages > MOST_PAGES:
                    raise ValueError(f"it has more than {MOST_PAGES} pages")
    return unpacked


def _page(file: int, at: int) -> tuple[int, int]:
    """The unpacked size of a page, and its size in the file including the header, in bytes."""
    length = HEADER_BYTES
    while True:
        content = os.pread(file, length, at)
        try:
            header, behind = read_struct(content, PAGE)
            break
        except IndexError:  # it has long statistics
            if len(content) < length:
                raise
            length *= 8
    sizes = [header[UNPACKED_SIZE], header[PACKED_SIZE]]
    counts = [header[kind].get(1, 0) for kind in KINDS if kind in header]
    if not 0 <= min(sizes + counts) <= max(sizes + counts) < 1 << 31:
        raise ValueError("a page has an impossible size")
    return sizes[0] + VALUE_BYTES * sum(counts), behind + sizes[1]
