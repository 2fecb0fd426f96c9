"""Damaged files of every kind, opened one after the other by a child that may die or hang."""

import contextlib
import functools
import hashlib
import itertools
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from campaign.material import Material
from campaign.processes import HANG, Running
from helpers.videos import WANTED
from merlin.errors import MerlinError

MOST_EXTRA_MB = 1000.0
BATCH = 250
"""So many files are opened by one child."""
FLIPS = 300
"""So many bits are flipped in each kind of file that has a checksum."""

Trials = Iterator[tuple[str, str | None]]
Job = tuple[str, int, bool]
"""A kind of file, the seed of its damage, and whether that is a single bit."""


class Kind(NamedTuple):
    """A kind of file: what to copy, which files of it to break, and how to open it."""

    source: Path
    pattern: str
    opened: Callable[[Path], str]  # gives a digest of every number that was read
    sealed: bool = True  # whether one wrong bit must be noticed


def kinds(material: Material) -> dict[str, Kind]:
    """Every kind of file that is read."""
    run, bench = material.run, material.bench
    found = {
        f"{form} data": Kind(path, "**/*" if path.is_dir() else "", _data)
        for form, path in material.formats.items()
    }
    found |= {
        "policy": Kind(run, "seed-0/policy.safetensors", _policy),
        "checkpoint": Kind(run, "checkpoint-0.safetensors", _checkpoint),
        "run.json": Kind(run, "run.json", _run),
        "result.json": Kind(run, "result.json", _run),
        "metrics.jsonl": Kind(run, "seed-0/metrics.jsonl", _metrics),
        "bench.json": Kind(bench, "bench.json", _bench),
        "rows.jsonl": Kind(bench, "rows.jsonl", _bench),
        "goals": Kind(material.goals, "**/*", _goals, sealed=False),
    }
    for form, (path, said) in {**material.logs, "filmed": material.filmed}.items():
        said = WANTED if form == "filmed" else said
        name = {"filmed": "LeRobot video", "npy": "list of .npy"}.get(form, form)
        listed = path.name == "list.txt"
        source, inner = (path.parent, path.name) if listed else (path, "")
        opened = functools.partial(_log, inner=inner, said=said)
        pattern = "videos/**/*" if form == "filmed" else "**/*"
        found[f"log: {name}"] = Kind(source, pattern, opened, sealed=False)
    return found


def _log(path: Path, inner: str, said: dict[str, str]) -> str:
    from merlin.data import load

    data = load(path / inner, **said)
    assert all(np.isfinite(array).all() for array in data.arrays().values())
    return data.fingerprint()


def _goals(folder: Path) -> str:
    from merlin.data.goal_table import read_goals

    return "".join(str(read_goals(path, 2)) for path in sorted(folder.iterdir()))


def _data(path: Path) -> str:
    from merlin.data import load

    data = load(path)
    assert all(np.isfinite(array).all() for array in data.arrays().values())
    bounds = data.action_low.tolist(), data.action_high.tolist()
    return f"{data.fingerprint()} {bounds} {data.task}"


def _policy(run: Path) -> str:
    from merlin.deploy.weights import read
    from merlin.training.runs import load_policy

    file = run / "seed-0" / "policy.safetensors"
    weights, policy = read(file), load_policy(file)
    import jax

    leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(policy)]
    numbers = b"".join([*leaves, *(layer.weight.tobytes() for layer in weights.layers)])
    told = weights.about, weights.horizon, weights.max_period, vars(weights.constants)
    return hashlib.sha256(numbers).hexdigest() + json.dumps(told, default=str)


def _checkpoint(run: Path) -> str:
    from merlin.io import tensors
    from merlin.training.checkpoints import steps_done

    assert list(steps_done(run))
    arrays, about = tensors.read(run / "checkpoint-0.safetensors")
    numbers = b"".join(arrays[name].tobytes() for name in sorted(arrays))
    return hashlib.sha256(numbers).hexdigest() + json.dumps(about)


def _run(run: Path) -> str:
    from merlin.training.runs import load_run

    opened = load_run(run)
    return f"{opened.config} {opened.result}"


def _metrics(run: Path) -> str:
    from merlin.training.log import read_metrics

    return f"{list(read_metrics(run / 'seed-0' / 'metrics.jsonl'))}"


def _bench(bench: Path) -> str:
    from merlin.bench.results_folder import ResultsFolder

    results = ResultsFolder(bench)
    return json.dumps([row.to_json() for row in results.rows.values()])


def mutate(rng: np.random.Generator, file: Path, flip: bool = False) -> bool:
    """Damage a file, by one bit if `flip`; whether it was one bit, which a checksum must notice."""
    content = bytearray(file.read_bytes())
    way = 0 if flip else rng.integers(10)
    if way < 5:
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
    elif way == 5:
        content = content[: rng.integers(len(content))]
    elif way == 6:
        at, size = rng.integers(len(content)), rng.integers(1, 64)
        content[at : at + size] = rng.bytes(size)
    elif way == 7:
        content += rng.bytes(rng.integers(1, 64))
    elif way == 8:
        at = rng.integers(len(content))
        content[at:at] = content[: rng.integers(1, 200)]
    elif file.suffix in (".json", ".jsonl") or file.name.startswith(".z"):
        content = bytearray(_other_json(rng, bytes(content), file.suffix == ".jsonl"))
    else:
        content[:16] = rng.bytes(16)
    file.write_bytes(content)
    return way < 5


ODD: list[Any] = [None, True, -1, 10**400, 1e400, "", "x" * 5000, [], {}, [[[]]], "\0", {"a": []}]


def _other_json(rng: np.random.Generator, text: bytes, lines: bool) -> bytes:
    """Put something else in one place of a JSON object, without a checksum."""
    rows = [json.loads(line) for line in text.splitlines()] if lines else [json.loads(text)]
    for row in rows:
        row.pop("sha256", None)
    node: Any = rows[rng.integers(len(rows))]
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            break
        key = keys[rng.integers(len(keys))]
        if isinstance(node[key], dict | list) and node[key] and rng.random() < 0.7:
            node = node[key]
            continue
        if rng.random() < 0.2:
            del node[key]
        else:
            node[key] = ODD[rng.integers(len(ODD))]
        break
    return ("".join(json.dumps(row) + "\n" for row in rows)).encode()


def flips(material: Material, folder: Path, seed: int) -> Trials:
    """As many single bits of every file with a checksum as the bar asks for."""
    sealed = [name for name, kind in kinds(material).items() if kind.sealed]
    jobs = [(name, seed + number, True) for name in sealed for number in range(FLIPS)]
    return _in_children(material, folder, iter(jobs))


def trials(material: Material, folder: Path, seed: int) -> Trials:
    """Damaged files without end: the kind of each, and what went wrong with it."""
    names = itertools.cycle(kinds(material))
    jobs = ((name, seed + number, False) for number, name in enumerate(names))
    return _in_children(material, folder, jobs)


def _in_children(material: Material, folder: Path, jobs: Iterator[Job]) -> Trials:
    """Do the jobs, each child some of them; a child that dies or hangs is a failure."""
    while batch := list(itertools.islice(jobs, BATCH)):
        reading, writing = os.pipe()
        child = Running(lambda: _open_all(material, folder, batch, writing), folder)  # noqa: B023
        os.close(writing)
        answered, left = 0, b""
        try:
            while answered < len(batch):
                if not select.select([reading], [], [], 3 * HANG)[0]:
                    break
                piece = os.read(reading, 1 << 16)
                if not piece:
                    break
                *lines, left = (left + piece).split(b"\n")
                for line in lines:
                    name, problem = json.loads(line)
                    answered += 1
                    yield name, problem
        finally:
            os.close(reading)
            if answered < len(batch):
                child.kill()
            ended = child.wait()
        if answered < len(batch):
            name, number, _ = batch[answered]
            yield name, f"seed {number}: the child ended with {ended.code}: {ended.err[-300:]}"
            jobs = itertools.chain(batch[answered + 1 :], jobs)


def _open_all(material: Material, folder: Path, jobs: Sequence[Job], answers: int) -> None:
    known = {name: kind.opened(kind.source) for name, kind in kinds(material).items()}
    signal.signal(signal.SIGALRM, _alarm)
    base = _peak_mb()
    for name, seed, flip in jobs:
        said, problem = _one(material, folder, name, seed, flip, known[name])
        if _peak_mb() > base + MOST_EXTRA_MB:
            problem, base = f"seed {seed}: took {_peak_mb() - base:.0f} MB", _peak_mb()
        os.write(answers, json.dumps([said, problem]).encode() + b"\n")


def _alarm(number: int, frame: object) -> None:
    raise TimeoutError("hangs")


def _one(
    material: Material, folder: Path, name: str, seed: int, flip: bool, known: str
) -> tuple[str, str | None]:
    """Break one file and open it: under which name to count it, and what went wrong."""
    rng = np.random.default_rng(seed)
    kind = kinds(material)[name]
    copy = material.copy(kind.source, folder / f"bad{kind.source.suffix}")
    files = [copy] if copy.is_file() else sorted(copy.glob(kind.pattern))
    files = [file for file in files if file.is_file()]
    one_bit = mutate(rng, files[rng.integers(len(files))], flip)
    signal.alarm(int(HANG))
    began = time.monotonic()
    digest = None
    try:
        with contextlib.redirect_stderr(None):
            digest = kind.opened(copy)
    except MerlinError:
        pass
    except Exception as error:
        return name, f"seed {seed}: {type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)
    if time.monotonic() - began > HANG:
        return name, f"seed {seed}: hangs"
    if one_bit and kind.sealed and digest not in (None, known):
        return name, f"seed {seed}: one bit changed what was read"
    if flip:
        name = f"{name}: {'refused' if digest is None else 'without effect'}"
    return name, None


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
