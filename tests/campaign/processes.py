"""Commands in processes of their own, started fast: forked from one that has imported everything.

JAX must not have computed anything before: its threads do not survive a fork.
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax  # noqa: F401 (imported here once, for all)

import merlin.bench.runner
import merlin.cli
import merlin.data.formats
import merlin.deploy.weights
import merlin.report
import merlin.training.train

HANG = 20.0
"""Seconds after which a command that should refuse counts as hanging."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (negative: the signal), and what it said."""

    code: int
    out: str
    err: str
    seconds: float
    waited: float  # seconds of these in which it was ready, and other work had the cores
    peak_mb: float

    @property
    def hangs(self) -> bool:
        return self.seconds - self.waited > HANG

    def problem(self, *codes: int) -> str | None:
        """What is wrong with it, if it was to end with one of `codes`."""
        if "Traceback" in self.err or "Error:" in self.err:
            return f"traceback: {self.err.strip().splitlines()[-1][:200]}"
        if self.code not in codes:
            last = (self.err.strip().splitlines() or [""])[-1]
            return f"exit code {self.code}, not {' or '.join(map(str, codes))}: {last[:200]}"
        said = [line for line in self.err.splitlines() if line.startswith("merlin: ")]
        if self.code in (1, 2) and not said:
            return f"no sentence: {self.err[:200]!r}"
        return None


class Running:
    """A command that has been started."""

    def __init__(self, work: Callable[[], object], folder: Path, **environment: str):
        folder.mkdir(parents=True, exist_ok=True)
        self.began = time.monotonic()
        self._out, self._err = folder / f".out-{id(self)}", folder / f".err-{id(self)}"
        self.pid = os.fork()
        if self.pid == 0:
            _become(work, folder, self._out, self._err, environment)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the command and what it started."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            os.kill(self.pid, number)  # not yet the leader of its group

    def wait(self, seconds: float = 300.0) -> Ended:
        """The end of it; after `seconds` it is killed, and its code is None's: -9."""
        ending = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while os.waitid(os.P_PID, self.pid, ending) is None:
            if time.monotonic() - self.began > seconds:
                self.kill()
                seconds = float("inf")
            time.sleep(0.005)
        spent, waited = time.monotonic() - self.began, _waited(self.pid)
        _, status, usage = os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        said = []
        for path in (self._out, self._err):
            said.append(path.read_text(errors="replace") if path.exists() else "")
            path.unlink(missing_ok=True)
        return Ended(code, *said, spent, waited, usage.ru_maxrss / 1024)


def _waited(pid: int) -> float:
    """Seconds that a process has waited for a core, if the system tells."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _become(
    work: Callable[[], object], folder: Path, out: Path, err: Path, environment: dict[str, str]
) -> None:
    """What the child does; it never returns."""
    code = 70
    try:
        os.setsid()
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
        os.chdir(folder)
        os.environ.update(environment)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def start(arguments: Sequence[object], folder: Path, **environment: str) -> Running:
    """Start `merlin ARGUMENTS` in a folder."""
    words = [str(argument) for argument in arguments]
    return Running(lambda: merlin.cli.main(words), folder, **environment)


def run(arguments: Sequence[object], folder: Path, **environment: str) -> Ended:
    """Run `merlin ARGUMENTS` in a folder to its end."""
    return start(arguments, folder, **environment).wait()
