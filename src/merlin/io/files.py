"""Reading and writing files: writes are atomic, and only regular files are read."""

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import math
import os
import stat
import time
from collections.abc import Iterable, Iterator
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any

from merlin.errors import MerlinError

MOST_JSON_BYTES = 1 << 24
"""Empty lists in a file of this size take half a gigabyte."""
MOST_JSON_DEPTH = 64
SEAL = "sha256"
"""Last key of the JSON objects that merlin writes: the checksum of all other keys."""
STALE_SECONDS = 2.0
"""Temporary files younger than this are not removed: they may not be locked yet."""
FLUSH_BYTES = 1 << 26
"""Bytes between flushes to the disk while a large file is written."""
_PREFIX, _SUFFIX = ".merlin-", ".partial"
_unfinished: set[Path] = set()
"""Temporary files and folders that this process is writing."""
_swept: dict[Path, float] = {}
"""When each folder was last searched for temporary files of dead processes."""
AT_FDCWD, RENAME_NOREPLACE, RENAME_EXCHANGE = -100, 1, 2
"""Arguments of renameat2(2)."""


# Writing


def write_bytes(path: Path, content: bytes, *, overwrite: bool = True) -> None:
    """Write `content` to `path` atomically: a kill leaves either the old or the new file."""
    with new_file(path, overwrite=overwrite) as (file, _):
        write_to(file, [content])


def write_pieces(
    path: Path, pieces: Iterable[bytes | memoryview], *, keep: Path | None = None
) -> None:
    """Like `write_bytes`, for content in pieces. The previous file is renamed to `keep`."""
    with new_file(path, keep=keep) as (file, _):
        write_to(file, pieces)


def write_to(file: BufferedWriter, pieces: Iterable[bytes | memoryview]) -> None:
    """Write large content, flushing it to disk on the way so that it does not fill the page cache.

    In a virtual machine, most of the time would go into new pages of the cache: three seconds per
    gigabyte instead of one.
    """
    waiting = 0
    for piece in pieces:
        for begin in range(0, len(piece), FLUSH_BYTES):
            waiting += file.write(piece[begin : begin + FLUSH_BYTES])
            if waiting >= FLUSH_BYTES:
                file.flush()
                os.fsync(file.fileno())
                if hasattr(os, "posix_fadvise"):  # not on macOS
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                waiting = 0


@contextlib.contextmanager
def new_file(
    path: Path, *, keep: Path | None = None, overwrite: bool = True
) -> Iterator[tuple[BufferedWriter, Path]]:
    """Open a temporary file that is renamed to `path` when the block ends without an error.

    Yields the file and its temporary path. The previous file at `path` is renamed to `keep`, or
    refused without `overwrite`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_path(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with open(_made(temporary, flags, path), "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # marks the file as in use
            yield file, temporary
            file.flush()
            os.fsync(file.fileno())
            if keep is not None and path.exists():
                os.replace(path, keep)
            os.replace(temporary, path) if overwrite else _rename_to_free(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        _unfinished.discard(temporary)


def _made(temporary: Path, flags: int, path: Path) -> int:
    """Create a temporary file; an error names the file that the user asked for."""
    try:
        return os.open(temporary, flags, 0o666)
    except OSError as error:
        error.filename = str(path)
        raise


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `content` as indented JSON with its checksum, atomically."""
    write_bytes(path, (json.dumps(sealed(content), indent=2) + "\n").encode())


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """`content` with its checksum as the last key."""
    return {**content, SEAL: hashlib.sha256(json.dumps(content).encode()).hexdigest()}


def _temporary_path(folder: Path) -> Path:
    """An unguessable name in `folder`; also removes temporary files of dead processes."""
    at, now = folder.absolute(), time.monotonic()
    if now - _swept.get(at, -math.inf) > STALE_SECONDS:  # not every time: it may hold many files
        _swept[at] = now
        sweep(at)
    path = folder / f"{_PREFIX}{os.urandom(8).hex()}{_SUFFIX}"
    _unfinished.add(path)
    return path


def remove_unfinished() -> None:
    """Remove the files that this process is writing; call it only right before exiting."""
    for path in list(_unfinished):
        _remove(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # owned by another user, or already gone
        _remove_tree(path) if path.is_dir() else path.unlink()


def _remove_tree(folder: Path) -> None:
    import shutil  # brings compression libraries, which a robot that only reads does not need

    shutil.rmtree(folder, ignore_errors=True)


def is_temporary(path: Path) -> bool:
    return path.name.startswith(_PREFIX) and path.name.endswith(_SUFFIX)


def is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing but what killed processes may have left there."""
    return all(map(is_temporary, folder.iterdir()))


def sweep(folder: Path) -> None:
    """Remove temporary files of dead processes."""
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(OSError):  # owned by another user, or already gone
            if time.time() - path.lstat().st_mtime > STALE_SECONDS and not _in_use(path):
                _remove(path)


def _in_use(path: Path) -> bool:
    """Whether the process that writes a temporary file is alive: it holds a lock on the file."""
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(opened)
    return False


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk, as fsync does for the content of a file."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def check_free(target: Path, overwrite: bool = False) -> None:
    """Refuse to overwrite an existing file or folder, before any work is done."""
    if os.path.lexists(target) and not overwrite:
        raise MerlinError(
            f"{target}: already exists; choose another `out` or pass `overwrite=True`."
        )


@contextlib.contextmanager
def new_folder(target: Path, overwrite: bool = False) -> Iterator[Path]:
    """Fill a temporary folder, renamed to `target` when the block ends without an error."""
    check_free(target, overwrite)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = _temporary_path(target.parent)
        temporary.mkdir()  # fails if it exists; permissions follow the umask
    except OSError as error:
        raise MerlinError(f"{target}: cannot be created ({error.strerror}).") from None
    held = os.open(temporary, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield temporary
        _sync_tree(temporary)
        if not overwrite:
            _rename_to_free(temporary, target)
        elif os.path.lexists(target):
            _exchange(temporary, target)
            # What was there before has the temporary name, and is removed below or swept.
            if temporary.is_symlink() or not temporary.is_dir():
                temporary.unlink()
        else:
            os.replace(temporary, target)
        sync_folder(target.parent)
    finally:
        os.close(held)
        _remove_tree(temporary)
        _unfinished.discard(temporary)


def _renamed(one: Path, two: Path, how: int) -> bool:
    """Rename in one step, as `how` says; False if the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(one), os.fsencode(two)
    if libc.renameat2(AT_FDCWD, paths[0], AT_FDCWD, paths[1], how) == 0:
        return True
    if (code := ctypes.get_errno()) not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(code, os.strerror(code), str(two))
    return False


def _rename_to_free(one: Path, two: Path) -> None:
    """Rename `one` to `two`, unless another process was faster and `two` exists."""
    try:
        if _renamed(one, two, RENAME_NOREPLACE):
            return
    except FileExistsError:
        pass
    check_free(two)
    os.replace(one, two)


def _exchange(one: Path, two: Path) -> None:
    """Swap two names at once, so that a kill leaves neither name without its file or folder."""
    if _renamed(one, two, RENAME_EXCHANGE):
        return
    # `_sweep` ignores the name in between, so a kill loses nothing.
    aside = two.with_name(f".{two.name[:100]}.old-{os.urandom(4).hex()}")
    os.replace(two, aside)
    os.replace(one, two)
    os.replace(aside, one)


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_folder(folder)


def refuse_links(folder: Path) -> None:
    """Refuse a folder that contains a symbolic link, which could redirect our writes."""
    for path in folder.rglob("*"):
        if path.is_symlink():
            raise MerlinError(
                f"{path}: is a symbolic link, which merlin never creates; replace or delete it."
            )


# Reading


def check_regular(path: Path) -> int:
    """The size of a regular file; refuses pipes, devices and folders."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise MerlinError(f"{path}: is not a regular file; give the path of one.")
    return status.st_size


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; never blocks on a pipe."""
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise MerlinError(f"{path}: is not a regular file; give the path of one.")
    return file


def read_limited(path: Path, most: int = MOST_JSON_BYTES) -> bytes:
    """The content of a file of at most `most` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise MerlinError(
                f"{path}: has {size} bytes, more than the limit of {most}; check the path."
            )
        return file.read(most)


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object and verify its checksum, if it has one; `what` names its purpose."""
    try:
        content = parse_json(read_limited(path))
    except FileNotFoundError:
        raise MerlinError(f"{path}: no such file, so this is not {what}.") from None
    except (OSError, ValueError) as error:
        raise MerlinError(f"{path}: cannot be read as JSON ({error}); create it again.") from None
    if not isinstance(content, dict):
        raise MerlinError(f"{path}: is not a JSON object, so this is not {what}.")
    return unsealed(content, path)


def unsealed(content: dict[str, Any], where: object) -> dict[str, Any]:
    """`content` without its checksum, which is verified."""
    if SEAL not in content:
        return content  # from an older version or another tool
    plain = {key: value for key, value in content.items() if key != SEAL}
    if sealed(plain)[SEAL] != content[SEAL]:
        raise MerlinError(
            f"{where}: its checksum is wrong; restore it from a copy, or delete its key {SEAL!r} "
            "if you edited it yourself."
        )
    return plain


def parse_json(text: bytes | str) -> Any:
    """Parse JSON; raises ValueError if it is invalid, too long or nested too deeply."""
    if len(text) > MOST_JSON_BYTES:
        raise ValueError(f"it has {len(text)} characters, more than {MOST_JSON_BYTES}")
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level, depth = [content], 0
    while level := [part for node in level for part in _parts(node)]:
        depth += 1
        if depth > MOST_JSON_DEPTH:
            raise ValueError("it is nested too deeply")
    return content


def whole_line(line: bytes) -> bytes | None:
    """The JSON of a last line without its newline, or None if a kill has cut it short."""
    for text in (line, line[:-1]):  # the newline may be there, and damaged
        with contextlib.suppress(ValueError):
            parse_json(text)
            return text
    return None


def _parts(node: Any) -> Iterable[Any]:
    parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return (part for part in parts if isinstance(part, dict | list))


def sha256(path: Path) -> str:
    """SHA-256 checksum of a file, read in pieces."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
