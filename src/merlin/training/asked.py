"""The options of a run besides the method and the data, and their types."""

import dataclasses
import itertools
import reprlib
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, TypedDict

from merlin.augment import Augmentation
from merlin.augment.latents import Latents
from merlin.envs.registry import Task
from merlin.errors import MerlinError
from merlin.io.schema import MOST, is_integer
from merlin.training.folder import Schedule

LONGEST = 100_000
"""Maximum number of seeds, and of columns."""


class Asked(TypedDict, total=False):
    """Options of a run besides the method and the data; all have defaults."""

    task: Task | str | None  # evaluation task, "none" for no task; default: the dataset's own
    seeds: int | Sequence[int]  # number of seeds, or a list of seeds
    augment: Augmentation | None  # makes synthetic trajectories, separately for each seed
    mix: float | None  # fraction of synthetic examples per batch; None: their share of all data
    phi: str | Sequence[int]  # columns of a state that are its goal, if the data does not say
    goal: str  # form of goals with image observations: "vector" or "image"
    shift: int  # maximum random shift of each image, in pixels
    held_out: float | None  # fraction of held-out episodes; default: 0 with a task, otherwise 0.1
    latents: Latents | None  # train an image encoder first, and the method on its latents
    updates: int
    eval_every: int
    eval_episodes: int
    final_episodes: int
    log_every: int
    checkpoint_every: int


def checked(asked: Mapping[str, Any]) -> Asked:
    """The options, with numbers of NumPy as those of Python; refuses wrong names and types."""
    if unknown := asked.keys() - Asked.__annotations__.keys():
        raise TypeError(f"train() got an unexpected keyword argument {min(unknown)!r}")
    found: Any = {name: read_option(name, value) for name, value in asked.items()}
    return found


def read_option(name: str, value: Any) -> Any:
    """The value of an option; `Schedule` checks those that have no entry in `KINDS`."""
    plain = int(value) if is_integer(value) else value
    if name not in KINDS:
        return plain
    read, wanted = KINDS[name]
    try:
        return read(plain)
    except TypeError:
        told = reprlib.repr(value)
        raise MerlinError(f"{name}: {told} has the wrong type; give {wanted}.") from None


def schedule_of(asked: Asked) -> Schedule:
    """The schedule among the options."""
    names = {field.name for field in dataclasses.fields(Schedule)}
    return Schedule(**{k: v for k, v in asked.items() if k in names})  # type: ignore[arg-type]


def seeds_of(asked: Asked) -> tuple[int, ...]:
    """The seeds: as listed, or the first ones."""
    seeds = asked.get("seeds", 1)
    chosen = _integers(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0:
        raise MerlinError("seeds: give at least one, without duplicates or negative numbers.")
    if len(chosen) > LONGEST or max(chosen) >= MOST:
        raise MerlinError(f"seeds: give at most {LONGEST}, each below 2**63.")
    return chosen


def _integers(value: Any) -> tuple[int, ...]:
    """Integers, cut off one after the longest list that is allowed."""
    if isinstance(value, str | bytes):
        raise TypeError
    return tuple(_integer(x) for x in itertools.islice(value, LONGEST + 1))


def _integer(value: Any) -> int:
    if not is_integer(value):
        raise TypeError
    return int(value)


def _fraction(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError
    return float(value)


def _instance_of(*kinds: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise TypeError
        return value

    return read


def _path(value: Any) -> Path | None:
    return None if value is None else Path(value)


KINDS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "task": (_instance_of(Task, str, type(None)), "a task, the name of one, or None"),
    "seeds": (
        lambda value: value if type(value) is int else _integers(value),
        "the number of seeds, or a list of integers",
    ),
    "augment": (_instance_of(Augmentation, type(None)), "an augmentation, or None"),
    "mix": (_fraction, "a fraction, or None"),
    "phi": (
        lambda value: value if isinstance(value, str) else _integers(value),
        "text such as '0:2', or a list of integers",
    ),
    "goal": (_instance_of(str), "'vector' or 'image'"),
    "shift": (_integer, "a number of pixels"),
    "held_out": (_fraction, "a fraction, or None"),
    "latents": (_instance_of(Latents, type(None)), "merlin.augment.latents.Latents(), or None"),
    "out": (_path, "the path of a folder, or None"),
    "shared": (_path, "the path of a folder, or None"),
}
"""How each option is read, raising TypeError, and what it should be."""
