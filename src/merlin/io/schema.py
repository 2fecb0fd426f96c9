"""JSON as dataclasses: every field must have the type of its annotation."""

import contextlib
import dataclasses
import functools
import types
import typing
from numbers import Integral
from typing import Any

from merlin.errors import MerlinError

MOST = 2**63
"""Larger integers do not fit into NumPy's int64."""
_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def read_as(kind: Any, value: Any, where: object) -> Any:
    """`value` as the type `kind`; keys without a field in a dataclass are ignored."""
    return _read(kind, value, where, "it")


def _read(kind: Any, value: Any, where: object, name: str) -> Any:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        for part in parts:
            with contextlib.suppress(MerlinError):
                return _read(part, value, where, name)
    elif dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return _object(kind, value, where)
    elif origin in (tuple, list) and isinstance(value, list):
        return origin(_read(parts[0], part, where, name) for part in value)
    elif origin is dict and isinstance(value, dict):
        return {key: _read(parts[1], part, where, f"{name}.{key}") for key, part in value.items()}
    elif kind in (int, float) and type(value) in (int, kind) and abs(value) < MOST:
        return value
    elif kind is float and type(value) is float:
        return value  # infinity or NaN
    elif kind in (str, bool, types.NoneType) and type(value) is kind:
        return value
    wanted = _WORDS.get(kind, "what it should be")
    raise MerlinError(
        f"{where}: {name} is {_short(value)}, not {wanted}; restore or recreate the file."
    )


def _object(kind: Any, content: dict[str, Any], where: object) -> Any:
    found = {}
    for field in dataclasses.fields(kind):
        if field.name in content:
            hint = _hints(kind)[field.name] if isinstance(field.type, str) else field.type
            found[field.name] = _read(hint, content[field.name], where, field.name)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise MerlinError(f"{where}: lacks {field.name!r}; restore or recreate the file.")
    return kind(**found)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _short(value: Any) -> str:
    """A short form of a value, cut before it becomes text because it may be huge."""
    if isinstance(value, dict | list):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, int) and abs(value) >= MOST:
        return "a number of many digits"
    text = value[:40] if isinstance(value, str) else value
    return repr(text)


MOST_EPISODES = 10**7


def is_integer(value: Any) -> bool:
    """Whether a value is an integer; booleans do not count."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_episodes(name: str, count: int) -> None:
    """Refuse a number of episodes that is below 1 or unreasonably large."""
    if not is_integer(count) or count < 1:
        raise MerlinError(f"{name}: {count!r} is not a number of episodes; give 1 or more.")
    if count > MOST_EPISODES:
        raise MerlinError(f"{name}: {count} is more than {MOST_EPISODES}; give fewer.")
