"""The contents of run.json, and the lock of a run folder that is being written."""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from merlin.errors import MerlinError
from merlin.io.files import is_temporary, refuse_links, sweep, write_json
from merlin.io.locks import lock
from merlin.io.schema import check_episodes, is_integer, read_as
from merlin.training.layout import CONFIG, FORMAT, SCHEMA, is_run, read_content

LOCK = ".lock"
MOST = 10**12
"""Maximum number of updates, and of every other number in a schedule."""


@dataclass(frozen=True)
class Schedule:
    """How many updates to train, and how often to log, evaluate and save."""

    updates: int = 5000
    eval_every: int = 2000
    eval_episodes: int = 100
    final_episodes: int = 200
    log_every: int = 200
    checkpoint_every: int = 1000

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not is_integer(value):
                raise MerlinError(f"{name}: {value!r} is not an integer; give at least 1.")
            if not 1 <= value <= MOST:
                less = "below 1; give 1 or more" if value < 1 else f"above {MOST}; give fewer"
                raise MerlinError(f"{name}: {value} is {less}.")
        for name in ("eval_episodes", "final_episodes"):
            check_episodes(name, vars(self)[name])

    def next_stop(self, after: int) -> int:
        """The next update after which something is logged, evaluated or saved."""
        every = (self.log_every, self.eval_every, self.checkpoint_every)
        return min(self.updates, *((after // each + 1) * each for each in every))

    def due(self, every: int, step: int) -> bool:
        """Whether an event that happens every `every` updates, and at the end, is due."""
        return step > 0 and (step % every == 0 or step == self.updates)


@dataclass(frozen=True)
class Source:
    """The path of a run's data, if it is on disk, and its fingerprint."""

    path: str | None = None
    fingerprint: str | None = None


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run. Fields that are None are omitted from the file."""

    algo: str
    settings: dict[str, Any]  # of the learner
    task: str | None
    data: Source
    dimensions: tuple[int, ...]  # sizes of observation, action and goal
    seeds: tuple[int, ...]
    together: bool  # whether all seeds train in parallel
    schedule: Schedule
    variant: str | None = None
    augment: dict[str, Any] | None = None  # name and settings
    mix: float | None = None
    goal: str = "vector"
    shift: int = 0
    latents: dict[str, Any] | None = None
    held_out: float | None = None  # fraction of episodes held out; None if there are none
    phi: tuple[int, ...] | None = None  # which columns of a state are its goal
    version: str | None = None  # of merlin

    def to_json(self) -> dict[str, Any]:
        told = {"format": FORMAT, "schema": SCHEMA, **asdict(self)}
        schedule = told.pop("schedule")
        kept = {k: v for k, v in told.items() if v is not None or k in ("task", "variant")}
        return {**kept, **schedule}

    @classmethod
    def from_json(cls, content: dict[str, Any], where: Path) -> Self:
        schedule = {field.name for field in fields(Schedule)}
        if missing := sorted(schedule - content.keys()):
            raise MerlinError(f"{where}: lacks {missing[0]!r}; train again.")
        own = {key: value for key, value in content.items() if key not in schedule}
        config: Self = read_as(cls, {**own, "schedule": content}, where)
        if len(config.dimensions) < 3:
            raise MerlinError(f"{where}: names no dimensions; train again.")
        return config

    def difference(self, other: "RunConfig") -> str | None:
        """The first field in which two runs differ such that their updates would differ."""
        same = ("algo", "settings", "augment", "mix", "goal", "shift", "latents", "task", "seeds")
        one, two = self.to_json(), other.to_json()
        names = (*same, "held_out", "eval_episodes", "eval_every")
        return next((name for name in names if one.get(name) != two.get(name)), None)


def read_config(folder: Path) -> RunConfig:
    """Read the configuration of a run."""
    content, _ = read_content(folder)
    return RunConfig.from_json(content, folder / CONFIG)


def write_config(folder: Path, config: RunConfig) -> None:
    write_json(folder / CONFIG, config.to_json())


def refuse_finished(folder: Path, resume: bool) -> None:
    """Raise an error rather than overwrite a run, unless it is being resumed."""
    if is_run(folder) and not resume:
        raise MerlinError(
            f"{folder}: holds a run already; continue it with `resume=True`, or "
            "choose another folder."
        )


@contextlib.contextmanager
def opened(folder: Path, resume: bool) -> Iterator[None]:
    """Create or open a run folder and lock it against other training processes.

    The lock is released when the process ends, for whatever reason. Temporary files of earlier
    processes are removed, even if nothing is written to the folder again.
    """
    refuse_finished(folder, resume)
    own = lambda path: path.name == LOCK or is_temporary(path)  # noqa: E731
    strange = folder.is_dir() and not all(map(own, folder.iterdir()))
    if folder.is_file() or (strange and not is_run(folder)):
        raise MerlinError(f"{folder}: is not empty and holds no run; choose another folder.")
    refuse_links(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MerlinError(f"{folder}: cannot be created ({error.strerror}).") from None
    with lock(folder / LOCK, str(folder)):
        try:
            yield
        finally:
            for place in (folder, *folder.glob("seed-*")):
                sweep(place)
