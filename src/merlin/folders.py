"""Where a run folder keeps what; needs nothing heavy, so that a robot can read one, too."""

from pathlib import Path
from typing import Any

from merlin.errors import MerlinError
from merlin.files import read_json

FORMAT, SCHEMA = "merlin-run", 1
CHECKPOINTS = ("final", "best")
_FILES = {"final": "policy.safetensors", "best": "best.safetensors"}
_ASKED = (
    *("algo", "settings", "task", "data", "seeds", "dimensions", "together"),
    *("updates", "eval_every", "eval_episodes", "final_episodes", "log_every", "checkpoint_every"),
)


def read_config(folder: Path) -> dict[str, Any]:
    """What a run was asked to do."""
    if not folder.is_dir():
        raise MerlinError(f"{folder}: no such run folder; give what `merlin train --out` made.")
    config = read_json(folder / "run.json", "a run folder")
    if config.get("format") != FORMAT or config.get("schema") != SCHEMA:
        raise MerlinError(f"{folder / 'run.json'}: was written by another version of merlin.")
    missing = set(_ASKED) - config.keys()
    if missing:
        raise MerlinError(f"{folder / 'run.json'}: lacks {min(missing)!r}; train anew.")
    return config


def policy_file(folder: Path, seed: int | None = None, checkpoint: str = "final") -> Path:
    """The policy of one seed, the first unless given; `checkpoint` is 'final' or 'best'."""
    if checkpoint not in CHECKPOINTS:
        raise MerlinError(f"--checkpoint: {checkpoint!r} is neither final nor best.")
    seeds = read_config(folder)["seeds"]
    if seed is not None and seed not in seeds:
        known = ", ".join(map(str, seeds))
        raise MerlinError(f"--seed: {folder} has no seed {seed}; it has {known}.")
    at = folder / f"seed-{seeds[0] if seed is None else seed}" / _FILES[checkpoint]
    if not at.exists():
        raise MerlinError(
            f"{at}: is not there yet; finish the run with `merlin train --out {folder} --resume`."
        )
    return at
