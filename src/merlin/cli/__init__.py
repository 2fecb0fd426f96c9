"""The command line: parse arguments, call the library, print results."""

from merlin.cli.app import main

__all__ = ["main"]
