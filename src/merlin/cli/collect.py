"""merlin collect"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from merlin.files import check_free
from merlin.tasks.registry import find


@dataclass(frozen=True)
class Collect:
    """Play a task and write the episodes as a dataset folder.

    The same seed gives the same data. For example:

      merlin collect PointRooms --variant random --episodes 2000 --out data/rooms
    """

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
    """Name of the task, as `merlin tasks` lists it, or module:EnvId of your own."""
    out: Path
    """Folder to write; it must not exist yet."""
    variant: str = "random"
    """How to act: random."""
    episodes: int | None = None
    """How many episodes; as many as in the paper's data unless given."""
    seed: int = 0
    """Seed of the whole dataset."""
    workers: int | None = None
    """Processes that play; one per core unless given. The data does not depend on it."""
    overwrite: bool = False
    """Replace what is at --out."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        task = find(self.task)
        check_free(self.out, self.overwrite)
        from merlin.data import describe, save
        from merlin.experts.collect import collect

        data = collect(
            task,
            self.variant,
            episodes=self.episodes,
            seed=self.seed,
            workers=self.workers,
            quiet=False,
        )
        save(data, self.out, overwrite=self.overwrite)
        about = {"path": str(self.out), **describe.describe(data)}
        if not self.json:
            print(f"{self.out}: {describe.in_words(data)}")
        return about
