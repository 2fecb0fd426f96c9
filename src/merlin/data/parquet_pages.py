"""The size of parquet pages once unpacked, from their headers alone.

A page of a few bytes can stand for a thousand million equal numbers, and a reader allocates them
all. The footer tells where the pages of a column are, and the header of each page tells how many
values and bytes it unpacks to.
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
"""Where each column of each row group begins and ends in the file."""


def find_chunks(path: Path, columns: int) -> Chunks:
    """Read from the footer where the columns are; `columns` is how many the schema has."""
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
    """The memory that chosen columns take once unpacked, by the headers of their pages."""
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
    """The bytes that a page unpacks to, and those that it takes in the file with its header."""
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
