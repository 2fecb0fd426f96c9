"""Coordinates in which distances are temporal: slow ones count, fast ones do not.

Perez-Hernandez et al., "Identification of slow molecular order parameters for Markov model
construction" (2013), and Noe and Clementi, "Kinetic distance and kinetic maps from molecular
dynamics simulation" (2015). An ant's position changes slowly and its joints fast; a cube stays
where it is while the arm moves. For goals x and the goals x' some steps later,

    C0 = (cov(x, x) + cov(x', x')) / 2        C1 = (cov(x, x') + cov(x', x)) / 2,

the directions u with C1 u = lambda C0 u are uncorrelated, and lambda is their autocorrelation. The
coordinates lambda u . x, with u . C0 u = 1, form a kinetic map: Euclidean distances in it
approximate the diffusion distance of the recorded process, that is, how different the futures of
two states are. The map is linear, so straight lines stay straight.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import eigh

from merlin.data.map import same_episode

KEPT = 0.95
"""Fraction of the squared autocorrelations that the kept coordinates have."""
SMALLEST = 1e-6
"""Directions with a smaller fraction of the largest variance are constant up to rounding."""


def kinetic_map(
    goals: Float[np.ndarray, "states goal"], starts: Int[np.ndarray, " episodes+1"], lag: int
) -> Float[np.ndarray, "goal goal"]:
    """The matrix that takes goals to kinetic coordinates, slowest first.

    The columns of directions that are not kept are zero. The identity if nothing moves.
    """
    first = np.flatnonzero(same_episode(starts, lag))
    x, later = (np.asarray(goals[rows], np.float64) for rows in (first, first + lag))
    both = np.concatenate([x, later])
    scale = both.std(axis=0) if len(both) else np.zeros(goals.shape[1])
    moving = scale > 0.0
    if not moving.any():
        return np.eye(goals.shape[1], dtype=np.float32)
    mean, scale = both.mean(axis=0)[moving], scale[moving]
    x, later = ((part[:, moving] - mean) / scale for part in (x, later))
    instant = (x.T @ x + later.T @ later) / (2 * len(x))
    lagged = x.T @ later / len(x)
    variance, axes = np.linalg.eigh(instant)
    large = variance > SMALLEST * variance[-1]
    whiten = axes[:, large] / np.sqrt(variance[large])
    autocorrelation, turn = eigh(whiten.T @ (lagged + lagged.T) @ whiten / 2)
    speed = np.abs(autocorrelation)
    slowest = np.argsort(-speed, kind="stable")
    share = np.cumsum(np.square(speed[slowest]))
    kept = slowest[: 1 + np.searchsorted(share, KEPT * share[-1])]
    found = np.zeros((goals.shape[1], goals.shape[1]))
    found[moving, : len(kept)] = (whiten @ turn[:, kept]) * speed[kept] / scale[:, None]
    return found.astype(np.float32)
