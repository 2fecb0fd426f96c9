"""Options that several commands have."""

import math
from pathlib import Path

from merlin.errors import MerlinError
from merlin.io.files import write_bytes

RUN_AGAIN = "stopped; run the same command again to resume."
"""What a command says that continues where Ctrl-C stopped it."""


def check_tolerance(tolerance: float | None) -> None:
    """Raise an error for a --tolerance that is no distance."""
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise MerlinError(f"--tolerance: {tolerance} is not a distance; give a number above 0.")


def write_html(path: Path, page: str) -> None:
    """Write the page of --html."""
    try:
        write_bytes(path, page.encode())
    except OSError as error:
        raise MerlinError(f"html {path}: cannot be written ({error.strerror}).") from None
