"""A mixture of Gaussians on NumPy arrays, and what chooses among its proposals.

The arithmetic of `policies.mixture`, of the judge of Merlin-plus (`policies.judge`) and of the
critic of Merlin-map (`policies.critic`), for actions scaled to [-1, 1]. Arrays have
shape (..., proposals, width). Like `networks`, this also runs on the values of a graph.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from merlin.deploy.networks import Layer, fits, forward

NO_LUCK = np.zeros((0, 1), np.float32), np.zeros((0, 1), np.float32)
"""Random numbers for no sampled proposal."""


class Mixture(NamedTuple):
    """Gaussians over actions, one mixture per row."""

    heights: Any  # (..., components); log weights per volume, up to a constant
    means: Any  # (..., components, action)
    stds: Any  # (..., components, action); in unscaled action units
    widths: Any  # the same, bounded below

    def first(self) -> "Mixture":
        """The mixture of the first row only."""
        heights, *others = self
        return Mixture(heights[..., :1, :], *(part[..., :1, :, :] for part in others))


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Interprets the outputs of a network as a mixture over actions."""

    components: int
    scale: np.ndarray  # half the range of each action
    min_std: float  # added to every standard deviation
    narrow: float  # lower bound on the width of a component, relative to `scale`
    haste: np.ndarray  # factors by which aggressive proposals scale the short-horizon action

    def mixture(self, outputs: Any) -> Mixture:
        """The mixture for a network's outputs."""
        dim = len(self.scale)
        size, shape = self.components * dim, (*outputs.shape[:-1], self.components, dim)
        # Where the bounds coincide, the models take zero.
        means = np.tanh(outputs[..., :size]).reshape(shape) * self._free
        stds = np.logaddexp(0.0, outputs[..., size : 2 * size]).reshape(shape) + self.min_std
        # The network of a single component outputs no weight.
        weights = outputs[..., 2 * size :] if self.components > 1 else outputs[..., :1] * 0.0
        return self.weighted(weights, means, stds)

    def weighted(self, weights: Any, means: Any, stds: Any) -> Mixture:
        """The mixture of components with the given log weights."""
        widths = np.maximum(stds, self._least_width)
        return Mixture(weights - np.log(widths).sum(axis=-1), means, stds, widths)

    @cached_property
    def _free(self) -> np.ndarray:
        return (self.scale > 0).astype(np.float32)

    @cached_property
    def _least_width(self) -> np.ndarray:
        return (self.narrow * self.scale).astype(np.float32)

    @cached_property
    def _per_unit(self) -> np.ndarray:
        """Converts action lengths to scaled units; 0 where the bounds coincide."""
        return self._free / np.where(self.scale > 0, self.scale, np.float32(1.0))

    def densest(self, mixture: Mixture) -> Any:
        """For each row, the mean of the component with the highest weight per volume."""
        return pick(mixture.means, mixture.heights.argmax(axis=-1))

    def log_density(self, mixture: Mixture, actions: Any) -> Any:
        """Log density of a mixture at each action, up to a constant."""
        off = (actions[..., None, :] - mixture.means) * self.scale / mixture.widths
        each = mixture.heights - (off * off).sum(axis=-1) * 0.5
        return np.logaddexp.reduce(each, axis=-1)

    def draw(self, mixture: Mixture, luck: np.ndarray, noise: np.ndarray) -> Any:
        """Sample actions from a mixture.

        Standard Gumbel noise (rows, components) chooses components by their weight per volume, and
        standard normal noise (rows, action) chooses actions.
        """
        which = (mixture.heights + luck).argmax(axis=-1)
        mean, std = pick(mixture.means, which), pick(mixture.stds, which)
        return np.clip(mean + std * noise * self._per_unit, -1.0, 1.0)

    def proposals(
        self, mixtures: Mixture, haste: Any, luck: np.ndarray, noise: np.ndarray
    ) -> tuple[Any, Any]:
        """The proposed actions, and the log density of each in the mixture of the first row.

        The densest component comes first, then that of the second row times each factor of `haste`,
        then sampled ones.
        """
        dense, mixture = self.densest(mixtures), mixtures.first()
        actions = [dense[..., :1, :], np.clip(dense[..., 1:, :] * haste[:, None], -1.0, 1.0)]
        if len(luck):
            actions.append(self.draw(mixture, luck, noise).astype(np.float32))
        proposed = np.concatenate(actions, axis=-2)
        return proposed, self.log_density(mixture, proposed)


@dataclass(frozen=True, eq=False)
class Critic:
    """The critic of Merlin-map, which chooses among proposals; inputs are standardised."""

    layers: tuple[Layer, ...]
    square_error: float
    caution: float

    def cost(self, states: Any, goals: Any, actions: Any, likely: Any) -> Any:
        """Steps to the goal after each action, minus its weighted log density."""
        value = forward(self.layers, states, goals, actions).sum(axis=-1)
        return value * -1.0 - likely * (self.caution * self.square_error)


@dataclass(frozen=True, eq=False)
class Judge:
    """Evaluates proposals; its states and goals are standardised."""

    distance: tuple[Layer, ...]
    model: tuple[Layer, ...]
    guide: tuple[Layer, ...]
    square_error: float
    candidates: int
    depth: int
    caution: float
    discount: float
    hazards: bool  # whether the distance is a hazard model; otherwise it is a classifier
    bin_width: int  # horizons per class of the temporal distance
    log_odds: float
    walk_weights: np.ndarray  # of the distances after the first step and at the end of a rollout

    def proposals(
        self, gaussians: Gaussians, mixtures: Mixture, luck: np.ndarray, noise: np.ndarray
    ) -> tuple[Any, Any]:
        """As many proposals as the judge was trained with, and their log densities."""
        return gaussians.proposals(mixtures, gaussians.haste[: self.candidates], luck, noise)

    def cost(self, states: Any, goals: Any, actions: Any, likely: Any) -> Any:
        """Steps to the goal via each action, minus its weighted log density."""
        steps = self.steps_along(states, goals, actions)
        return steps - likely * (self.caution * self.square_error)

    def steps_along(self, states: Any, goals: Any, actions: Any) -> Any:
        """Distances after each action, following the policy from there."""
        first = states + forward(self.model, states, actions)
        if self.depth == 1:
            return self.steps(first, goals)
        end = first + forward(self.guide, first, goals)
        left = self.steps(np.concatenate([first, end], axis=-2), goals)
        count = actions.shape[-2]
        near, far = self.walk_weights
        return left[..., :count] * near + left[..., count:] * far

    def steps(self, states: Any, goals: Any) -> Any:
        """The temporal distances."""
        scores = forward(self.distance, states, goals)
        if self.hazards:  # log-probabilities of the first arrival
            log_odds = scores - np.logaddexp(0.0, scores) @ self._up_to
        else:
            log_odds = scores[..., :-1] - scores[..., -1:]
        odds = np.exp(np.clip(log_odds, -self.log_odds, self.log_odds))
        return np.log(odds @ self._discounts) * (1.0 / math.log(self.discount))

    def fits(self, states: int, goals: int, actions: int, max_horizon: float) -> bool:
        """Whether its networks have consistent sizes."""
        outputs = () if self.hazards else (math.ceil(max_horizon / self.bin_width) + 1,)
        return (
            fits(self.distance, states + goals, outputs)
            and fits(self.model, states + actions, (states,))
            and fits(self.guide, states + goals, (states,))
        )

    @cached_property
    def _up_to(self) -> np.ndarray:
        """Sums over all steps up to each, as a product."""
        return np.triu(np.ones((len(self.distance[-1].bias),) * 2, np.float32))

    @cached_property
    def _discounts(self) -> np.ndarray:
        """The discount of a visit in each class, at the horizon at its centre."""
        count = len(self.distance[-1].bias) - (not self.hazards)
        bins = np.arange(count, dtype=np.float32)
        horizons = bins * self.bin_width + (self.bin_width + 1) / 2
        return (self.discount**horizons).astype(np.float32)


def pick(rows: Any, index: Any) -> Any:
    """The rows (..., n, width) at an index, by a product, which graphs support as well."""
    hot = (index[..., None] == np.arange(rows.shape[-2])).astype(np.float32)
    return (hot[..., None] * rows).sum(axis=-2)
