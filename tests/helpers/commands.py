"""The installed command, in a process of its own."""

import subprocess
import sys
from pathlib import Path

MERLIN = Path(sys.executable).with_name("merlin")


def merlin_command(*arguments, cwd=None) -> subprocess.CompletedProcess:
    """What `merlin ARGUMENTS` printed, and its exit code."""
    command = [str(MERLIN), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
