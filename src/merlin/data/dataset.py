"""Dataset: all states of all episodes back to back, with episode bounds."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from merlin.data.images import pieces
from merlin.errors import MerlinError
from merlin.types import Trajectories

BOUND_SLACK = 1e-4
"""How far an action may stand outside its bounds: float32 rounding of a clipped action."""
ROWS_AT_ONCE = 1 << 18
"""Memory-mapped arrays are checked in pieces of so many rows, so that memory stays small."""


class Episode(NamedTuple):
    """One trajectory: one action fewer than states."""

    observations: np.ndarray  # (states, *observation)
    actions: Float[np.ndarray, "actions action"]
    achieved_goals: Float[np.ndarray, "states goal"]
    desired_goal: Float[np.ndarray, " goal"] | None = None


@dataclass(frozen=True)
class Dataset:
    """Offline trajectories of any length; arrays may be memory maps and are never written to.

    Observations are float32 vectors or uint8 images; the latter may be a `Stream` or a
    `Selection`. `desired_goals` is None for plain trajectories that were not collected for a goal.
    Call `validate` on data from outside.
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
    source: str | None = None  # what it was loaded from, as `load` takes it

    @classmethod
    def from_episodes(
        cls,
        episodes: Iterable[Episode],
        *,
        action_low: float | np.ndarray = -1.0,
        action_high: float | np.ndarray = 1.0,
        **about: Any,
    ) -> "Dataset":
        """Join episodes; `about` takes task, variant and provenance."""
        parts = list(episodes)
        if not parts:
            raise MerlinError("episodes: there are none; a dataset needs at least one.")
        goals = [e.desired_goal for e in parts if e.desired_goal is not None]
        if goals and len(goals) < len(parts):
            raise MerlinError("desired_goal: some episodes have one and some do not; drop them.")
        actions = np.concatenate([e.actions for e in parts]).astype(np.float32)
        observations = np.concatenate([e.observations for e in parts])
        if observations.dtype != np.uint8:
            observations = observations.astype(np.float32)
        dim = actions.shape[1:]
        return cls(
            observations=observations,
            actions=actions,
            achieved_goals=np.concatenate([e.achieved_goals for e in parts]).astype(np.float32),
            desired_goals=np.stack(goals).astype(np.float32) if goals else None,
            starts=np.cumsum([0] + [len(e.observations) for e in parts]),
            action_low=np.broadcast_to(np.asarray(action_low, np.float32), dim),
            action_high=np.broadcast_to(np.asarray(action_high, np.float32), dim),
            **about,
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def has_images(self) -> bool:
        return self.observations.ndim > 2

    @property
    def lengths(self) -> Int[np.ndarray, " episodes"]:
        """Number of states of each episode."""
        return np.diff(self.starts)

    def episode(self, index: int) -> Episode:
        begin, end = int(self.starts[index]), int(self.starts[index + 1])
        return Episode(
            observations=self.observations[begin:end],
            actions=self.actions[begin - index : end - index - 1],
            achieved_goals=self.achieved_goals[begin:end],
            desired_goal=None if self.desired_goals is None else self.desired_goals[index],
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by the name of their file in the native folder."""
        named = {
            "observations": self.observations,
            "actions": self.actions,
            "achieved_goals": self.achieved_goals,
            "desired_goals": self.desired_goals,
            "starts": self.starts,
        }
        return {name: array for name, array in named.items() if array is not None}

    def fingerprint(self) -> str:
        """What identifies the content, so that a run is never resumed on other data."""
        digest = hashlib.sha256()
        for name, array in self.arrays().items():
            digest.update(f"{name}{array.shape}{array.dtype}".encode())
            for _, piece in pieces(array, ROWS_AT_ONCE):
                digest.update(np.ascontiguousarray(piece).data)
        return digest.hexdigest()

    def on_device(self, first_row: int = 0) -> Trajectories:
        """Copy to the default device, where the jitted sampler reads it.

        Images stay where they are. In place of them are the numbers of their rows, counted from
        `first_row`, for `Images.gather`.
        """
        if len(self.observations) >= 2**31:
            raise MerlinError("observations: more than 2^31 states; split the dataset.")
        desired = self.desired_goals
        rows = np.arange(first_row, first_row + len(self.observations), dtype=np.int32)
        return Trajectories(
            observations=jnp.asarray(rows if self.has_images else self.observations),
            actions=jnp.asarray(self.actions),
            achieved_goals=jnp.asarray(self.achieved_goals),
            desired_goals=None if desired is None else jnp.asarray(desired),
            starts=jnp.asarray(self.starts.astype(np.int32)),
        )


class _Place(NamedTuple):
    """What an error names: a folder with a file per field, or one file with all of them."""

    name: str
    one_file: bool

    def __str__(self) -> str:
        return self.name

    def of(self, field_name: str) -> str:
        if not self.one_file:
            return f"{self.name}/{field_name}.npy:"
        # Only our own folder has starts; elsewhere the episodes speak for themselves.
        return f"{self.name}:" if field_name == "starts" else f"{self.name}: {field_name}"


def validate(data: Dataset, where: str = "dataset", *, one_file: bool = False) -> Dataset:
    """Return `data` if it can be trained on, else say which file, field and index is wrong."""
    place = _Place(where, one_file)
    _check_shapes(data, place)
    _check_bounds(data, place)
    for name in ("observations", "actions", "achieved_goals", "desired_goals"):
        array = getattr(data, name)
        if array is not None and array.dtype != np.uint8:
            _check_finite(data, name, array, place)
    _check_actions(data, place)
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
                f"of {states} states need; write the dataset anew.",
            )
    goal_dim = data.achieved_goals.shape[1]
    if data.desired_goals is not None and data.desired_goals.shape[1] != goal_dim:
        width = data.desired_goals.shape[1]
        _fail(where, "desired_goals", f"goals have {width} dimensions, achieved ones {goal_dim}.")


def _check_bounds(data: Dataset, where: _Place) -> None:
    if data.starts[0] != 0 or data.starts[-1] != len(data.observations):
        span = f"{data.starts[0]} .. {data.starts[-1]}"
        _fail(where, "starts", f"spans {span}, not 0 .. {len(data.observations)}; write it anew.")
    short = np.flatnonzero(data.lengths < 2)
    if len(short):
        e = short[0]
        problem = f"episode {e} has {data.lengths[e]} state(s) and so no action; drop it."
        _fail(where, "starts", problem)
    for name, bound in (("action_low", data.action_low), ("action_high", data.action_high)):
        if bound.shape != data.actions.shape[1:] or not np.isfinite(bound).all():
            raise MerlinError(f"{where}: {name} must be {data.actions.shape[1]} finite numbers.")
    if not (data.action_low < data.action_high).all():
        d = int(np.flatnonzero(data.action_low >= data.action_high)[0])
        raise MerlinError(f"{where}: action_low is not below action_high in dimension {d}.")


def _locate(data: Dataset, name: str, row: int) -> str:
    if name == "desired_goals":
        return f"episode {row}"
    starts = data.starts - np.arange(len(data.starts)) if name == "actions" else data.starts
    episode = int(np.searchsorted(starts, row, side="right")) - 1
    return f"row {row} (step {row - starts[episode]} of episode {episode})"


def _check_finite(data: Dataset, name: str, array: np.ndarray, where: _Place) -> None:
    for begin, piece in pieces(array, ROWS_AT_ONCE):
        bad = np.argwhere(~np.isfinite(piece))
        if len(bad):
            row, dim = int(bad[0][0]), int(bad[0][1])
            value = piece[row, dim]
            place = _locate(data, name, begin + row)
            _fail(where, name, f"{place} is {value} in dimension {dim}; repair or drop it.")


def _check_actions(data: Dataset, where: _Place) -> None:
    low, high = data.action_low - BOUND_SLACK, data.action_high + BOUND_SLACK
    for begin, piece in pieces(data.actions, ROWS_AT_ONCE):
        bad = np.argwhere((piece < low) | (piece > high))
        if len(bad):
            row, dim = int(bad[0][0]), int(bad[0][1])
            bounds = f"[{data.action_low[dim]:g}, {data.action_high[dim]:g}]"
            place = _locate(data, "actions", begin + row)
            _fail(
                where,
                "actions",
                f"{place} is {piece[row, dim]:g} in dimension {dim}, outside {bounds}; "
                "rescale the actions or widen the bounds.",
            )
