"""The WGCSL benchmark's buffer.pkl: a pickled dict of arrays, read without trusting the file.

o   (episodes, steps + 1, observation)   states
u   (episodes, steps, action)            actions
g   (episodes, steps, goal)              the desired goal, the same at every step
ag  (episodes, steps + 1, goal)          achieved goals

A pickle is a program that names functions and calls them. Here, the few names that a pickled array
needs refer to our own functions, which only record shape, type and bytes. NumPy then sees only what
they recorded. Any other name is rejected.
"""

import codecs
import hashlib
import math
import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from merlin.data.conversion import (
    achieved_goals,
    action_range,
    constant_goals,
    float32,
    float32_or_images,
    reading,
)
from merlin.data.dataset import Dataset
from merlin.errors import MerlinError
from merlin.io.files import open_regular, write_bytes

KEYS = ("o", "u", "g", "ag")
MARK = b"merlin-sha256:"
"""Separates a pickle written by us from its checksum."""
NUMBER_TYPES = {"b1", *(f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8))}
NUMBER_TYPES |= {"f2", "f4", "f8"}


def read(path: str, phi: Sequence[int] | None = None) -> Dataset:
    """Read a buffer.pkl. It names no task and no action bounds, which are -1 and 1 unless exceeded
    by the actions."""
    with reading(path, "a pickle of arrays"), open_regular(Path(path)) as file:
        _verify(file, path)
        arrays = _Unpickler(_Bounded(file), path).load()
    states, actions, goals, achieved = _check(arrays, path)
    episodes, length = states.shape[:2]
    observations = states.reshape(-1, *states.shape[2:])
    actions = float32(actions).reshape(-1, actions.shape[2])
    low, high = action_range(actions, within=(-1.0, 1.0))
    return Dataset(
        observations=float32_or_images(observations),
        actions=actions,
        achieved_goals=achieved_goals(
            observations, achieved.reshape(-1, achieved.shape[2]), phi, path
        ),
        desired_goals=constant_goals(float32(goals), path),
        starts=np.arange(episodes + 1, dtype=np.int64) * length,
        action_low=low,
        action_high=high,
    )


def write(data: Dataset, path: str, overwrite: bool = False) -> None:
    """Write a buffer.pkl; episodes must have equal lengths and desired goals."""
    if data.desired_goals is None:
        raise MerlinError(f"{path}: this format needs desired goals, which the data lacks.")
    length = int(data.lengths[0])
    if (data.lengths != length).any():
        odd = int(np.flatnonzero(data.lengths != length)[0])
        raise MerlinError(
            f"{path}: this format needs episodes of one length, but episode {odd} has "
            f"{data.lengths[odd]} states and episode 0 has {length}; choose another format."
        )
    episodes = len(data)
    content = {
        "o": data.observations.reshape(episodes, length, *data.observations.shape[1:]),
        "u": data.actions.reshape(episodes, length - 1, -1),
        "g": np.repeat(data.desired_goals[:, None], length - 1, axis=1),
        "ag": data.achieved_goals.reshape(episodes, length, -1),
    }
    # A memory map would be pickled as such and could not be read elsewhere.
    plain = {key: np.ascontiguousarray(array) for key, array in content.items()}
    program = pickle.dumps(plain, protocol=4)
    # Unpicklers stop at the end of the program, so they never see the checksum.
    sealed = program + MARK + hashlib.sha256(program).hexdigest().encode()
    write_bytes(Path(path), sealed, overwrite=overwrite)


def _verify(file: BinaryIO, path: str) -> None:
    """Compare a file written by us with the checksum at its end."""
    tail = len(MARK) + 64
    program = os.fstat(file.fileno()).st_size - tail
    if program > 0:
        file.seek(program)
        mark, digest = file.read(len(MARK)), file.read()
        if mark == MARK:
            file.seek(0)
            found = hashlib.sha256()
            while program > 0:
                piece = file.read(min(program, 1 << 20))
                found.update(piece)
                program -= len(piece)
            if found.hexdigest().encode() != digest:
                raise MerlinError(f"{path}: its checksum is wrong; get the file again.")
    file.seek(0)


def _check(arrays: Any, path: str) -> tuple[np.ndarray, ...]:
    """The four arrays, if their shapes are consistent."""
    if not isinstance(arrays, dict):
        raise MerlinError(f"{path}: holds no dict with the keys o, u, g, ag; give a WGCSL buffer.")
    for key in KEYS:
        if not isinstance(arrays.get(key), _Array) or arrays[key].numbers is None:
            raise MerlinError(f"{path}: has no array under the key {key!r}; write it again.")
    found = tuple(arrays[key].numbers for key in KEYS)
    for key, array in zip(KEYS, found, strict=True):
        most = 5 if key == "o" else 3
        if array.ndim not in (3, most) or 0 in array.shape:
            raise MerlinError(
                f"{path}: {key} has the shape {array.shape}; give it episodes, steps and "
                "numbers, none of them empty."
            )
    o, u, _, ag = found
    episodes, states = o.shape[:2]
    action_dim, goal_dim = u.shape[2], ag.shape[2]
    wanted = {
        "u": (episodes, states - 1, action_dim),
        "g": (episodes, states - 1, goal_dim),
        "ag": (episodes, states, goal_dim),
    }
    for key, shape in wanted.items():
        if arrays[key].numbers.shape != shape:
            raise MerlinError(
                f"{path}: {key} has the shape {arrays[key].numbers.shape}, not the {shape} that "
                f"{episodes} episodes of {states} states need; write it again."
            )
    return found


class _Kind:
    """Replaces numpy.dtype: a numeric type code and its byte order."""

    def __init__(self, code: str, *_: Any):
        if code not in NUMBER_TYPES:
            raise pickle.UnpicklingError(f"arrays of {str(code)[:20]!r} are not read, only numbers")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        _, order, *fields = state
        if order not in ("<", ">", "|", "=") or any(part is not None for part in fields[:3]):
            raise pickle.UnpicklingError("an array has a type that is not a plain number")
        self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """Replaces numpy.ndarray: built from bytes only if their number matches shape and type."""

    def __init__(self, *_: Any):
        self.numbers: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, column_major, content = state
        self.numbers = _from_bytes(content, kind, shape, "F" if column_major else "C")


def _from_bytes(content: Any, kind: Any, shape: Any, order: Any) -> np.ndarray:
    plain = isinstance(content, bytes | bytearray) and isinstance(kind, _Kind)
    whole = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
    if not (plain and whole and order in ("C", "F")):
        raise pickle.UnpicklingError("an array is not described as NumPy describes one")
    if len(shape) > 5 or math.prod(shape) * kind.dtype.itemsize != len(content):
        raise pickle.UnpicklingError(f"{len(content)} bytes do not fill an array of {shape}")
    return np.frombuffer(content, kind.dtype).reshape(shape, order=order)


def _frombuffer(content: Any, kind: Any, shape: Any, order: Any, *_: Any) -> _Array:
    """The function with which protocol 5 builds an array."""
    array = _Array()
    array.numbers = _from_bytes(content, kind, shape, order)
    return array


def _scalar(kind: Any, content: Any) -> _Array:
    return _frombuffer(content, kind, (), "C")


def _encode(text: str, encoding: str) -> bytes:
    """The function with which protocols 0 to 2 build bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes are encoded as {str(encoding)[:20]!r}, not latin1")
    return codecs.encode(text, "latin1")


class _Allowed:
    """A function that a file may call but not modify, unlike a plain function object."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("it tries to change a function")


_ALLOWED = {
    ("numpy", "ndarray"): _Allowed(_Array),
    ("numpy", "dtype"): _Allowed(_Kind),
    ("_codecs", "encode"): _Allowed(_encode),
    **{
        (f"numpy.{core}.{module}", name): _Allowed(function)
        for core in ("core", "_core")
        for module, name, function in (
            ("multiarray", "_reconstruct", _Array),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _frombuffer),
        )
    },
}


# The Python implementation: the one in C allocates memory for as many objects as a damaged file
# claims. A buffer has about a hundred instructions, so the speed is the same.
class _Unpickler(pickle._Unpickler):
    """Reads arrays and plain containers only."""

    def __init__(self, file: "_Bounded", path: str):
        super().__init__(file, fix_imports=False)
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except (KeyError, TypeError):
            named = f"{module}.{name}"[:80]
            raise MerlinError(
                f"{self._path}: is not trusted, since it asks for {named!r}, which arrays do not "
                "need; nothing of it was executed, get the file from its authors."
            ) from None

    def get_extension(self, code: int) -> Any:
        raise pickle.UnpicklingError(f"it names an extension by the number {code}")


class _Bounded:
    """A file that raises an error, before allocating memory, if asked for more than it holds."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._left = os.fstat(file.fileno()).st_size

    def read(self, size: int) -> bytes:
        if not 0 <= size <= self._left:
            raise EOFError("it ends too early")
        self._left -= size
        return self._file.read(size)

    def readline(self) -> bytes:
        line = self._file.readline()
        self._left -= len(line)
        return line
