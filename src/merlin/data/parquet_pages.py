"""The size of parquet pages once unpacked, from their headers alone.

A page of a few bytes can stand for a thousand million equal numbers, and a reader allocates them
all. The footer tells where the pages of a column are, and the header of each page tells how many
values and bytes it unpacks to. Both are Thrift structs in the compact protocol.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO

from merlin.data.archives import check_unpacked
from merlin.io.files import open_regular

MAGIC = b"PAR1"
MOST_DEPTH, MOST_PAGES, MOST_FOOTER, HEADER_BYTES = 16, 300_000, 1 << 24, 1 << 13
VALUE_BYTES = 8
ROW_GROUPS, COLUMNS, FILE, META = 4, 1, 1, 3
PATH, COMPRESSED, DATA_OFFSET, DICTIONARY_OFFSET = 3, 7, 9, 11
UNPACKED_SIZE, PACKED_SIZE, PAGE_HEADERS = 2, 3, (5, 7, 8)
"""Numbers of the fields in the footer, its row groups and columns, and in the header of a page."""
_BINARY, _STRUCT, _LISTS = 8, 12, (9, 10)


def check_pages(path: Path, names: Collection[str]) -> None:
    """Refuse a file whose named columns unpack to far more than its size."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        footer = _footer(file, size)
        unpacked = pages = 0
        for group in footer.get(ROW_GROUPS, []):
            for column in group.get(COLUMNS, []):
                if FILE in column:
                    raise ValueError("a column is kept in another file")
                about = column.get(META, {})
                if about.get(PATH, [b""])[0].decode(errors="replace") in names:
                    sizes = _page_sizes(file, about, size, MOST_PAGES - pages)
                    unpacked, pages = unpacked + sum(sizes), pages + len(sizes)
                    check_unpacked(path, unpacked, size)


def _footer(file: BinaryIO, size: int) -> dict[int, Any]:
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length + 12 > size or length > MOST_FOOTER:
        raise ValueError("it does not end as parquet files do")
    file.seek(size - 8 - length)
    return _Thrift(file.read(length)).struct()


def _page_sizes(file: BinaryIO, about: dict[int, Any], size: int, most: int) -> list[int]:
    """The bytes that each page of one column of one row group unpacks to."""
    at = about.get(DICTIONARY_OFFSET) or about[DATA_OFFSET]
    at = min(at, about[DATA_OFFSET])
    end, sizes = at + about[COMPRESSED], list[int]()
    if not 0 < at <= end <= size:
        raise ValueError("a column lies outside of the file")
    while at < end:
        file.seek(at)
        content = file.read(HEADER_BYTES)
        try:
            header = _Thrift(content)
            found = header.struct()
        except IndexError:  # it has long statistics
            header = _Thrift(content + file.read(1 << 24))
            found = header.struct()
        counts = [found[key].get(1, 0) for key in PAGE_HEADERS if key in found]
        if min(found[UNPACKED_SIZE], found[PACKED_SIZE], *counts, 0) < 0:
            raise ValueError("a page has a negative size")
        sizes.append(found[UNPACKED_SIZE] + VALUE_BYTES * sum(counts))
        if len(sizes) > most:
            raise ValueError(f"it has more than {MOST_PAGES} pages")
        at += header.at + found[PACKED_SIZE]
    return sizes


class _Thrift:
    """Reads the compact protocol; structs become dicts by the numbers of their fields."""

    def __init__(self, content: bytes):
        self.content, self.at = content, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > MOST_DEPTH:
            raise ValueError("its metadata is nested too deeply")
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            found[number] = self._value(head & 15, depth, within=False)
        return found

    def _value(self, kind: int, depth: int, *, within: bool) -> Any:
        if kind in (1, 2):  # true and false: a byte of their own only within lists
            return self._byte() if within else kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._integer()
        if kind == 7:
            return self._bytes(8)
        if kind == _BINARY:
            return self._bytes(self._unsigned())
        if kind in _LISTS:
            head = self._byte()
            count = self._unsigned() if head >> 4 == 15 else head >> 4
            self._check(count)
            return [self._value(head & 15, depth + 1, within=True) for _ in range(count)]
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise ValueError(f"its metadata has a field of kind {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.content[self.at - 1]

    def _unsigned(self) -> int:
        found = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
        raise ValueError("its metadata has a number of too many bytes")

    def _integer(self) -> int:
        found = self._unsigned()
        return (found >> 1) ^ -(found & 1)

    def _bytes(self, count: int) -> bytes:
        self._check(count)
        self.at += count
        return self.content[self.at - count : self.at]

    def _check(self, count: int) -> None:
        if count > len(self.content) - self.at:
            raise IndexError("its metadata ends too early")
