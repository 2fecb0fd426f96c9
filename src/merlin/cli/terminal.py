"""Print names from files safely: control characters must not reach the terminal."""

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any

_COMMANDS = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x80-\x9f]")
"""Control characters, except newlines, tabs, and the escapes for colours that tables have."""


class _Printable:
    """A text stream that shows control characters instead of sending them to the terminal."""

    def __init__(self, raw: Any):
        self.raw = raw

    def write(self, text: str) -> int:
        shown = _COMMANDS.sub(lambda found: ascii(found[0])[1:-1], text)
        encoding = self.raw.encoding or "utf-8"  # which may lack a letter of a file name
        self.raw.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


@contextlib.contextmanager
def safe_output() -> Iterator[None]:
    """Print control characters as text within the block."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (None if stream is None else _Printable(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
