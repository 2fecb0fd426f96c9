"""Read chosen fields of structs in Thrift's compact protocol, in which parquet keeps its metadata.

Other fields are skipped, because a large file has hundreds of thousands of them. Input that two
readers could interpret differently, such as a duplicate field, is refused.
"""

import functools
import re
from collections.abc import Iterable
from typing import Any

Wanted = dict[int, Any]
"""Fields by number: INT32, INT64, a `Wanted` for a struct, [`Wanted`] for a list of structs, or
None for one that is not supported."""

TRUE, FALSE, BYTE, INT16, INT32, INT64, DOUBLE, BINARY, LIST, SET, STRUCT = (*range(1, 11), 12)
MOST_DEPTH, MOST_FIELD = 16, (1 << 15) - 1


def read_struct(content: bytes, wanted: Wanted, at: int = 0) -> tuple[dict[int, Any], int]:
    """The wanted fields of the struct at an offset, and the offset after the struct.

    Raises IndexError if the content ends too early.
    """
    found: dict[int, Any] = {}
    number, last, skip_rest = 0, max(wanted), _rest_of_struct().match
    while head := content[at]:
        at += 1
        kind = head & 15
        if head > 15:
            number += head >> 4
        else:
            number, at = _integer(content, at)
        if not 0 <= number <= MOST_FIELD:
            raise ValueError(f"its metadata has a field {number}")
        if number not in wanted:
            if INT16 <= kind <= INT64:  # as most are, so it is done without a call
                while content[at] > 127:
                    at += 1
                at += 1
            else:
                at = _skip(content, at, kind, 1)
        elif number in found:
            raise ValueError(f"its metadata has the field {number} twice")
        elif kind == wanted[number]:
            found[number], at = _integer(content, at)
        else:
            found[number], at = _nested(content, at, kind, wanted[number])
        if number >= last and (rest := skip_rest(content, at)):
            return found, rest.end()
    return found, at + 1


def _nested(content: bytes, at: int, kind: int, wanted: Any) -> tuple[Any, int]:
    """A struct, or a list of structs."""
    if kind == STRUCT and isinstance(wanted, dict):
        return read_struct(content, wanted, at)
    if kind != LIST or not isinstance(wanted, list):
        raise ValueError(f"its metadata has a field of kind {kind} where none is supported")
    count, kind, at = _list(content, at)
    found = []
    for _ in range(count):
        value, at = _nested(content, at, kind, wanted[0])
        found.append(value)
    return found, at


def _skip(content: bytes, at: int, kind: int, depth: int, *, within_list: bool = False) -> int:
    """The offset after a value."""
    if depth > MOST_DEPTH:
        raise ValueError("its metadata is nested too deeply")
    if INT16 <= kind <= INT64:
        while content[at] > 127:
            at += 1
        return at + 1
    if kind == BINARY:
        length, at = _unsigned(content, at)
        return at + length
    if kind in (LIST, SET):
        count, kind, at = _list(content, at)
        for _ in range(count):
            at = _skip(content, at, kind, depth + 1, within_list=True)
        return at
    if kind == STRUCT:
        while head := content[at]:
            at = at + 1 if head > 15 else _skip(content, at + 1, INT16, depth)
            at = _skip(content, at, head & 15, depth + 1)
        return at + 1
    if kind in (TRUE, FALSE):  # the kind is the value, except in lists
        return at + within_list
    if kind in (BYTE, DOUBLE):
        return at + (1 if kind == BYTE else 8)
    raise ValueError(f"its metadata has a field of kind {kind}")


def _list(content: bytes, at: int) -> tuple[int, int, int]:
    """The number and type of the values in a list, and the offset of the first."""
    head = content[at]
    count, at = _unsigned(content, at + 1) if head >> 4 == 15 else (head >> 4, at + 1)
    if count > len(content) - at:
        raise IndexError("its metadata ends too early")
    return count, head & 15, at


def _unsigned(content: bytes, at: int) -> tuple[int, int]:
    byte = content[at]
    if byte < 128:
        return byte, at + 1
    found = byte & 127
    for shift in range(7, 70, 7):
        at += 1
        byte = content[at]
        found |= (byte & 127) << shift
        if byte < 128:
            return found, at + 1
    raise ValueError("its metadata has a number of too many bytes")


def _integer(content: bytes, at: int) -> tuple[int, int]:
    found, at = _unsigned(content, at)
    return (found >> 1) ^ -(found & 1), at


@functools.cache
def _rest_of_struct() -> re.Pattern[bytes]:
    """A pattern that matches the remaining fields of a simple struct, such as statistics.

    Field numbers must increase, by too little to overflow, so that no earlier field is repeated.
    The pattern only saves time: structs that it does not match are skipped field by field.
    """

    def field(*kinds: int) -> bytes:
        return b"[%s]" % re.escape(bytes(rise << 4 | k for rise in range(1, 16) for k in kinds))

    def counted(value: bytes, heads: Iterable[int]) -> bytes:
        ways = (
            re.escape(bytes([head])) + b"(?:%s){%d}" % (value, n) for n, head in enumerate(heads)
        )
        return b"(?:%s)" % b"|".join(ways)

    def values(kind: int, value: bytes, most: int) -> bytes:
        return counted(value, range(kind, most << 4, 16))

    number = rb"[\x80-\xff]*+[\x00-\x7f]"
    simple = b"|".join(
        [
            field(INT16, INT32, INT64) + number,
            field(TRUE, FALSE),
            field(BINARY) + counted(b".", range(17)),
            field(LIST) + values(INT32, number, 15),
            field(LIST) + values(INT64, number, 15),
        ]
    )
    struct = b"(?:%s)*+\0" % simple
    nested = field(STRUCT) + struct + b"|" + field(LIST) + values(STRUCT, struct, 6)
    return re.compile(b"(?:%s|%s){0,30}+\0" % (simple, nested), re.DOTALL)
