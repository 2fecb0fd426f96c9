"""merlin collect"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from merlin.cli.environment import DEFAULT, OwnEnvironment
from merlin.cli.options import RUN_AGAIN
from merlin.envs.registry import find


@dataclass(frozen=True)
class Collect:
    """Play episodes of a task and write them to a dataset folder.

    The same seed gives the same data. If the command is interrupted, run it again to resume.
    For example:

      merlin collect PointRooms --variant random --episodes 2000 --out data/rooms
      merlin collect FetchPush --variant expert --out data/push
      merlin collect SawyerDoor --variant random --pixels --out data/door
      merlin collect ogbench:pointmaze-medium-navigate-v0 --episodes 100 --out data/maze
      merlin collect gymnasium_robotics:PointMaze_UMaze-v3 --episodes 200 --out data/maze
    """

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
    """A task listed by `merlin tasks`, ogbench:NAME, or your own environment as module:EnvId."""
    out: Path
    """Folder to write; it must not exist."""
    variant: str | None = None
    """Behaviour policy: random (the default), or expert (the task's trained expert with noise).
    For OGBench only regenerated: the recipe of the published data."""
    episodes: int | None = None
    """Number of episodes; by default as many as the published data has."""
    seed: int = 0
    """Random seed of the dataset."""
    noise: float = 0.2
    """Standard deviation of the Gaussian noise added to expert actions."""
    uniform: float = 0.3
    """Fraction of expert actions that are replaced by uniformly random ones."""
    pixels: bool = False
    """Record images instead of states, for tasks that support it (see `merlin tasks`)."""
    workers: int | None = None
    """Number of worker processes; by default one per core. It does not affect the data."""
    engine: str = "local"
    """Where to run the workers: local (this machine) or ray."""
    address: str | None = None
    """Address of a running Ray cluster; by default a local one is started."""
    overwrite: bool = False
    """Replace a dataset at --out."""
    environment: OwnEnvironment = DEFAULT
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        task = find(self.environment.of(self.task))
        from merlin.collection.collect import collect_to, made_variant
        from merlin.data import describe, load
        from merlin.data.formats.native import check_free
        from merlin.parallel.engine import open_engine

        check_free(self.out, self.overwrite)
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
            raise KeyboardInterrupt(RUN_AGAIN) from None
        finally:
            if engine is not None:
                engine.close()
        data = load(self.out)
        if not self.json:
            print(f"{self.out}: {describe.in_words(data)}")
        return {"path": str(self.out), **describe.describe(data)}
