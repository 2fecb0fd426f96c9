"""Locks between processes. A lock is released when its holder ends, for whatever reason."""

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from merlin.errors import MerlinError

WAIT_SECONDS = 0.5


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[str | None]:
    """Try to hold the lock `path` within the block; yields None, or the name of its holder."""
    found = _acquire(path)
    if isinstance(found, str):
        yield found
        return
    try:
        yield None
    finally:
        _release(found, path)


_held: list[tuple[int, Path]] = []
"""Descriptors and paths of the locks that this process holds."""


@contextlib.contextmanager
def lock(path: Path, what: str, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock within the block. If it is taken, raise, or `wait` until it is released.

    `what` names the locked resource in messages.
    """
    told = False
    while isinstance(found := _acquire_or_say(path, what), str):
        if not wait:
            raise MerlinError(f"{what}: is in use by {found}; wait for it, or choose another.")
        if not told:
            print(f"merlin: {what}: waiting for {found}.", file=sys.stderr, flush=True)
            told = True
        time.sleep(WAIT_SECONDS)
    held = found, path
    _held.append(held)
    try:
        yield
    finally:
        _held.remove(held)
        _release(*held)


def release_all() -> None:
    """Release every lock of this process, which is about to end without unwinding its stack."""
    while _held:
        _release(*_held.pop())


def _acquire_or_say(path: Path, what: str) -> int | str:
    try:
        return _acquire(path)
    except OSError as error:
        raise MerlinError(f"{what}: cannot be created ({error.strerror}).") from None


def _acquire(path: Path) -> int | str:
    """The descriptor of the locked file, or the name of the holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(opened, 200).decode(errors="replace").strip()
            os.close(opened)
            return holder or "another process"
        if _is_at(opened, path):
            if os.fstat(opened).st_nlink > 1:
                os.close(opened)
                raise MerlinError(f"{path}: is also another file (a hard link); delete it.")
            os.truncate(opened, 0)
            os.write(opened, f"process {os.getpid()} on {os.uname().nodename}\n".encode())
            return opened
        os.close(opened)  # its holder removed it after we opened it


def _release(opened: int, path: Path) -> None:
    path.unlink(missing_ok=True)  # still locked, so no other process can hold it
    os.close(opened)


def _is_at(opened: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(opened), os.lstat(path))
    except FileNotFoundError:
        return False
