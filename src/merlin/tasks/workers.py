"""Worker processes that call functions for us.

They are started as fresh interpreters, not forked (a fork of a process that runs JAX may hang) and
not by multiprocessing's spawn (which would run the user's script again, and so need a main guard
in it). They ignore Ctrl-C, and end when the process that started them does.
"""

import contextlib
import os
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from merlin.errors import MerlinError

Function = Callable[..., Any]
"""A module-level function; its first argument is the worker's own memory, a dict."""


class Pool:
    """A fixed number of workers, each with a memory that lasts as long as the pool."""

    def __init__(self, workers: int):
        self._connections: list[Connection] = []
        self._processes: list[subprocess.Popen] = []
        # One thread each: the cores are shared out among workers already.
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        environment = {**os.environ, **threads, "PYTHONPATH": os.pathsep.join(sys.path)}
        for _ in range(workers):
            ours, theirs = Pipe()
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "merlin.tasks.workers", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # Ctrl-C is for the process that started them
                    env=environment,
                    stdin=subprocess.DEVNULL,
                )
            )
            theirs.close()
            self._connections.append(ours)

    def each(self, function: Function, arguments: Sequence[tuple]) -> list[Any]:
        """Call `function` once in every worker, each with its own arguments."""
        for connection, values in zip(self._connections, arguments, strict=True):
            connection.send((function, values))
        return [self._receive(connection) for connection in self._connections]

    def map(self, function: Function, arguments: Sequence[tuple]) -> Iterator[Any]:
        """Call `function` for every tuple of arguments on whichever worker is free.

        Results come in the order of the arguments, as soon as they and all before are there.
        """
        waiting = deque(enumerate(arguments))
        running: dict[Connection, int] = {}
        done: dict[int, Any] = {}
        for index in range(len(arguments)):
            while index not in done:
                for connection in self._connections:
                    if connection not in running and waiting:
                        job, values = waiting.popleft()
                        connection.send((function, values))
                        running[connection] = job
                for ready in wait(list(running)):
                    assert isinstance(ready, Connection)
                    done[running.pop(ready)] = self._receive(ready)
            yield done.pop(index)

    def _receive(self, connection: Connection) -> Any:
        try:
            kind, value = connection.recv()
        except (EOFError, ConnectionResetError):
            self.close()
            raise RuntimeError("a worker process died; is there enough memory?") from None
        if kind == "ok":
            return value
        self.close()
        if kind == "input":
            raise MerlinError(value)
        raise RuntimeError(f"in a worker process:\n{value}")

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            process.kill()
            process.wait()
        self._connections, self._processes = [], []

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(connection: Connection) -> None:
    memory: dict[str, Any] = {}
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        try:
            answer = ("ok", function(memory, *arguments))
        except MerlinError as error:
            answer = ("input", str(error))
        except Exception:
            answer = ("error", traceback.format_exc())
        try:
            connection.send(answer)
        except BrokenPipeError:
            return


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
