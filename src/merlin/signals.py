"""Stopping cleanly: the first Ctrl-C finishes the piece of work at hand, the second kills."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupted(Exception):
    """Work was stopped by a signal, after saving; the message says how to go on."""


@contextmanager
def signals() -> Iterator[list[int]]:
    """Collect the first Ctrl-C (or SIGTERM) instead of dying; a second one kills as usual."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = {kind: signal.getsignal(kind) for kind in kinds}

    def restore() -> None:
        for kind, handler in before.items():
            signal.signal(kind, handler)

    def receive(number: int, _: Any) -> None:
        received.append(number)
        restore()

    for kind in kinds:
        signal.signal(kind, receive)
    try:
        yield received
    finally:
        restore()
