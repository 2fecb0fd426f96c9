"""Dataset: the states of all episodes back to back, with episode boundaries."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from merlin.data.conversion import BOUND_SLACK, float32, float32_or_images, is_numeric
from merlin.data.images import pieces
from merlin.data.statistics import ROWS_AT_ONCE as ROWS_AT_ONCE
from merlin.errors import MerlinError
from merlin.types import Trajectories

ENVIRONMENT = "environment"
"""Provenance key: the environment as `module:EnvId`, if it is not one of the tasks."""
SUCCESS = "success"
"""Provenance key: fractions of episodes that reached their goal, as recorded."""
LOG = "log"
"""Provenance key: what a robot log says about itself, and the columns that were used."""

ORIGIN = "origin"
"""Provenance key: whether OGBench data was downloaded or regenerated."""


class Episode(NamedTuple):
    """One trajectory, with one action fewer than states."""

    observations: np.ndarray  # (states, *observation)
    actions: Float[np.ndarray, "actions action"]
    achieved_goals: Float[np.ndarray, "states goal"]
    desired_goal: Float[np.ndarray, " goal"] | None = None


@dataclass(frozen=True, repr=False)
class Dataset:
    """Offline trajectories of any length. Arrays may be memory maps and are never written to.

    Observations are float32 vectors or uint8 images; images may be a `Stream` or a `Selection`.
    `desired_goals` is None for trajectories that were not collected for a goal. With `drawn_steps`,
    transitions are drawn from the first steps of each episode, and later ones only provide goals.
    `load`, `from_episodes` and `merlin.train` check every number.
    """

    observations: Any  # (states, *observation): an array, a Stream or a Selection
    actions: Float[np.ndarray, "actions action"]
    achieved_goals: Float[np.ndarray, "states goal"]
    desired_goals: Float[np.ndarray, "episodes goal"] | None
    starts: Int[np.ndarray, "episodes+1"]
    action_low: Float[np.ndarray, " action"]
    action_high: Float[np.ndarray, " action"]
    task: str | None = None
    variant: str | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None  # the name it was loaded from, as accepted by `load`
    phi: tuple[int, ...] | None = None  # which columns of a state are its goal, if known
    drawn_steps: int | None = None  # of each episode, that transitions are drawn from; None: all

    @classmethod
    def from_episodes(
        cls,
        episodes: Iterable[Episode],
        *,
        action_low: float | np.ndarray = -1.0,
        action_high: float | np.ndarray = 1.0,
        final_action: str | None = None,
        **about: Any,
    ) -> "Dataset":
        """Check episodes and join them; `about` takes task, variant and provenance.

        Episodes with as many actions as states are rejected. With `final_action="drop"`, the last
        action of every episode is dropped instead.
        """
        if final_action not in (None, "drop"):
            raise MerlinError(f'final_action: {final_action!r} is not "drop"; leave it out.')
        parts: list[Episode] = []
        for number, episode in enumerate(episodes):
            first = parts[0] if parts else None
            parts.append(_as_arrays(episode, f"episode {number}", first, final_action == "drop"))
        if not parts:
            raise MerlinError("episodes: there are none; a dataset needs at least one.")
        return validate(join(parts, action_low, action_high, **about), "episodes", one_file=True)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __repr__(self) -> str:
        """A short summary, without the arrays."""
        named = {"task": self.task, "variant": self.variant, "source": self.source}
        sizes = {
            "episodes": len(self),
            "states": len(self.observations),
            "observation": "x".join(map(str, self.observation_shape)),
            "action": self.action_dim,
            "goal": self.goal_dim,
            "desired_goals": self.desired_goals is not None,
        }
        known = [f"{name}={value!r}" for name, value in named.items() if value is not None]
        return f"Dataset({', '.join([*known, *(f'{k}={v}' for k, v in sizes.items())])})"

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return tuple(self.observations.shape[1:])

    @property
    def action_dim(self) -> int:
        return self.actions.shape[1]

    @property
    def goal_dim(self) -> int:
        return self.achieved_goals.shape[1]

    @property
    def has_images(self) -> bool:
        return self.observations.ndim > 2

    @property
    def lengths(self) -> Int[np.ndarray, " episodes"]:
        """Number of states of each episode."""
        return np.diff(self.starts)

    @property
    def transitions(self) -> int:
        """Number of transitions that minibatches are drawn from."""
        limit = np.inf if self.drawn_steps is None else self.drawn_steps
        return int(np.minimum(self.lengths - 1, limit).sum())

    def episode(self, index: int) -> Episode:
        """One of the episodes, from 0 to `len(data) - 1`."""
        begin, end = int(self.starts[index]), int(self.starts[index + 1])
        return Episode(
            observations=self.observations[begin:end],
            actions=self.actions[begin - index : end - index - 1],
            achieved_goals=self.achieved_goals[begin:end],
            desired_goal=None if self.desired_goals is None else self.desired_goals[index],
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays, keyed by the names of their files in the native folder."""
        named = {
            "observations": self.observations,
            "actions": self.actions,
            "achieved_goals": self.achieved_goals,
            "desired_goals": self.desired_goals,
            "starts": self.starts,
        }
        return {name: array for name, array in named.items() if array is not None}

    def fingerprint(self) -> str:
        """A hash of the content, so that a run is never resumed on other data."""
        digest = hashlib.sha256()
        for name, array in self.arrays().items():
            digest.update(f"{name}{array.shape}{array.dtype}".encode())
            for _, piece in pieces(array, ROWS_AT_ONCE):
                digest.update(np.ascontiguousarray(piece).data)
        return digest.hexdigest()

    def on_device(self, first_row: int = 0) -> Trajectories:
        """Copy to the default device for the jitted sampler.

        Images are not copied. They are replaced by their row numbers, starting at `first_row`, for
        use with `Images.gather`.
        """
        if len(self.observations) >= 2**31:
            raise MerlinError("observations: more than 2^31 states; split the dataset.")
        desired = self.desired_goals
        rows = np.arange(first_row, first_row + len(self.observations), dtype=np.int32)
        observations = jnp.asarray(rows if self.has_images else self.observations)
        same = self.achieved_goals is self.observations
        return Trajectories(
            observations=observations,
            actions=jnp.asarray(self.actions),
            achieved_goals=observations if same else jnp.asarray(self.achieved_goals),
            desired_goals=None if desired is None else jnp.asarray(desired),
            starts=jnp.asarray(self.starts.astype(np.int32)),
            drawn_steps=self.drawn_steps,
        )


def join(
    episodes: Sequence[Episode],
    action_low: float | np.ndarray,
    action_high: float | np.ndarray,
    **about: Any,
) -> Dataset:
    """Join episodes of arrays into a dataset, without validation."""
    goals = [episode.desired_goal for episode in episodes if episode.desired_goal is not None]
    action_shape = episodes[0].actions.shape[1:]

    def bound(value: float | np.ndarray) -> np.ndarray:
        return np.full(action_shape, value, np.float32) if np.ndim(value) == 0 else float32(value)

    return Dataset(
        observations=np.concatenate([float32_or_images(e.observations) for e in episodes]),
        actions=float32(np.concatenate([e.actions for e in episodes])),
        achieved_goals=float32(np.concatenate([e.achieved_goals for e in episodes])),
        desired_goals=float32(np.stack(goals)) if goals else None,
        starts=np.cumsum([0] + [len(e.observations) for e in episodes], dtype=np.int64),
        action_low=bound(action_low),
        action_high=bound(action_high),
        **about,
    )


_DIMENSIONS = {
    "observations": ("one row per state", (2, 4)),
    "actions": ("one row per action", (2,)),
    "achieved_goals": ("one row per state", (2,)),
    "desired_goal": ("one goal for the whole episode", (1,)),
}


def _as_arrays(episode: Any, where: str, first: Episode | None, drop: bool) -> Episode:
    """Convert an episode to arrays, and check that it matches the first episode."""
    if not isinstance(episode, Episode):
        kind = type(episode).__name__
        raise MerlinError(f"{where} is of the type {kind}; make it a merlin.Episode.")
    if episode.achieved_goals is None:
        raise MerlinError(
            f"{where} has no achieved_goals; give the part of every state that is its goal, e.g. "
            "achieved_goals=observations[:, :2]."
        )
    arrays = {
        name: _as_array(value, f"{where}: {name}", *_DIMENSIONS[name])
        for name, value in episode._asdict().items()
        if value is not None
    }
    if first is not None:
        _check_alike(arrays, first, where)
    states, actions = len(arrays["observations"]), len(arrays["actions"])
    if states < 2:
        raise MerlinError(f"{where} has {states} state(s) and so no action; drop it.")
    wanted = states if drop else states - 1
    if actions != wanted:
        cures = {
            states: 'drop the last action, or pass final_action="drop"',
            states - 1: 'leave final_action="drop" out',
        }
        cure = cures.get(actions, f"give {wanted} actions")
        raise MerlinError(f"{where} has {states} states and {actions} actions: {cure}.")
    goals = len(arrays["achieved_goals"])
    if goals != states:
        raise MerlinError(f"{where} has {states} states and {goals} achieved_goals; give as many.")
    return Episode(**{**arrays, "actions": arrays["actions"][: states - 1]})


def _as_array(value: Any, what: str, rows: str, dimensions: tuple[int, ...]) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:  # nested lists of different lengths
        raise MerlinError(f"{what}: its rows are not equally long; give an array.") from None
    if not is_numeric(array):
        raise MerlinError(f"{what}: holds {array.dtype}, not numbers; give an array of numbers.")
    if array.ndim not in dimensions:
        images = "; images have 4" if 4 in dimensions else ""
        raise MerlinError(
            f"{what}: the shape is {array.shape}; give {rows}, so that the array has "
            f"{dimensions[0]} dimension{'s' * (dimensions[0] > 1)}{images}."
        )
    return array


def _check_alike(arrays: Mapping[str, np.ndarray], first: Episode, where: str) -> None:
    """Raise an error for an episode whose fields or widths differ from the first."""
    for name, known in first._asdict().items():
        if (known is not None) != (name in arrays):
            has, lacks = (where, "episode 0") if known is None else ("episode 0", where)
            raise MerlinError(f"{lacks} has no {name} but {has} has; give it to all or to none.")
        if known is None:
            continue
        skip = 0 if name == "desired_goal" else 1
        width, wanted = arrays[name].shape[skip:], known.shape[skip:]
        if width != wanted:
            sizes = ["x".join(map(str, shape)) for shape in (width, wanted)]
            raise MerlinError(
                f"{where}: {name} has {sizes[0]} numbers per row, not the {sizes[1]} of episode 0; "
                "give all episodes the same."
            )


class _Place(NamedTuple):
    """Location for error messages: a folder with one file per field, or a single file."""

    name: str
    one_file: bool

    def __str__(self) -> str:
        return self.name

    def of(self, field_name: str) -> str:
        if not self.one_file:
            return f"{self.name}/{field_name}.npy:"
        # Only the native format has starts; others define the episodes themselves.
        return f"{self.name}:" if field_name == "starts" else f"{self.name}: {field_name}"


def validate(data: Dataset, where: str = "dataset", *, one_file: bool = False) -> Dataset:
    """Return `data` if it is valid; otherwise raise an error naming the file, field and index."""
    place = _Place(where, one_file)
    _check_shapes(data, place)
    _check_bounds(data, place)
    for name, array in data.arrays().items():
        again = name == "achieved_goals" and array is data.observations
        if array.dtype == np.float32 and not again:
            _check_numbers(data, name, array, place)
    return data


def _fail(where: _Place, field_name: str, problem: str) -> None:
    raise MerlinError(f"{where.of(field_name)} {problem}")


def _check_shapes(data: Dataset, where: _Place) -> None:
    kinds = {
        "observations": (("float32", "uint8"), (2, 4)),
        "actions": (("float32",), (2,)),
        "achieved_goals": (("float32",), (2,)),
        "desired_goals": (("float32",), (2,)),
        "starts": (("int64",), (1,)),
    }
    for name, array in data.arrays().items():
        dtypes, dimensions = kinds[name]
        if array.dtype.name not in dtypes:
            _fail(where, name, f"dtype is {array.dtype}, not {' or '.join(dtypes)}; convert it.")
        if (
            array.ndim not in dimensions
            or (array.ndim == 4) != (array.dtype == np.uint8)
            or 0 in array.shape[1:]
        ):
            images = "; images are uint8 with 4" if 4 in dimensions else ""
            wanted = f"{dimensions[0]} non-empty dimensions{images}"
            _fail(where, name, f"shape is {array.shape} of {array.dtype}; give {wanted}.")
    if len(data.starts) < 2:
        _fail(where, "starts", "no episode is listed; collect or convert at least one.")
    states, episodes = len(data.observations), len(data)
    expected = {"actions": states - episodes, "achieved_goals": states, "desired_goals": episodes}
    for name, rows in expected.items():
        array = getattr(data, name)
        if array is not None and len(array) != rows:
            _fail(
                where,
                name,
                f"has {len(array)} rows, not the {rows} that {episodes} episodes "
                f"of {states} states need; write the dataset again.",
            )
    if data.desired_goals is not None and (wide := data.desired_goals.shape[1]) != data.goal_dim:
        problem = f"goals have {wide} dimensions, achieved ones {data.goal_dim}."
        _fail(where, "desired_goals", problem)


def _check_bounds(data: Dataset, where: _Place) -> None:
    if data.starts[0] != 0 or data.starts[-1] != len(data.observations):
        span = f"{data.starts[0]} .. {data.starts[-1]}"
        _fail(where, "starts", f"spans {span}, not 0 .. {len(data.observations)}; write it again.")
    short = np.flatnonzero(data.lengths < 2)
    if len(short):
        e = short[0]
        problem = f"episode {e} has {data.lengths[e]} state(s) and so no action; drop it."
        _fail(where, "starts", problem)
    if data.drawn_steps is not None and data.drawn_steps < 1:
        raise MerlinError(f"{where}: drawn_steps is {data.drawn_steps}; it starts at 1.")
    for name, bound in (("action_low", data.action_low), ("action_high", data.action_high)):
        if bound.shape != (data.action_dim,) or not np.isfinite(bound).all():
            raise MerlinError(f"{where}: {name} must be {data.action_dim} finite numbers.")
    if not (data.action_low < data.action_high).all():
        d = int(np.flatnonzero(data.action_low >= data.action_high)[0])
        raise MerlinError(f"{where}: action_low is not below action_high in dimension {d}.")


def _locate(data: Dataset, name: str, row: int) -> str:
    if name == "desired_goals":
        return f"episode {row}"
    starts = data.starts - np.arange(len(data.starts)) if name == "actions" else data.starts
    episode = int(np.searchsorted(starts, row, side="right")) - 1
    return f"row {row} (step {row - starts[episode]} of episode {episode})"


def _check_numbers(data: Dataset, name: str, array: np.ndarray, where: _Place) -> None:
    """Raise an error at the first number that is not finite or, for actions, out of bounds."""
    low, high = data.action_low, data.action_high
    for begin, piece in pieces(array, ROWS_AT_ONCE):
        fits = np.isfinite(piece)
        if fits.all() and name == "actions":
            fits = (piece >= low - BOUND_SLACK) & (piece <= high + BOUND_SLACK)
        if fits.all():
            continue
        row, dim = (int(index) for index in np.argwhere(~fits)[0])
        problem = f"{_locate(data, name, begin + row)} is {piece[row, dim]:g} in dimension {dim}"
        if np.isfinite(piece[row, dim]):
            problem += (
                f", outside [{low[dim]:g}, {high[dim]:g}]; rescale the actions, or widen "
                "action_low and action_high."
            )
        else:
            problem += "; repair or drop it."
        _fail(where, name, problem)
