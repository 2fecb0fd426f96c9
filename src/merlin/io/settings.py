"""Settings as text, `field=value`, read as the fields of a dataclass."""

import contextlib
import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from merlin.errors import MerlinError


def build(
    name: str,
    kind: Any,
    settings: Mapping[str, str],
    tuned_values: Mapping[str, Any],
    preset: str | None,
) -> Any:
    """Build a dataclass of hyperparameters; errors refer to it as `name`.

    A `preset` is looked up in the mapping `presets` of the class.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind)
    values = {
        key: value
        for key, value in tuned_values.items()
        if key in fields and fields[key].metadata.get("tuned")
    }
    if preset is not None:
        presets: Mapping[str, Mapping[str, Any]] = kind.presets
        if preset not in presets:
            if not presets:
                raise MerlinError(f"preset: {name} has no presets; leave it out.")
            known = instead(preset, presets)
            raise MerlinError(f"preset: {name} has no preset {preset!r}; {known}")
        values |= presets[preset]
    for key, text in settings.items():
        if key not in fields:
            raise MerlinError(f"set: {name} has no field {key!r}; {instead(key, fields)}")
        values[key] = _parse(text, hints[key], f"set {key}={text}")
    return kind(**values)


def check_types(settings: Any) -> None:
    """Raise an error unless every field of a dataclass has a value of its annotated type."""
    kind: type = type(settings)
    check_values(kind, {name: vars(settings)[name] for name in _hints(kind)})


def check_values(kind: Any, values: Mapping[str, Any]) -> None:
    """Raise an error unless the values have the types of the fields of a dataclass."""
    for name, value in values.items():
        if not _is(value, hint := _hints(kind)[name]):
            raise MerlinError(f"{name}: {value!r} is not {_in_words(hint)}.")


def plain(value: Any) -> Any:
    """A value as JSON can store it: a number of Python instead of NumPy, and a tuple for a list."""
    if isinstance(value, np.generic):
        return value.item()
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value


@functools.cache
def _hints(kind: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _is(value: Any, hint: Any) -> bool:
    """Whether a value fits an annotation; booleans are no numbers, but integers are."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_is(one, parts[0]) for one in value)
    if parts:
        return any(_is(value, part) for part in parts)
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, hint)


def _in_words(hint: Any) -> str:
    """An annotation in the words of an error message."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return f"a tuple, each part of which is {_in_words(parts[0])}"
    words = {int: "an integer", float: "a number", bool: "True or False", str: "text"}
    words[types.NoneType] = "None"
    return " or ".join(map(_in_words, parts)) if parts else words.get(hint, hint.__name__)


def instead(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: a suggestion."""
    folded = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), folded, n=1)
    if close:
        return f"did you mean {folded[close[0]]!r}?"
    return f"choose from {', '.join(folded.values())}."


_WORDS: Mapping[type, Mapping[str, bool | None]] = {
    bool: {"true": True, "false": False},
    types.NoneType: {"none": None},
}


# We tried tyro here: it reads neither `none` nor `true`, turning its boxed errors into a sentence
# takes as much code, and importing it takes 0.3 s.
def _parse(text: str, kind: Any, where: str) -> Any:
    """Read `text` as a value of the annotated type of a field."""
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return tuple(_parse(part, parts[0], where) for part in text.split(","))
    if parts:  # a union; None first, because str would accept the word "none"
        for option in sorted(parts, key=lambda part: part is not types.NoneType):
            with contextlib.suppress(MerlinError):
                return _parse(text, option, where)
        names = ("none" if part is types.NoneType else part.__name__ for part in parts)
        raise MerlinError(f"{where}: must be one of {', '.join(names)}.")
    if kind in _WORDS:
        if text.lower() not in _WORDS[kind]:
            raise MerlinError(f"{where}: write {' or '.join(_WORDS[kind])}.")
        return _WORDS[kind][text.lower()]
    try:
        return kind(text)
    except ValueError:
        example = {int: "a whole number", float: "a number"}.get(kind, kind.__name__)
        raise MerlinError(f"{where}: {text!r} is not {example}.") from None
