"""Merlin-map: plan over a graph of recorded transitions, and weight actions by a critic.

Our extension of Jain and Ravanbakhsh, "Learning to Reach Goals via Diffusion" (ICML 2024). Related
methods that search graphs of learned distances are TTGS, GAS, SCoTS, ALPS and HSVL.

The map is for distant goals. It consists of places that cover the data, passages between them that
occur in episodes, and all shortest paths between places (see `data.map`). The paths are computed
before training, so acting only looks up the next waypoint and the steps to it.

The executor reaches waypoints and near goals. It is a mixture of Gaussians, trained by maximum
likelihood like Merlin, with two changes.

Actions are weighted by a critic's advantage, as in WGCSL. Hindsight alone cannot tell the actions
of a competent controller from noise, because every action leads to whatever was achieved later.
Since poor actions have small weights, half of the goals are the desired ones of the episodes.

The horizon is dropped for half of the hindsight goals, and for all desired goals. The mixture is
therefore also defined without a horizon, and acting needs none:

    towards a waypoint    the densest component for the map's number of steps, with noise, because
                          a memoryless, noiseless policy can oscillate forever;
    towards the goal      the best of three proposals: the densest component without a horizon, the
                          one for a horizon of one step, and twice that action. The critic's steps
                          are weighed against the mixture's density,

                              -Q(s, a, g) - caution * error^2 * log p(a | s, g),

                          where the error is that of the critic's TD targets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from merlin.augment.base import find_phi
from merlin.data import Dataset
from merlin.data.goals import Sampling, hindsight
from merlin.data.kinetic import kinetic_map
from merlin.data.map import MOST_PLACES, blank_map, build_map, usual_radius
from merlin.errors import MerlinError
from merlin.learners.actor_critic import TARGET_KEEP
from merlin.learners.advantages import QUEUE, best_weight, lowest_of_best, soon_weight
from merlin.learners.base import (
    Learner,
    check_below_one,
    check_discount,
    check_not_negative,
    check_positive,
    check_sizes,
    within,
)
from merlin.learners.distance import blank_hazard, fit_hazard, local_limit
from merlin.nets.cnn import Net, make_net
from merlin.nets.hazard import Hazard
from merlin.nets.layers import (
    descend,
    descend_clipped,
    mixture_log_prob,
    polyak,
    running_average,
)
from merlin.nets.td import advantage_weight, possible, sparse_reward, td_target, value
from merlin.policies.critic import CriticPolicy
from merlin.policies.goal import make_policy, transitions, with_net
from merlin.policies.map import MapPolicy
from merlin.policies.mixture import SOON, densest
from merlin.types import Batch, DrawnGoals, Map, Metrics, Spec

SPACES = ("auto", "kinetic", "coordinates")
POSITION = 3
"""Goals of at most this many numbers are positions, between which coordinates are distances."""
LONG_EPISODE = 100
"""In steps. Longer episodes use longer passages, because a few steps are dominated by noise."""
ERROR_KEEP = 0.99
"""Fraction of the critic's running error kept in each update."""


class MapState(eqx.Module):
    """The executor with its target networks and optimisers.

    The map and the model of the steps to a goal are constant: they are made before training.
    """

    policy: CriticPolicy
    average: Net  # of the mixture's parameters
    target_net: Net
    target_critic: Net
    optimiser: optax.OptState
    critic_optimiser: optax.OptState
    advantages: Float[Array, "rows batch"]  # recent ones, one row per update; infinite where unset
    updates: Int[Array, ""]
    tolerance: Float[Array, ""]
    map: Map
    hazard: Hazard


@final
@dataclass(frozen=True)
class MerlinMap(Learner):
    """A map of recorded passages, followed by a mixture policy with a critic."""

    places: int = 800  # at most
    space: str = "auto"  # of distances between places: kinetic, coordinates, or by the goals' size
    lags: tuple[int, ...] = (1, 2, 3)  # steps in a passage
    passages: int = 3  # recorded passages needed to connect two places
    hops: int = 2  # passages between successive waypoints
    components: int = 5  # Gaussians in the mixture
    max_horizon: int = 50  # longest horizon of the executor's goals
    temperature: float = 1.0  # scale of the noise towards waypoints; it breaks oscillations
    hindsight_ratio: float = 0.5  # fraction of goals relabelled with the episode's future
    horizon_dropout: float = 0.5  # fraction of hindsight goals learned without a horizon
    tolerance: float | None = None  # distance that counts as reached; None: the task's, or exactly
    discount: float = 0.98
    max_weight: float = 10.0  # cap on the exponential of the advantage
    best_percentile: float = 80.0  # of advantages; lower ones have little weight
    percentile_step: float = 0.01  # increase of the percentile per update, from 0
    caution: float = 0.5  # weight of the mixture's density against the critic
    target_keep: float = TARGET_KEEP  # fraction of the target networks kept per update
    average: float = 0.999  # decay of the averaged parameters that the policy acts with
    hidden: tuple[int, ...] = (256, 256, 256)
    learning_rate: float = 5e-4
    max_gradient_norm: float = 1.0
    batch_size: int = 512

    def __post_init__(self) -> None:
        check_sizes(self, "places", "lags", "passages", "hops", "max_horizon")
        if self.places > MOST_PLACES:
            raise MerlinError(f"places: {self.places} are too many; use at most {MOST_PLACES}.")
        if self.space not in SPACES:
            raise MerlinError(f"space: {self.space!r} is not auto, kinetic or coordinates.")
        super().__post_init__()
        check_sizes(self, "components", "hidden")
        check_discount(self.discount)
        check_positive(self, "max_weight", "max_gradient_norm")
        check_not_negative(self, "temperature", "caution", "percentile_step")
        check_below_one(self, "target_keep", "average")
        if not (0 <= self.horizon_dropout <= 1 and 0 <= self.best_percentile < 100):
            raise MerlinError(
                "horizon_dropout, best_percentile: must be in [0, 1] and [0, 100), not "
                f"{self.horizon_dropout} and {self.best_percentile}."
            )
        if self.tolerance is not None:
            check_not_negative(self, "tolerance")

    def long_values(self, states: int) -> Mapping[str, Any]:
        """In long episodes, a place spans several steps."""
        return {"lags": (4, 8, 12)} if states - 1 > LONG_EPISODE else {}

    @property
    def sees_images(self) -> bool:
        """The map is built on state vectors."""
        return False

    @property
    def sampling(self) -> Sampling:
        return hindsight(self.hindsight_ratio, "episodes", limit=self.max_horizon)

    def check(self, data: Dataset) -> None:
        find_phi(data)

    def survey(self, data: Dataset, spec: Spec, *, quiet: bool = True) -> Spec:
        phi, told, limit = find_phi(data), self.told_tolerance(spec), self.local_limit(spec)
        slow = None
        if self.distances(spec.goal_dim) == "kinetic":
            slow = kinetic_map(data.achieved_goals, data.starts, limit)
        found = build_map(
            data,
            phi,
            places=self.places,
            lags=self.lags,
            passages=self.passages,
            hops=self.hops,
            reach=self.max_horizon,
            tolerance=told or 0.0,
            projection=slow,
        )
        # Without a tolerance, a goal counts as reached at the distance of most states to a place.
        near = told if told is not None else usual_radius(data, found)
        hazard = fit_hazard(data, phi, limit=limit, tolerance=near, quiet=quiet)
        return spec._replace(map=found, hazard=hazard)

    def distances(self, goal_dim: int) -> str:
        """The space in which distances between places are measured."""
        if self.space != "auto":
            return self.space
        return "kinetic" if goal_dim > POSITION else "coordinates"

    def told_tolerance(self, spec: Spec) -> float | None:
        """The distance that counts as reached, if it is known."""
        return self.tolerance if self.tolerance is not None else spec.tolerance

    def local_limit(self, spec: Spec) -> int:
        """The number of steps that the model of the steps to a goal looks ahead."""
        return local_limit(spec.max_horizon - 1, self.max_horizon)

    def init(self, key: PRNGKeyArray, spec: Spec) -> MapState:
        known, hazard, states = spec.map, spec.hazard, spec.observation_shape[0]
        if known is None:
            known = blank_map(self.places, spec.goal_dim, states)
            hazard = blank_hazard(states, spec.goal_dim, self.local_limit(spec))
        spec = within(spec, self.max_horizon)
        policy_key, critic_key = jax.random.split(key)
        heads = 2 * spec.action_dim + (1 if self.components > 1 else 0)
        policy = make_policy(
            CriticPolicy,
            spec,
            self.hidden,
            outputs=self.components * heads,
            horizon=int(SOON),
            key=policy_key,
            critic=make_net(spec, self.hidden, 1, extra=spec.action_dim, key=critic_key),
            # Start with a large error: the critic is not trusted before it has been measured.
            square_error=jnp.float32(spec.max_horizon) ** 2,
            components=self.components,
            caution=self.caution,
            temperature=self.temperature,
        )
        rows = max(1, QUEUE // self.batch_size)
        return MapState(
            policy=policy,
            average=policy.net,
            target_net=policy.net,
            target_critic=policy.critic,
            optimiser=self.optimiser.init(policy.net),
            critic_optimiser=self.optimiser.init(policy.critic),
            advantages=jnp.full((rows, self.batch_size), jnp.inf, jnp.float32),
            updates=jnp.int32(0),
            tolerance=jnp.float32(self.told_tolerance(spec) or 0.0),
            map=jax.tree.map(jnp.asarray, known),
            hazard=hazard,
        )

    def update(self, state: MapState, batch: Batch, key: PRNGKeyArray) -> tuple[MapState, Metrics]:
        policy, goals, action = state.policy, batch.only, batch.action
        x, next_x = transitions(policy, batch, goals)
        unit = policy.in_units(action)
        reward = sparse_reward(batch.next_achieved_goal, goals.goal, state.tolerance)
        later = value(state.target_critic, next_x, modes(policy, state.target_net, next_x))
        target = td_target(reward, later, self.discount)

        def critic_loss(critic: Net) -> Float[Array, ""]:
            return jnp.mean((value(critic, x, unit) - target) ** 2)

        error, critic_gradient = jax.value_and_grad(critic_loss)(policy.critic)
        now = value(policy.critic, x, modes(policy, policy.net, x))
        advantage = target - possible(now, self.discount)
        weight, queue, threshold = self.weigh(state, goals, advantage)
        inputs = jnp.concatenate([x, self.horizons(policy, goals, key)], axis=1)

        def policy_loss(net: Net) -> Float[Array, ""]:
            mixtures = jax.vmap(with_net(policy, net).mixture)(inputs)
            return -jnp.mean(weight * jax.vmap(mixture_log_prob)(action, *mixtures))

        loss, gradient = jax.value_and_grad(policy_loss)(policy.net)
        net, optimiser, norm = descend_clipped(
            self.optimiser, policy.net, gradient, state.optimiser, self.max_gradient_norm
        )
        critic, critic_optimiser = descend(
            self.optimiser, policy.critic, critic_gradient, state.critic_optimiser
        )
        square_error = polyak(policy.square_error, error, ERROR_KEEP)
        parts = lambda p: (p.net, p.critic, p.square_error)  # noqa: E731
        count = state.updates + 1
        after = MapState(
            policy=eqx.tree_at(parts, policy, (net, critic, square_error)),
            average=running_average(state.average, net, count, decay=self.average),
            target_net=polyak(state.target_net, net, self.target_keep),
            target_critic=polyak(state.target_critic, critic, self.target_keep),
            optimiser=optimiser,
            critic_optimiser=critic_optimiser,
            advantages=queue,
            updates=count,
            tolerance=state.tolerance,
            map=state.map,
            hazard=state.hazard,
        )
        return after, {
            "loss": loss,
            "gradient_norm": norm,
            "critic_error": jnp.sqrt(error),
            "advantage": jnp.mean(advantage),
            "threshold": threshold,
        }

    def horizons(
        self, policy: CriticPolicy, goals: DrawnGoals, key: PRNGKeyArray
    ) -> Float[Array, "batch embedding"]:
        """Embedded horizons; zeros for desired goals and where the horizon is dropped."""
        kept = jax.random.uniform(key, goals.horizon.shape) >= self.horizon_dropout
        told = (kept & goals.relabelled)[:, None]
        return jnp.where(told, policy.embed_all(goals.horizon), policy.embed(None))

    def weigh(
        self, state: MapState, goals: DrawnGoals, advantage: Float[Array, " batch"]
    ) -> tuple[Float[Array, " batch"], Float[Array, "rows batch"], Float[Array, ""]]:
        """Weights with mean 1, the updated queue of advantages, and the threshold in it."""
        queue = state.advantages.at[state.updates % len(state.advantages)].set(advantage)
        rising = self.percentile_step * state.updates.astype(jnp.float32)
        percentile = jnp.minimum(self.best_percentile, rising)
        threshold = lowest_of_best(queue, percentile, 1.0 / (1.0 - self.discount))
        weight = advantage_weight(advantage, self.max_weight)
        weight *= soon_weight(goals.horizon, self.discount) * best_weight(advantage, threshold)
        return weight / jnp.maximum(jnp.mean(weight), 1e-3), queue, threshold

    def policy(self, state: MapState) -> MapPolicy:
        executor = with_net(state.policy, state.average)
        return MapPolicy(executor, state.map, state.hazard, least=min(self.lags))


def modes(
    policy: CriticPolicy, net: Net, x: Float[Array, "batch inputs"]
) -> Float[Array, "batch action"]:
    """The densest components without a horizon, scaled to [-1, 1]."""
    policy, none = with_net(policy, net), policy.embed(None)

    def mode(x: Float[Array, " inputs"]) -> Float[Array, " action"]:
        mixture = policy.mixture(jnp.concatenate([x, none]))
        return policy.in_units(densest(mixture, policy.action_scale)[0])

    return jax.vmap(mode)(x)
