"""The command line: parse, call, print."""

from merlin.cli.app import main

__all__ = ["main"]
