"""Signals: the command line saves and stops within seconds, library calls leave them alone."""

import signal
import subprocess
import sys
import time

import pytest

MERLIN = [sys.executable, "-c", "from merlin.cli import main; main()"]
SECONDS_TO_STOP = 20.0
"""Five on idle cores; a machine that is busy with other work may take longer. An update to the next
look at signals took minutes before training ran in pieces."""


def first_line(process, fragment, seconds):
    """Wait for a line on stderr; the process must not end before."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        line = process.stderr.readline()
        assert line, f"ended with {process.wait()}"
        if fragment in line:
            return line
    raise AssertionError(f"{fragment!r} did not appear for {seconds} s")


def stop(process, number):
    """Send a signal; seconds until the end, exit code and what was still said."""
    began = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    return time.monotonic() - began, process.returncode, errors


@pytest.mark.more
def test_a_method_of_seconds_per_update_shows_progress_and_stops(tmp_path):
    """The diffuser at the release's size: one update takes seconds, a checkpoint is a gigabyte."""
    task = ["PointRooms", "--variant", "random", "--episodes", "20", "--algo", "dd"]
    starts = [[*task, "--updates", "200", "--out", "r"], ["--out", "r", "--resume"]]
    for done, arguments in enumerate(starts):
        process = subprocess.Popen(
            [*MERLIN, "train", *arguments], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        # At once, and after the first update, which is not lost when the second is stopped.
        assert first_line(process, "seed 0: ", 60) == "seed 0: initialising\n"
        compiling = first_line(process, "seed 0: ", 300)
        assert compiling == f"seed 0: {done}/200 updates  compiling\n"
        assert "compiling" not in first_line(process, "seed 0: ", 300)
        seconds, code, errors = stop(process, signal.SIGTERM)
        assert seconds < SECONDS_TO_STOP
        assert code == 130
        assert "Traceback" not in errors
        assert errors.splitlines()[-1].endswith("continue with `merlin train --out r --resume`.")
        assert sorted(path.name for path in (tmp_path / "r").iterdir()) == [
            "checkpoint-0.safetensors",
            *(["previous-0.safetensors"] if done else []),
            "run.json",
            "seed-0",
        ]


LONG_CALL = """
import hashlib, time
from merlin.io.interruption import interruptible
with interruptible(lambda: "stopped here.", patience=1.0):
    print("ready", flush=True)
    {work}
print("not reached", flush=True)
"""


@pytest.mark.parametrize(
    ("work", "code"),
    [
        ("time.sleep(60)", 1),  # Python raises at once
        ("hashlib.pbkdf2_hmac('sha256', b'a', b'b', 10**9)", 130),  # one call that does not return
    ],
)
def test_a_long_call_is_not_waited_for(work, code):
    script = LONG_CALL.format(work=work)
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < SECONDS_TO_STOP
    assert "stopped here." in errors.splitlines()[-1]
    assert output == ""
    assert (process.returncode == 130) == (code == 130)


LOCKED = """
import hashlib
from pathlib import Path
from merlin.io.interruption import interruptible
from merlin.io.locks import lock

with interruptible(lambda: "stopped here.", patience=1.0), lock(Path("run/.lock"), "run"):
    print("ready", flush=True)
    hashlib.pbkdf2_hmac('sha256', b'a', b'b', 10**9)  # one call that does not return
"""


def test_a_process_that_ends_within_a_call_leaves_no_lock(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", LOCKED], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    assert (tmp_path / "run" / ".lock").exists()
    time.sleep(0.2)  # until it is within the call
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert list((tmp_path / "run").iterdir()) == []


RESCUE = """
import hashlib, threading, time
from pathlib import Path
from merlin.io.files import new_file
from merlin.io.interruption import interruptible, rescued_by

def save():
    with new_file(Path("saved")) as (file, _):
        file.write(b"work")
        {meanwhile}
    return "saved."

with interruptible(lambda: "resume.", patience=1.0, saving=3.0), rescued_by(save):
    threading.Timer(0.5, lambda: print("ready", flush=True)).start()  # from within the call
    hashlib.pbkdf2_hmac('sha256', b'a', b'b', 10**9)  # one call that does not return
"""


SLOW, UNSAVED = "saving; a second signal stops at once.", "the latest work was not saved"


@pytest.mark.parametrize(
    ("meanwhile", "said", "left"),
    [
        ("", ["saved."], ["saved"]),
        ("time.sleep(1.5)", [SLOW, "saved."], ["saved"]),
        ("time.sleep(60)", [SLOW, f"{UNSAVED} (it took too long); resume."], []),
        ("raise OSError('full')", [f"{UNSAVED} (full); resume."], []),
    ],
)
def test_work_is_saved_while_a_long_call_goes_on(tmp_path, meanwhile, said, left):
    process = subprocess.Popen(
        [sys.executable, "-c", RESCUE.format(meanwhile=meanwhile)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    seconds, code, errors = stop(process, signal.SIGTERM)
    assert seconds < SECONDS_TO_STOP
    assert (code, errors) == (130, "".join(f"merlin: {line}\n" for line in said))
    assert [path.name for path in tmp_path.iterdir()] == left  # nothing half-written


def test_a_second_signal_does_not_wait_for_the_work_to_be_saved(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", RESCUE.format(meanwhile="time.sleep(60)").replace("=3.0", "=60")],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stderr.readline() == f"merlin: {SLOW}\n"
    seconds, code, errors = stop(process, signal.SIGINT)
    assert seconds < SECONDS_TO_STOP
    assert (code, errors) == (130, f"merlin: {UNSAVED} (it took too long); resume.\n")
    assert list(tmp_path.iterdir()) == []


IN_PYTHON = """
import signal, sys
import merlin
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in background
if sys.argv[1] == "own":
    signal.signal(signal.SIGTERM, lambda *_: (print("own handler", flush=True), sys.exit(7)))
learner = merlin.Merlin(hidden=(8, 8), batch_size=8)
data = merlin.collect("PointReach", "random", episodes=3)
how = dict(eval_every=10**9, checkpoint_every=100, log_every=100)
merlin.train(learner, data, updates=10**7, out="run", **how)
"""


@pytest.mark.parametrize(
    ("handler", "number", "code", "said"),
    [
        ("own", signal.SIGTERM, 7, "own handler\n"),
        pytest.param("default", signal.SIGTERM, -signal.SIGTERM, "", marks=pytest.mark.more),
        pytest.param("default", signal.SIGINT, -signal.SIGINT, "", marks=pytest.mark.more),
    ],
)
def test_a_library_call_leaves_signals_alone(tmp_path, handler, number, code, said):
    process = subprocess.Popen(
        [sys.executable, "-c", IN_PYTHON, handler],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    checkpoint = tmp_path / "run" / "checkpoint-0.safetensors"
    while not checkpoint.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert output == said
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    assert checkpoint.exists()
    assert not (tmp_path / "run" / "result.json").exists()


IN_A_DESTRUCTOR = """
import signal, time
from merlin.io.interruption import interruptible

class Stopped:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

with interruptible(lambda: "stopped", patience=0.2):
    Stopped()
    time.sleep(10)
"""


BEFORE_A_COMMAND_LISTENS = """
import signal, time
from merlin.cli import app
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in background

class Stopped:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

class Slow:
    def __call__(self):
        Stopped()
        time.sleep(10)

app.parse = lambda arguments: Slow()
app.main(["train"])
"""


WHILE_IMPORTING = """
import signal, sys
import merlin.cli
signal.signal(signal.SIGINT, signal.default_int_handler)

class Finder:
    def find_spec(self, name, *_):
        if name == "merlin.cli.app":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
merlin.cli.main(["tasks"])
"""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (IN_A_DESTRUCTOR, "merlin: stopped\n"),
        (BEFORE_A_COMMAND_LISTENS, "merlin: stopped.\n"),
        (WHILE_IMPORTING, "merlin: stopped.\n"),
    ],
)
def test_a_signal_within_a_destructor_ends_the_command_without_a_traceback(script, said):
    """Python cannot raise from there, and would print a traceback and go on."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (130, said)
