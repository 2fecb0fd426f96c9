"""Stopping on Ctrl-C or SIGTERM without losing work.

Only the command line installs signal handlers. Library calls behave like any Python function.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from merlin.errors import MerlinError
from merlin.io.files import remove_unfinished
from merlin.io.locks import release_all

KINDS = (signal.SIGINT, signal.SIGTERM)
PROMPT = 0.1
"""Seconds after a signal before another thread saves the work of the main thread."""
PATIENCE = 3.5
"""Seconds after a signal until the process exits; freeing gigabytes may take one more."""
SAVING = 30.0
"""Seconds that saving may take after a signal. Checking and writing gigabytes is slow."""
_rescues: list[Callable[[], str]] = []


class Interrupted(KeyboardInterrupt):
    """A signal stopped the work; the message says how to resume it."""


@contextmanager
def rescued_by(save: Callable[[], str]) -> Iterator[None]:
    """Let another thread call `save` if a signal arrives while the block is in a long call.

    `save` must be safe to call at any time; it returns the message that says how to resume.
    """
    _rescues.append(save)
    try:
        yield
    finally:
        _rescues.remove(save)


@contextmanager
def interruptible(
    farewell: Callable[[], str], patience: float = PATIENCE, saving: float = SAVING
) -> Iterator[None]:
    """Raise `Interrupted` on the first Ctrl-C or SIGTERM, and exit if that takes too long.

    Python handles signals only between bytecode instructions, and a single call into a compiled
    function may take minutes. A watcher thread is notified immediately. If the block does not end,
    the thread has its work saved (see `rescued_by`). Then, after `patience` seconds (`saving` if
    there is work to save), or on a second signal, it removes unfinished files, says how to resume
    and exits with 130.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)

    def heard(seconds: float | None) -> bytes | None:
        """A byte for a signal or a rescue, none at the end of the block, None if time is up."""
        ours.settimeout(seconds)
        try:
            return ours.recv(1)
        except (TimeoutError, BlockingIOError):
            return None

    def rescue() -> None:
        for save in tuple(_rescues):
            try:
                messages.append(save())
            except (MerlinError, OSError) as error:
                messages.append(f"the latest work was not saved ({error}); {farewell()}")
        with suppress(OSError):  # the block has ended
            if messages:
                theirs.send(b"\0")

    messages: list[str] = []

    def watch() -> None:
        if not heard(None):
            return  # the block has ended
        prompt = min(PROMPT, patience)
        answer = heard(prompt)
        if answer is None:
            threading.Thread(target=rescue, daemon=True).start()
            answer = heard(patience - prompt)
        if answer is None and _rescues and not messages:
            print("merlin: saving; a second signal stops at once.", file=sys.stderr, flush=True)
            answer = heard(saving - patience)
        if messages:  # the main thread may have saved, and be about to end
            answer = heard(prompt)
        if answer == b"":
            return
        remove_unfinished()
        if sys.stderr.isatty():
            os.write(2, b"\x1b[?25h")  # shows the cursor, which a progress bar hides
        if not messages:
            late = "the latest work was not saved (it took too long); " if _rescues else ""
            messages.append(late + farewell())
        print(f"merlin: {messages[-1]}", file=sys.stderr, flush=True)
        release_all()
        os._exit(130)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if importing(frame) and not _rescues:
            _leave(farewell())
        for kind in KINDS:
            signal.signal(kind, lambda *_: None)  # the thread handles a second signal
        raise Interrupted(farewell())

    def unraisable(lost: "sys.UnraisableHookArgs") -> None:
        # The signal came within a destructor, which cannot raise. The watcher ends the process.
        if not isinstance(lost.exc_value, Interrupted):
            hook(lost)

    before = {kind: signal.signal(kind, interrupt) for kind in KINDS}
    hook, sys.unraisablehook = sys.unraisablehook, unraisable
    descriptor = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        sys.unraisablehook = hook
        for kind, handler in before.items():
            signal.signal(kind, handler)
        theirs.close()
        watcher.join()
        ours.close()


@contextmanager
def never_lost() -> Iterator[None]:
    """End the process if Ctrl-C arrives where an exception would be lost or do harm.

    A destructor or a callback cannot raise: Python would print a traceback and continue. Imports,
    which take seconds, run many of these. A compiled module that is being imported turns the
    exception into an ImportError, or crashes.
    """

    def unraisable(lost: "sys.UnraisableHookArgs") -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            return hook(lost)
        _leave("stopped.")

    def interrupt(number: int, frame: FrameType | None) -> None:
        if importing(frame):
            _leave("stopped.")
        signal.default_int_handler(number, frame)

    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, interrupt)
    hook, sys.unraisablehook = sys.unraisablehook, unraisable
    try:
        yield
    finally:
        sys.unraisablehook = hook
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported in this frame or in one of its callers."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _leave(message: str) -> None:
    """End the process at once, without unwinding the stack."""
    remove_unfinished()
    print(f"merlin: {message}", file=sys.stderr, flush=True)
    release_all()
    os._exit(130)


@contextmanager
def signals() -> Iterator[list[int]]:
    """Record the first Ctrl-C or SIGTERM instead of raising; a second one acts as usual."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {kind: signal.getsignal(kind) for kind in KINDS}

    def restore() -> None:
        for kind, handler in before.items():
            signal.signal(kind, handler)

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)
        restore()

    for kind in KINDS:
        signal.signal(kind, receive)
    try:
        yield received
    finally:
        restore()
