"""Merlin-map: plan over a graph of recorded transitions to reach distant goals.

Our extension of Jain and Ravanbakhsh, "Learning to Reach Goals via Diffusion" (ICML 2024). Related
methods that search graphs of learned distances are TTGS, GAS, SCoTS, ALPS and HSVL.

Merlin is conditioned on the number of steps to the goal. This works for goals that recorded
episodes reached from nearby, but not for goals farther away than any episode went. The map closes
the gap without a value function. It consists of places that cover the data, passages between them
that occur in episodes, and all shortest paths between places (see `data.places`). The paths are
computed before training, so acting only looks up the next waypoint and the steps to it.

The executor reaches the waypoints. It is the mixture policy of Merlin-plus without the judge,
trained on goals that are a few passages away. It acts with noise from its chosen component, because
a memoryless, noiseless policy can oscillate forever.
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
"""In steps. Longer episodes use longer passages: at a few steps the map would consist of noise."""


class MapState(eqx.Module):
    """The executor's training state, and the map, which is constant."""

    executor: PlusState
    map: Map


@final
@dataclass(frozen=True)
class MerlinMap(Learner):
    """A map of recorded passages, followed by Merlin's mixture policy."""

    places: int = 800  # at most
    lags: tuple[int, ...] = tuned((1, 2, 3))  # steps in a passage
    passages: int = 3  # recorded passages needed to connect two places
    hops: int = 2  # passages between successive waypoints
    components: int = 5  # Gaussians in the executor's mixture
    max_horizon: int = 50  # longest horizon of the executor's goals
    temperature: float = 1.0  # scale of the action noise; it breaks oscillations
    hidden: tuple[int, ...] = (256, 256, 256)
    learning_rate: float = 5e-4
    max_gradient_norm: float = 1.0
    batch_size: int = 512

    def __post_init__(self) -> None:
        check_sizes(self, "places", "lags", "passages", "hops", "max_horizon")
        if self.places > MOST_PLACES:
            raise MerlinError(f"places: {self.places} are too many; use at most {MOST_PLACES}.")
        super().__post_init__()
        _ = self._executor

    def long_values(self, states: int) -> Mapping[str, Any]:
        """In long episodes, a place spans several steps."""
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
        """The map is built on state vectors."""
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
