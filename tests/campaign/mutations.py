"""Damaged files of every kind, opened one after the other by a child that may die or hang."""

import contextlib
import hashlib
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from campaign.material import Material
from campaign.processes import HANG, Running
from merlin.errors import MerlinError

MOST_EXTRA_MB = 1000.0
BATCH = 250
"""So many files are opened by one child."""


def kinds(material: Material) -> dict[str, tuple[Path, str, Callable[[Path], str]]]:
    """Of every kind of file: what to copy, which file to break, and how to open it.

    Opening gives a digest of every number that was read.
    """
    run, bench = material.run, material.bench
    found = {
        f"{form} data": (path, "*" if path.is_dir() else "", _data)
        for form, path in material.formats.items()
    }
    found |= {
        "policy": (run, "seed-0/policy.safetensors", _policy),
        "checkpoint": (run, "checkpoint-0.safetensors", _checkpoint),
        "run.json": (run, "run.json", _run),
        "result.json": (run, "result.json", _run),
        "metrics.jsonl": (run, "seed-0/metrics.jsonl", _metrics),
        "bench.json": (bench, "bench.json", _bench),
        "rows.jsonl": (bench, "rows.jsonl", _bench),
    }
    return found


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

    return f"{len(read_metrics(run / 'seed-0' / 'metrics.jsonl'))}"


def _bench(bench: Path) -> str:
    from merlin.bench.results_folder import ResultsFolder

    results = ResultsFolder(bench)
    return json.dumps([row.to_json() for row in results.rows.values()])


def mutate(rng: np.random.Generator, file: Path) -> bool:
    """Damage a file; whether it was by one bit, which a checksum must notice."""
    content = bytearray(file.read_bytes())
    way = rng.integers(10)
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
    elif file.suffix in (".json", ".jsonl"):
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


def trials(material: Material, folder: Path, seed: int) -> Iterator[tuple[str, str | None]]:
    """Damaged files without end: the kind of each, and what went wrong with it."""
    first = seed
    while True:
        reading, writing = os.pipe()
        last = first + BATCH
        child = Running(lambda: _open_all(material, folder, first, last, writing), folder)  # noqa: B023
        os.close(writing)
        answered, left = first, b""
        try:
            while answered < last:
                if not select.select([reading], [], [], 3 * HANG)[0]:
                    child.kill()
                    break
                piece = os.read(reading, 1 << 16)
                if not piece:
                    break
                *lines, left = (left + piece).split(b"\n")
                for line in lines:
                    kind, problem = json.loads(line)
                    answered += 1
                    yield kind, problem
        finally:
            os.close(reading)
            if answered < last:
                child.kill()
            ended = child.wait()
        if answered < last:
            what = f"the child ended with {ended.code}: {ended.err[-300:]}"
            yield "any", f"seed {answered}: {what}"
            answered += 1
        first = answered


def _open_all(material: Material, folder: Path, first: int, last: int, answers: int) -> None:
    known = {kind: how[2](how[0]) for kind, how in kinds(material).items()}
    signal.signal(signal.SIGALRM, _alarm)
    base = _peak_mb()
    for seed in range(first, last):
        kind, problem = _one(material, folder, seed, known)
        if _peak_mb() > base + MOST_EXTRA_MB:
            problem, base = f"seed {seed}: took {_peak_mb() - base:.0f} MB", _peak_mb()
        os.write(answers, json.dumps([kind, problem]).encode() + b"\n")


def _alarm(number: int, frame: object) -> None:
    raise TimeoutError("hangs")


def _one(
    material: Material, folder: Path, seed: int, known: dict[str, str]
) -> tuple[str, str | None]:
    rng = np.random.default_rng(seed)
    all_kinds = kinds(material)
    kind = list(all_kinds)[rng.integers(len(all_kinds))]
    source, pattern, opened = all_kinds[kind]
    copy = material.copy(source, folder / f"bad{source.suffix}")
    files = [copy] if copy.is_file() else sorted(p for p in copy.rglob(pattern) if p.is_file())
    one_bit = mutate(rng, files[rng.integers(len(files))])
    signal.alarm(int(HANG))
    began = time.monotonic()
    try:
        with contextlib.redirect_stderr(None):
            digest = opened(copy)
    except MerlinError:
        return kind, None
    except Exception as error:
        return kind, f"seed {seed}: {type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)
    if time.monotonic() - began > HANG:
        return kind, f"seed {seed}: hangs"
    # metrics.jsonl is a log without checksums.
    if one_bit and digest != known[kind] and kind != "metrics.jsonl":
        return kind, f"seed {seed}: one bit changed what was read"
    return kind, None


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
