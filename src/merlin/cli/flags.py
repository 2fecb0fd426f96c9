"""The names of arguments in messages of the library, written as flags of a command."""

import dataclasses
import re
import shlex
import typing
from collections.abc import Iterator
from typing import Any

import tyro

OTHERWISE = {"method": "algo"}
"""Arguments of functions that have another name on the command line."""
SUBJECTS = ("data", "run", "source", "destination", "task")
"""Words at the beginning of a message that say what it is about, not which option."""
QUOTES = "'\""


def with_flags(message: str, command: Any) -> str:
    """Write `name: ...` as `--name: ...`, and "`name=value`" as "--name value"."""
    known = set(_options(command)) if dataclasses.is_dataclass(command) else set()

    def flag(name: str) -> str | None:
        option = OTHERWISE.get(name, name)
        return f"--{option.replace('_', '-')}" if option in known else None

    def quoted(found: re.Match[str]) -> str:
        name, value = found.groups()
        if (option := flag(name)) is None:
            return found.group()
        return option if value in (None, "True") else f"{option} {shlex.quote(value.strip(QUOTES))}"

    head = re.match(r"([a-z_]+)(?=[: ])", message)
    if head and head.group() not in SUBJECTS and (option := flag(head.group())):
        message = option + message[head.end() :]
    return re.sub(r"`([a-z_]+)(?:=([^`]*))?`", quoted, message)


def _options(command: Any) -> Iterator[str]:
    """Names of the flags of a command, including those of its groups of options."""
    hints = typing.get_type_hints(type(command), include_extras=True)
    for field in dataclasses.fields(command):
        if tyro.conf.Positional not in typing.get_args(hints[field.name]):
            yield field.name
        if dataclasses.is_dataclass(value := vars(command)[field.name]):
            yield from _options(value)
