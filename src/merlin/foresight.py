"""Merlin-plus with NumPy alone: a mixture of Gaussians, and a judge of what it proposes.

The same arithmetic as in `learners.plus` and `learners.judge`, on rows of arrays. Mixtures are log
weights (rows, components), means and deviations (rows, components, action).
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from merlin.eye import Layer

MAX_BINS = 64
"""Horizons are told apart one by one up to here; those of longer episodes in groups."""
MIN_STD = 1e-5
NARROW = 0.05
"""Components are not the denser for being narrower than this share of the actions' half range.

Recorded actions are often clipped: then many are exactly at a bound, and a component that holds
these alone has no width at all.
"""

LOG_ODDS = 60.0
"""The log odds of a class against goals of other episodes count at most as so much, or as little.

So much that it never matters, and so little that no exponential is too large: there is no maximum
to be found first.
"""

WALK_WEIGHTS = np.array([0.2, 0.8], np.float32)
"""How much the distances after the first step of a walk and at its end count."""

HASTE = np.array([1.0, 2.0], np.float32)
"""How many times as far as the action for a horizon of one step those go that hurry.

All others but the first are drawn.
"""
SOON = 1.0
"""The horizon of those that hurry."""

Mixture = tuple[np.ndarray, np.ndarray, np.ndarray]


def bin_width(max_horizon: float) -> int:
    """Horizons per class of the temporal distance."""
    return math.ceil(max_horizon / MAX_BINS)


def bin_horizons(bins: int, width: int) -> np.ndarray:
    """The horizon in the middle of each class."""
    return np.arange(bins, dtype=np.float32) * width + (width + 1) / 2


def class_discounts(bins: int, width: int, discount: float) -> np.ndarray:
    """What a visit counts in each class of the temporal distance."""
    return (discount ** bin_horizons(bins, width)).astype(np.float32)


@dataclass(frozen=True)
class Foresight:
    """What judges proposals: see `learners.judge`."""

    distance: tuple[Layer, ...]
    model: tuple[Layer, ...]
    guide: tuple[Layer, ...]
    square_error: float
    width: int
    candidates: int
    depth: int
    caution: float
    discount: float

    def next_states(self, states: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Standardised states after actions in units of their bounds."""
        return states + forward(self.model, np.concatenate([states, units], axis=1))

    def steps(self, state_goals: np.ndarray) -> np.ndarray:
        """The temporal distances."""
        scores = forward(self.distance, state_goals)
        odds = np.exp(np.clip(scores[:, :-1] - scores[:, -1:], -LOG_ODDS, LOG_ODDS))
        return np.log(odds @ self.discounts) / math.log(self.discount)

    @cached_property
    def discounts(self) -> np.ndarray:
        """What a visit counts in each class."""
        return class_discounts(self.distance[-1].bias.size - 1, self.width, self.discount)

    def steps_along(self, states: np.ndarray, goals: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Distances by way of actions and then the policy's own steps."""
        first = self.next_states(states, units)
        if self.depth == 1:
            return self.steps(np.concatenate([first, goals], axis=1))
        begun = np.concatenate([first, goals], axis=1)
        end = np.concatenate([first + forward(self.guide, begun), goals], axis=1)
        return WALK_WEIGHTS @ self.steps(np.concatenate([begun, end])).reshape(2, -1)


def forward(layers: tuple[Layer, ...], rows: np.ndarray) -> np.ndarray:
    """A ReLU network on rows."""
    for layer in layers[:-1]:
        rows = np.maximum(rows @ layer.weight + layer.bias, 0.0)
    return rows @ layers[-1].weight + layers[-1].bias


def mixture_of(outputs: np.ndarray, components: int, dim: int) -> Mixture:
    """A network's outputs as a mixture over actions in units of their bounds.

    Deviations are in the units of actions themselves, as they are learned.
    """
    size = components * dim
    shape = (len(outputs), components, dim)
    weights = outputs[:, 2 * size :] if components > 1 else np.zeros((len(outputs), 1), np.float32)
    stds = np.logaddexp(0.0, outputs[:, size : 2 * size]).reshape(shape) + MIN_STD
    return weights, np.tanh(outputs[:, :size]).reshape(shape), stds


def densest(mixture: Mixture, scale: np.ndarray) -> np.ndarray:
    """For each row the mean of the component with the highest weight per volume."""
    best = np.argmax(per_volume(mixture, scale), axis=1)
    return mixture[1][np.arange(len(best)), best]


def per_volume(mixture: Mixture, scale: np.ndarray) -> np.ndarray:
    """Log weights of the components per volume, up to a constant."""
    weights, _, stds = mixture
    return weights - np.log(np.maximum(stds, NARROW * scale)).sum(axis=2)


def log_densities(mixture: Mixture, scale: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Of the mixture of a single row at actions in units of their bounds, up to a constant."""
    _, means, stds = mixture
    off = (units[:, None] - means) * scale / np.maximum(stds, NARROW * scale)
    return np.logaddexp.reduce(per_volume(mixture, scale) - (off**2).sum(axis=2) / 2, axis=1)


def drawn(mixture: Mixture, scale: np.ndarray, luck: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Actions from the mixture of a single row, in units of their bounds.

    By standard Gumbel numbers (rows, components), which choose components by their weight per
    volume, and standard normal ones (rows, action).
    """
    _, means, stds = (part[0] for part in mixture)
    which = np.argmax(per_volume(mixture, scale) + luck, axis=1)
    free = np.where(scale > 0, scale, 1.0)
    return np.clip(means[which] + stds[which] * noise / free, -1.0, 1.0) * (scale > 0)
