"""Ctrl-C while a compiled module is being imported."""

import subprocess
import sys

MODULE = """
import signal

try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:  # as jaxlib does
    raise ImportError("Encountered an error while initializing the extension.") from None
"""
SCRIPT = """
import signal, sys

sys.path.insert(0, {folder!r})
signal.signal(signal.SIGINT, signal.default_int_handler)
from merlin.io import interruption

with interruption.{block}:
    import extension
print("still there")
"""


def stopped(folder, block):
    (folder / "extension.py").write_text(MODULE)
    script = SCRIPT.format(folder=str(folder), block=block)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def test_the_process_ends_with_one_sentence(tmp_path):
    for block in ("never_lost()", "interruptible(lambda: 'stopped.')"):
        done = stopped(tmp_path, block)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "merlin: stopped.\n")


def test_ctrl_c_elsewhere_raises_as_usual(tmp_path):
    (tmp_path / "extension.py").write_text("")
    script = SCRIPT.format(folder=str(tmp_path), block="never_lost()")
    script = script.replace("import extension\n", "signal.raise_signal(signal.SIGINT)\n")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "KeyboardInterrupt" in done.stderr
