"""Writing files so that a reader never sees half of one."""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from merlin.errors import MerlinError


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step: after a kill the old or the new file is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Always the same name: what a kill leaves behind is overwritten by the next attempt.
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any) -> None:
    """Write `content` as indented JSON, atomically."""
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object; `what` names its purpose in the error."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise MerlinError(f"{path}: no such file, so this is not {what}.") from None
    except (OSError, ValueError) as error:
        raise MerlinError(f"{path}: cannot be read as JSON ({error}); make it anew.") from None
    if not isinstance(content, dict):
        raise MerlinError(f"{path}: holds no JSON object, so this is not {what}.")
    return content


def check_free(target: Path, overwrite: bool = False) -> None:
    """Refuse to write over what is already there, before any work is done."""
    if target.exists() and not overwrite:
        raise MerlinError(f"{target}: already exists; choose another --out or pass --overwrite.")


@contextlib.contextmanager
def new_folder(target: Path, overwrite: bool = False) -> Iterator[Path]:
    """Fill a temporary folder that becomes `target` only when the block ends without an error."""
    check_free(target, overwrite)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as error:
        raise MerlinError(f"{target}: cannot be created ({error.strerror}).") from None
    try:
        yield temporary
        os.chmod(temporary, 0o755)
        if target.exists():
            old = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.old."))
            os.replace(target, old / target.name)
            os.replace(temporary, target)
            shutil.rmtree(old)
        else:
            os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def sha256(path: Path) -> str:
    """Checksum of a file, read in pieces so that its size does not matter."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
