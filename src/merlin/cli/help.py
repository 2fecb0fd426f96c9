"""Help texts: the docstring below a field as one paragraph, and its default if it says anything."""

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
import typing
from collections.abc import Iterator
from typing import Annotated, Any

import tyro

SILENT = ("None", "False", "")
"""Defaults that are not shown, because the help text explains them or they are obvious."""


@functools.cache
def describe(command: type) -> None:
    """Attach the help texts to the annotations of a command and of its groups of options."""
    for kind in _dataclasses(command):
        texts = dict(_texts(kind))
        for name, annotation in kind.__annotations__.items():
            about = tyro.conf.arg(help=texts.get(name), help_behavior_hint=_default)
            kind.__annotations__[name] = Annotated[annotation, about]


def paragraphs(command: type) -> str:
    """The description; tyro adds the empty line before examples itself."""
    return inspect.cleandoc(command.__doc__ or "").replace("\n\n  ", "\n  ")


def _default(value: str) -> str:
    return "" if value in SILENT else f"(default: {value})"


def _dataclasses(kind: Any) -> Iterator[type]:
    """The dataclasses that a type consists of."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        yield kind
        for hint in typing.get_type_hints(kind, include_extras=True).values():
            yield from _dataclasses(hint)
    for part in typing.get_args(kind):
        yield from _dataclasses(part)


def _texts(kind: type) -> Iterator[tuple[str, str]]:
    """The fields that are followed by a docstring, each with it."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    for field, below in itertools.pairwise(tree.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, " ".join(text.split())
