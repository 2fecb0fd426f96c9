"""The command line: parse arguments, call the library, print results."""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; see `merlin.cli.app`, whose imports take a second that Ctrl-C may end."""
    try:
        from merlin.io.interruption import never_lost

        with never_lost():
            from merlin.cli import app
    except KeyboardInterrupt:
        print("merlin: stopped.", file=sys.stderr)
        sys.exit(130)
    app.main(arguments)
