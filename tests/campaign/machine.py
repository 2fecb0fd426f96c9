"""What the machine may do to a command: a full disk, a folder that cannot be written, signals."""

import ctypes
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from campaign.material import TRAIN, Material, content, remove
from campaign.processes import Running, run, start
from merlin.cli import main

SIZES = ("20k", "60k", "200k")
CLONE_NEWNS = 0x20000
"""A table of mounts of its own, for unshare(2)."""


def commands(material: Material) -> dict[str, list[object]]:
    """Commands that write into the folder `small`."""
    return {
        "train": ["train", material.data, "--out", "small/run", *TRAIN],
        "collect": ["collect", "PointReach", "--episodes", 50, "--out", "small/d"],
        "convert to minari": ["convert", material.data, "minari:a/b-v0"],
        "convert to ogbench": ["convert", material.data, "small/d.npz"],
        "convert to wgcsl": ["convert", material.data, "small/d.pkl"],
        "export": ["export", material.run, "--out", "small/p.onnx"],
        "play": ["play", material.run, "--out", "small/p.html"],
        "report": ["report", material.bench, "--out", "small/report"],
    }


def full_disk(material: Material, folder: Path) -> Iterator[tuple[str, str | None]]:
    """Every command on a disk of some kilobytes, or where files may not grow beyond that."""
    store = {"MINARI_DATASETS_PATH": str(folder / "small" / "store")}
    for name, words in commands(material).items():
        for size in SIZES:
            small = folder / "small"
            remove(small)
            small.mkdir(parents=True)

            def work(words: list = words, size: str = size, small: Path = small) -> None:
                if not _mount(small, size):
                    most = int(size[:-1]) << 10
                    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
                main([str(word) for word in words])

            ended = Running(work, folder, **store).wait()
            # These two surely need more than the smallest disk has.
            surely = size == SIZES[0] and name in ("train", "collect")
            yield name, _with_size(ended.problem(*(() if surely else (0,)), 1, 2), size)


def _mount(small: Path, size: str) -> bool:
    """Whether this process has a small disk of its own there, which nobody else sees."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNS) != 0:
        return False  # not allowed here
    options = ["-t", "tmpfs", "-o", f"size={size}", "campaign", str(small)]
    private = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False)
    mounted = subprocess.run(["mount", *options], capture_output=True, check=False)
    return private.returncode == 0 and mounted.returncode == 0


def _with_size(problem: str | None, size: str) -> str | None:
    return problem and f"with {size}: {problem}"


def read_only(material: Material, folder: Path) -> Iterator[tuple[str, str | None]]:
    """Every command where the place to write to is below a file, or not ours to write."""
    for name, words in commands(material).items():
        remove(folder / "small")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "small").write_text("a file")
        store = {"MINARI_DATASETS_PATH": str(folder / "small" / "store")}
        yield name, run(words, folder, **store).problem(1, 2)
    remove(folder / "small")
    for name, words in commands(material).items():
        store = {"MINARI_DATASETS_PATH": "/proc/campaign/store"}
        there = [str(word).replace("small/", "/proc/campaign/") for word in words]
        yield name, run(there, folder, **store).problem(1, 2)


def signals(material: Material, folder: Path, seed: int) -> Iterator[tuple[str, str | None]]:
    """Ctrl-C and SIGTERM at any moment of a training, which then goes on to the same end."""
    rng = np.random.default_rng(seed)
    words = ["train", material.data, "--out", "run", *TRAIN]
    words[words.index("60")] = "300"
    whole = folder / "whole"
    remove(folder)
    if problem := run(words, whole).problem(0):
        yield "train", problem
        return
    while True:
        place = folder / "stopped"
        remove(place)
        for number in (signal.SIGINT, signal.SIGTERM):
            going_on = (place / "run" / "run.json").exists()
            again = ["train", "--out", "run", "--resume"] if going_on else words
            running = start(again, place)
            time.sleep(rng.uniform(0.3, 3.0))
            running.kill(number)
            ended = running.wait(30.0)
            # Before the command has taken over the signals, they end it as they end any other.
            yield "train", ended.problem(0, 130, -number)
        going_on = (place / "run" / "run.json").exists()
        ended = run(["train", "--out", "run", "--resume"] if going_on else words, place)
        problem = ended.problem(0)
        pattern = "run/seed-0/*.safetensors"
        if problem is None and content(place, pattern) != content(whole, pattern):
            problem = "the policies are not those of a run that was not stopped"
        yield "train", problem
