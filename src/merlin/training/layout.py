"""The files of a run folder.

Nothing heavy is imported, so that a robot loads its policy quickly. `training.folder` has the
contents of run.json.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merlin.errors import MerlinError
from merlin.io.files import read_json
from merlin.io.schema import read_as

FORMAT, SCHEMA = "merlin-run", 1
CONFIG = "run.json"
FILES = {"final": "policy.safetensors", "best": "best.safetensors"}
"""The policy of each checkpoint, in the folder of a seed."""


@dataclass(frozen=True)
class Seeds:
    """The part of run.json that is needed to find a policy."""

    seeds: tuple[int, ...]


def is_run(folder: Path) -> bool:
    return (folder / CONFIG).exists()


def read_content(folder: Path) -> tuple[dict[str, Any], tuple[int, ...]]:
    """The content of run.json, and the seeds that it names."""
    if not folder.is_dir():
        raise MerlinError(f"{folder}: no such run folder; give one made by `merlin train --out`.")
    path = folder / CONFIG
    if not path.exists() and (folder / "meta.json").exists():
        raise MerlinError(f"{folder}: is a dataset, not a run; train on it with `merlin train`.")
    content = read_json(path, "a run folder")
    if content.get("format") != FORMAT or content.get("schema") != SCHEMA:
        raise MerlinError(f"{path}: was written by another version of merlin.")
    seeds: tuple[int, ...] = read_as(Seeds, content, path).seeds
    if not seeds or min(seeds) < 0:
        raise MerlinError(f"{path}: names no seeds; train again.")
    return content, seeds


def policy_file(folder: Path, seed: int | None = None, checkpoint: str = "final") -> Path:
    """The policy file of one seed, by default the first; `checkpoint` is 'final' or 'best'."""
    if checkpoint not in FILES:
        raise MerlinError(f"checkpoint: {checkpoint!r} is neither final nor best.")
    _, seeds = read_content(folder)
    if seed is not None and seed not in seeds:
        known = ", ".join(map(str, seeds))
        raise MerlinError(f"seed: {folder} has no seed {seed}; it has {known}.")
    at = folder / f"seed-{seeds[0] if seed is None else seed}" / FILES[checkpoint]
    if not at.exists():
        import shlex

        raise MerlinError(
            f"{at}: is not there yet; finish the run with "
            f"`merlin train --out {shlex.quote(str(folder))} --resume`."
        )
    return at
