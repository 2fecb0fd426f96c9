"""Stopping on Ctrl-C or SIGTERM without losing work.

Only the command line installs signal handlers. Library calls behave like any Python function.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

KINDS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 3.0
"""Seconds that a command has to save its work and exit after a signal."""


class Interrupted(KeyboardInterrupt):
    """A signal stopped the work; the message says how to resume it."""


@contextmanager
def interruptible(farewell: Callable[[], str], patience: float = PATIENCE) -> Iterator[None]:
    """Raise `Interrupted` on the first Ctrl-C or SIGTERM, and exit if that takes too long.

    Python handles signals only between bytecode instructions, and a single call into a compiled
    function may take minutes. A watcher thread is notified immediately. If the block has not ended
    after `patience` seconds, or on a second signal, it prints `farewell()` and exits with 130.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)

    def watch() -> None:
        if not ours.recv(1):
            return  # the block has ended
        ours.settimeout(patience)
        try:
            if not ours.recv(1):
                return
        except TimeoutError:
            pass
        if sys.stderr.isatty():
            os.write(2, b"\x1b[?25h")  # shows the cursor, which a progress bar hides
        print(f"merlin: {farewell()}", file=sys.stderr, flush=True)
        os._exit(130)

    def interrupt(number: int, frame: FrameType | None) -> None:
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
