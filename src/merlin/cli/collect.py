"""merlin collect"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from merlin.cli.environment import DEFAULT, OwnEnvironment
from merlin.envs.registry import find
from merlin.io.files import check_free


@dataclass(frozen=True)
class Collect:
    """Play a task and write the episodes as a dataset folder.

    The same seed gives the same data. Stopped or killed, the same command goes on where it was.
    For example:

      merlin collect PointRooms --variant random --episodes 2000 --out data/rooms
      merlin collect FetchPush --variant expert --out data/push
      merlin collect SawyerDoor --variant random --pixels --out data/door
      merlin collect ogbench:pointmaze-medium-navigate-v0 --episodes 100 --out data/maze
      merlin collect gymnasium_robotics:PointMaze_UMaze-v3 --episodes 200 --out data/maze
    """

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
    """Name of the task, as `merlin tasks` lists it, ogbench:NAME, or module:EnvId of your own."""
    out: Path
    """Folder to write; it must not exist yet."""
    variant: str | None = None
    """How to act: random (unless given), or expert (the task's trained expert with noise). Of
    OGBench there is only regenerated: by the recipe of the published data."""
    episodes: int | None = None
    """How many episodes; as many as in the published data unless given."""
    seed: int = 0
    """Seed of the whole dataset."""
    noise: float = 0.2
    """Deviation of the Gaussian noise on an expert's actions."""
    uniform: float = 0.3
    """Share of an expert's actions that are replaced by uniform ones."""
    pixels: bool = False
    """Record images instead of states, for the tasks that have them (see `merlin tasks`)."""
    workers: int | None = None
    """Processes that play; one per core unless given. The data does not depend on it."""
    engine: str = "local"
    """Where to play: local (processes of this machine) or ray."""
    address: str | None = None
    """Of a running Ray cluster; one is started here unless given."""
    overwrite: bool = False
    """Replace what is at --out."""
    environment: OwnEnvironment = DEFAULT
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        task = find(self.environment.of(self.task))
        check_free(self.out, self.overwrite)
        from merlin.collection.collect import collect_to, made_variant
        from merlin.data import describe, load
        from merlin.parallel.engine import open_engine

        variant = self.variant or made_variant(task)
        away = self.engine != "local" or self.address is not None
        engine = (
            open_engine(self.engine, workers=self.workers, address=self.address) if away else None
        )
        try:
            collect_to(
                self.out,
                task,
                variant,
                overwrite=self.overwrite,
                episodes=self.episodes,
                seed=self.seed,
                noise=self.noise,
                uniform=self.uniform,
                pixels=self.pixels,
                workers=self.workers,
                engine=engine,
                quiet=False,
            )
        except KeyboardInterrupt:
            print("merlin: stopped; the same command goes on where this was.", file=sys.stderr)
            sys.exit(130)
        finally:
            if engine is not None:
                engine.close()
        data = load(self.out)
        if not self.json:
            print(f"{self.out}: {describe.in_words(data)}")
        return {"path": str(self.out), **describe.describe(data)}
