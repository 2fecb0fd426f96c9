"""Helpers for readers of other formats: number types, goals within states, action bounds."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from merlin.errors import MerlinError, printable

BOUND_SLACK = 1e-4
"""How far an action may exceed its bounds, to allow for float32 rounding."""
MOST_DIMENSIONS = 100_000
"""Upper bound on the size of a state, to limit the expansion of phi."""
ROWS_TOGETHER = 64
"""Narrow rows are compared in groups of this many, which is ten times faster."""

Phi = str | Sequence[int]
"""Which columns of a state are its goal: "3:6", "0,1,5", or a list of indices."""


def phi_indices(phi: Phi) -> tuple[int, ...]:
    """The indices given by phi, in order."""
    if isinstance(phi, str):
        if span := re.fullmatch(r"(\d{1,6}):(\d{1,6})", phi):
            found: Sequence[int] = range(int(span[1]), int(span[2]))
        elif re.fullmatch(r"\d{1,6}(,\d{1,6})*", phi):
            found = [int(part) for part in phi.split(",")]
        else:
            found = ()
    else:
        found = phi
    if not found or min(found) < 0 or max(found) >= MOST_DIMENSIONS:
        raise MerlinError(f"phi {phi}: does not name columns of a state; write 0:2, or 0,1,5.")
    return tuple(int(index) for index in found)


def phi_text(indices: Sequence[int]) -> str:
    """The shortest text for indices that `phi_indices` can parse."""
    first, last = indices[0], indices[-1]
    if tuple(indices) == tuple(range(first, last + 1)):
        return f"{first}:{last + 1}"
    return ",".join(map(str, indices))


def achieved_goals(
    observations: np.ndarray, recorded: np.ndarray | None, phi: Sequence[int] | None, where: str
) -> np.ndarray:
    """The achieved goals: as recorded, the columns given by phi, or the whole state."""
    if recorded is not None:
        refuse_phi(phi, where)
        return float32(recorded)
    if observations.ndim != 2:
        raise MerlinError(
            f"{where}: observations of shape {observations.shape} are not vectors, so goals cannot "
            "be taken from them; store the achieved goals as well."
        )
    if phi is None:
        return observations
    width = observations.shape[1]
    if max(phi) >= width:
        raise MerlinError(
            f"phi {phi_text(phi)}: {where} has states of only {width} numbers; name fewer."
        )
    return observations[:, list(phi)]


def refuse_phi(phi: Sequence[int] | None, where: str) -> None:
    """Raise an error if phi is given for data that records achieved goals."""
    if phi is not None:
        raise MerlinError(
            f"phi {phi_text(phi)}: {where} records the achieved goals itself; leave `phi` out."
        )


def float32(array: Any) -> np.ndarray:
    """Convert to float32; numbers that are too large become infinite, which validation reports."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(array, np.float32)


def float32_or_images(array: np.ndarray) -> np.ndarray:
    """Observations as stored in a dataset: uint8 images unchanged, other numbers as float32."""
    return array if array.dtype == np.uint8 and array.ndim == 4 else float32(array)


def is_numeric(array: np.ndarray) -> bool:
    """Whether an array holds booleans, integers or real numbers."""
    return array.dtype.kind in "biuf"


def action_range(
    actions: Float[np.ndarray, "actions action"], within: tuple[float, ...] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds for actions that come without them: their range, extended to contain `within`.

    A constant dimension gets one unit on either side, since the bounds must differ.
    """
    low, high = _range(actions)
    if not np.isfinite([low, high]).all():
        low, high = _range(np.where(np.isfinite(actions), actions, actions.dtype.type(0)))
    low = np.min([low, *(np.full(low.shape, x) for x in within)], axis=0)
    high = np.max([high, *(np.full(high.shape, x) for x in within)], axis=0)
    same = high - low <= BOUND_SLACK
    return (low - same).astype(np.float32), (high + same).astype(np.float32)


def _range(rows: Float[np.ndarray, "rows width"]) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest number of each column."""
    even = len(rows) - len(rows) % ROWS_TOGETHER
    low = high = rows[even:]
    if even:
        wide = rows[:even].reshape(even // ROWS_TOGETHER, -1)
        low = np.concatenate([low, wide.min(0).reshape(ROWS_TOGETHER, -1)])
        high = np.concatenate([high, wide.max(0).reshape(ROWS_TOGETHER, -1)])
    return low.min(0), high.max(0)


def constant_goals(
    goals: Float[np.ndarray, "episodes steps goal"], where: str, first_episode: int = 0
) -> Float[np.ndarray, "episodes goal"]:
    """The desired goal of each episode, which must be constant within it."""
    wanted = goals[:, :1]
    changed = np.argwhere((goals != wanted) & ~(np.isnan(goals) & np.isnan(wanted)))
    if len(changed):
        episode, step, _ = changed[0]
        raise MerlinError(
            f"{where}: the desired goal of episode {first_episode + episode} changes at step "
            f"{step}; cut the episode there or give it one goal."
        )
    return goals[:, 0]


@contextlib.contextmanager
def reading(where: str | Path, what: str) -> Iterator[None]:
    """Convert any library error about a missing or damaged file to a one-sentence MerlinError."""
    try:
        yield
    except MerlinError:
        raise
    except FileNotFoundError:
        raise MerlinError(f"{where}: no such dataset; check the path.") from None
    except Exception as error:
        raise MerlinError(
            f"{where}: cannot be read as {what} ({reason(error)}); get it again."
        ) from None


def reason(error: Exception) -> str:
    """A library's error message, shortened and made printable."""
    return " ".join(printable(str(error)).split())[:120].rstrip(".") or type(error).__name__
