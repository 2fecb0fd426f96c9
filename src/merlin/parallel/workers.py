"""Worker processes that run jobs.

Workers are started as new interpreters. They are not forked, because forking a process that runs
JAX may hang, and not started with multiprocessing's spawn, which would run the user's script again
and require a main guard. Workers ignore Ctrl-C. They exit when their parent process does, even in
the middle of a job.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NamedTuple

from merlin.errors import MerlinError, in_words

Function = Callable[..., Any]
"""A module-level function; its first argument is a dict that the worker keeps between jobs."""


class Failure(NamedTuple):
    """A failed job: a message, and the traceback if the failure is a bug."""

    message: str
    trace: str | None = None


def default_workers() -> int:
    """Number of cores to use: `MERLIN_CORES`, or all cores available to this process."""
    if given := os.environ.get("MERLIN_CORES"):
        if not given.isdecimal() or len(given) > 9 or int(given) < 1:
            raise MerlinError(
                f"MERLIN_CORES: {given[:20]!r} is not a number of cores; give 1 or more."
            )
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """A worker process and the pipe to it."""

    def __init__(self, cores: int):
        ours, theirs = Pipe()
        # -P and no empty path entry, so that nothing is imported from the working directory.
        module = "merlin.parallel.workers"
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C reaches only the parent process
            env={
                **os.environ,
                **limits(cores),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self.connection = ours

    def send(self, function: Function, arguments: tuple) -> None:
        with contextlib.suppress(BrokenPipeError):  # `receive` then reports that the worker died
            self.connection.send((function, arguments))

    def receive(self) -> tuple[str, Any]:
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            message = "a worker process died, possibly for lack of memory; try fewer workers."
            return "died", (message, None)

    def close(self, grace: float) -> None:
        self.connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=grace)
        self.process.kill()
        self.process.wait()


def limits(cores: int) -> dict[str, str]:
    """Environment variables that limit merlin, XLA and BLAS to a number of cores."""
    names = ("MERLIN_CORES", "NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return dict.fromkeys(names, str(cores))


class Pool:
    """A fixed number of workers, each with a dict that lasts as long as the pool."""

    def __init__(self, workers: int, cores: int = 1):
        self._cores = cores
        self._workers = [_Worker(cores) for _ in range(workers)]

    def each(self, function: Function, arguments: Sequence[tuple]) -> list[Any]:
        """Call `function` once in every worker, each with its own arguments."""
        for worker, values in zip(self._workers, arguments, strict=True):
            worker.send(function, values)
        return [self._value(_outcome(worker.receive())) for worker in list(self._workers)]

    def map(self, function: Function, arguments: Sequence[tuple]) -> Iterator[Any]:
        """Call `function` for every tuple of arguments on the next free worker.

        Results are yielded in the order of the arguments.
        """
        outcomes = self.outcomes(function, arguments, attempts=1)
        return in_order((index, self._value(outcome)) for index, outcome in outcomes)

    def outcomes(
        self, function: Function, arguments: Sequence[tuple], *, attempts: int = 3
    ) -> Iterator[tuple[int, Any]]:
        """Yield the index and the result of every job as it ends; a failure is a result, too.

        A job whose worker died is tried up to `attempts` times.
        """
        waiting = deque((index, 1) for index in range(len(arguments)))
        idle = list(self._workers)
        running: dict[Connection, tuple[_Worker, int, int]] = {}
        while waiting or running:
            while waiting and idle:
                worker = idle.pop()
                index, attempt = waiting.popleft()
                worker.send(function, arguments[index])
                running[worker.connection] = worker, index, attempt
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                worker, index, attempt = running.pop(ready)
                answer = worker.receive()
                if answer[0] == "died":
                    worker.close(grace=0.0)
                    self._workers.remove(worker)
                    worker = _Worker(self._cores)
                    self._workers.append(worker)
                idle.append(worker)
                if answer[0] == "died" and attempt < attempts:
                    waiting.appendleft((index, attempt + 1))
                else:
                    yield index, _outcome(answer)

    def share(self, source: Any, load: Callable[[Any], Any]) -> Any:
        """Local jobs load shared data themselves; memory mapping keeps one copy in memory."""
        return source

    def _value(self, outcome: Any) -> Any:
        """The result of a job. A failure is raised after closing the pool."""
        if isinstance(outcome, Failure):
            self.close()
        return value_of(outcome)

    def close(self, grace: float = 5.0) -> None:
        """Stop the workers; after `grace` seconds also those that are still busy."""
        for worker in self._workers:
            worker.close(grace)
        self._workers = []

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(grace=5.0 if kind is None else 0.0)


def value_of(outcome: Any) -> Any:
    """The result of a job; a failure is raised."""
    if not isinstance(outcome, Failure):
        return outcome
    if outcome.trace is None:
        raise MerlinError(outcome.message)
    raise RuntimeError(f"in a worker process:\n{outcome.trace}")


def in_order(results: Iterable[tuple[int, Any]]) -> Iterator[Any]:
    """Yield results in the order of their indices, each as soon as all before it are done."""
    done: dict[int, Any] = {}
    wanted = 0
    for index, result in results:
        done[index] = result
        while wanted in done:
            yield done.pop(wanted)
            wanted += 1


def run_job(function: Function, memory: dict[str, Any], arguments: tuple) -> tuple[str, Any]:
    """Run a job: ("ok", its result), or ("failed", the fields of a `Failure`)."""
    try:
        return "ok", function(memory, *arguments)
    except MerlinError as error:
        return "failed", (str(error), None)
    except OSError as error:
        return "failed", (in_words(error), None)
    except Exception as error:
        last = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        return "failed", (last, traceback.format_exc())


def _outcome(answer: tuple[str, Any]) -> Any:
    return answer[1] if answer[0] == "ok" else Failure(*answer[1])


def _serve(connection: Connection) -> None:
    memory: dict[str, Any] = {}
    while True:
        try:
            function, arguments = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            connection.send(run_job(function, memory, arguments))
        except BrokenPipeError:
            return


def _end_with(parent: int) -> None:
    """Exit when the parent process does: an orphaned job could clash with a retry."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    _serve(Connection(int(sys.argv[1])))
