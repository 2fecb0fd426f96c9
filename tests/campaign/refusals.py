"""What attacks share: how a refusal must be, and files that say something else."""

import json
from pathlib import Path

from campaign.processes import Ended
from helpers.breaking import plain_json

MOST_MB = 1000.0


def refused(ended: Ended, *, most_mb: float = MOST_MB) -> str | None:
    """What is wrong with a refusal: anything but one sentence, soon, without much memory."""
    if ended.hangs:
        return f"took {ended.seconds:.0f} s"
    if ended.peak_mb > most_mb + BASE_MB:
        return f"took {ended.peak_mb:.0f} MB"
    return ended.problem(2)


BASE_MB = 700.0
"""What Python with JAX takes before it reads anything."""


def change_minari_task(home: Path, task: str) -> None:
    path = home / "data" / "metadata.json"
    about = json.loads(path.read_text())
    about["merlin"] = {"task": task}
    path.write_text(json.dumps(about))


def say(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**plain_json(path), **values}))
