"""Merlin-map: long ways from short walks.

An own extension of Jain and Ravanbakhsh, "Learning to Reach Goals via Diffusion" (ICML 2024).
Related: TTGS, GAS, SCoTS, ALPS and HSVL, which search graphs of learned distances.

Merlin is told how many steps it has for a goal. That works for goals that recorded episodes
reached from nearby, but not for goals that are farther away than any episode went. The map closes
the gap without a value function: places that cover the data, passages between them that episodes
show, and the shortest way between each two places (see `data.places`). All ways are computed before
training, so to act is to look up the next place on the way, and the steps to it.

What goes there is the executor: the mixture policy of Merlin-plus without its judge, trained on
goals that are a few passages away. It acts with the noise of the component that it chose: without
memory and without noise a policy may walk to and fro for ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from merlin.augment.base import find_phi
from merlin.data import Dataset
from merlin.data.goals import Sampling
from merlin.data.places import MOST_PLACES, blank_map, build_map
from merlin.errors import MerlinError
from merlin.learners.base import Learner, check_sizes, tuned
from merlin.learners.plus import MerlinPlus, PlusState
from merlin.policies.map import MapPolicy
from merlin.types import Batch, Map, Metrics, Spec

LONG_EPISODE = 100
"""Steps. Passages of a few steps would make a map of noise in longer episodes."""


class MapState(eqx.Module):
    """The executor's state, and the map, which training leaves alone."""

    executor: PlusState
    map: Map


@final
@dataclass(frozen=True)
class MerlinMap(Learner):
    """A map of recorded passages, and Merlin's mixture policy to follow it."""

    places: int = 800  # of the map, at most
    lags: tuple[int, ...] = tuned((1, 2, 3))  # steps of a passage
    passages: int = 3  # that must have been seen between two places
    hops: int = 2  # passages from one place that is told to the next
    components: int = 5  # Gaussians of the executor's mixture
    max_horizon: int = 50  # the executor's goals are at most so many steps ahead
    temperature: float = 1.0  # noise when acting, in deviations: it ends walks in circles
    hidden: tuple[int, ...] = (256, 256, 256)
    learning_rate: float = 5e-4
    max_gradient_norm: float = 1.0
    batch_size: int = 512

    def __post_init__(self) -> None:
        check_sizes(self, "places", "lags", "passages", "hops", "max_horizon")
        if self.places > MOST_PLACES:
            raise MerlinError(f"places: {self.places} are too many; at most {MOST_PLACES}.")
        super().__post_init__()
        _ = self._executor

    def long_values(self, states: int) -> Mapping[str, Any]:
        """In long episodes a place is several steps wide."""
        return {"lags": (4, 8, 12)} if states - 1 > LONG_EPISODE else {}

    @property
    def _executor(self) -> MerlinPlus:
        return MerlinPlus(
            components=self.components,
            horizon=min(self.lags),
            max_horizon=self.max_horizon,
            candidates=0,
            temperature=self.temperature,
            hidden=self.hidden,
            learning_rate=self.learning_rate,
            max_gradient_norm=self.max_gradient_norm,
            batch_size=self.batch_size,
        )

    @property
    def sees_images(self) -> bool:
        """Places are found among vectors."""
        return False

    @property
    def sampling(self) -> Sampling:
        return self._executor.sampling

    def check(self, data: Dataset) -> None:
        find_phi(data)

    def survey(self, data: Dataset, spec: Spec) -> Spec:
        found = build_map(
            data,
            find_phi(data),
            places=self.places,
            lags=self.lags,
            passages=self.passages,
            hops=self.hops,
        )
        return spec._replace(map=found)

    def init(self, key: PRNGKeyArray, spec: Spec) -> MapState:
        known = blank_map(self.places, spec.goal_dim) if spec.map is None else spec.map
        return MapState(self._executor.init(key, spec), jax.tree.map(jnp.asarray, known))

    def update(self, state: MapState, batch: Batch, key: PRNGKeyArray) -> tuple[MapState, Metrics]:
        executor, metrics = self._executor.update(state.executor, batch, key)
        return MapState(executor, state.map), metrics

    def policy(self, state: MapState) -> MapPolicy:
        executor = self._executor.policy(state.executor)
        return MapPolicy(executor, state.map, least=min(self.lags))
