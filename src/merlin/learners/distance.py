"""Fit the number of steps to a goal, with probabilities that hold on other episodes.

The model answers: given a state and a goal, what is the probability that the goal is reached within
k steps, by the behaviour of the data? It is fitted to pairs of `data.passage_times`, and its
probabilities refer to pairs drawn like these. `nets.hazard` has the model. It serves the map of
Merlin-map, the judge of Merlin-plus and the verdicts of `merlin trust`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from merlin.augment.fit import fit, updates_of
from merlin.data.dataset import Dataset
from merlin.data.nearness import nearness
from merlin.data.passage_times import PassageTimes, draw_passage_times, step_weights
from merlin.data.statistics import moments_of
from merlin.nets.hazard import Hazard, log_likelihood
from merlin.nets.layers import MLP, Normaliser, cosine_decay
from merlin.policies.goal import goal_inputs, observation_inputs
from merlin.types import Moments, Spec

PAIRS, PAIRS_PER_STATE = 200_000, 50
"""Maximum number of pairs in total, and per state for small datasets."""
EPOCHS, BATCH, LEARNING_RATE, HIDDEN = 5, 512, 2e-3, (256, 256)


class _Rows(NamedTuple):
    """The pairs on the device."""

    state: Float[Array, "pairs state"]
    goal: Float[Array, "pairs goal"]
    later: Bool[Array, " pairs"]
    steps: Int[Array, " pairs"]
    reached: Bool[Array, " pairs"]


def make_hazard(
    moments: Moments, phi: Int[np.ndarray, " goal"], limit: int, *, key: PRNGKeyArray
) -> Hazard:
    """An untrained model. The moments are those of states, goals and their differences."""
    return Hazard(
        inputs=Normaliser(moments),
        phi=jnp.asarray(phi, jnp.int32),
        net=MLP(len(moments.mean), HIDDEN, limit, key=key),
    )


def local_limit(longest: int, most: int) -> int:
    """The number of steps to model, for episodes of at most `longest` steps.

    Half an episode at most: few states have more steps left.
    """
    return max(1, min(most, longest // 2))


def blank_hazard(states: int, goals: int, limit: int) -> Hazard:
    """An untrained model with the shapes that `fit_hazard` returns."""
    none = np.zeros(states + 2 * goals, np.float32)
    moments, phi = Moments(none, none + 1.0), np.zeros(goals, np.int32)
    return make_hazard(moments, phi, limit, key=jax.random.key(0))


def fit_hazard(
    data: Dataset,
    phi: tuple[int, ...],
    *,
    limit: int,
    tolerance: float,
    seed: int = 0,
    quiet: bool = True,
) -> Hazard:
    """Fit the model to a dataset. `phi` gives the columns of a state that are its goal."""
    pairs = _draw(data, limit, tolerance, seed)
    columns = np.array(phi, np.int32)
    states = np.asarray(data.observations[pairs.row], np.float32)
    # Differences are scaled by those that a few steps make, since most random goals are far away.
    local = (pairs.goal - states[:, columns])[pairs.later]
    parts = zip(*(moments_of(x)[:2] for x in (states, pairs.goal, local)), strict=True)
    init_key, fit_key = jax.random.split(jax.random.key(seed))
    model = make_hazard(Moments(*map(np.concatenate, parts)), columns, limit, key=init_key)
    weights = step_weights(data, limit)
    return _fit(model, states, pairs, weights, key=fit_key, quiet=quiet)


class Standardised(eqx.Module):
    """Hazards as a function of standardised states and goals; needs no phi."""

    net: MLP

    def logits(
        self, state: Float[Array, " state"], goal: Float[Array, " goal"]
    ) -> Float[Array, " limit"]:
        """The logits of the hazards."""
        return self.net(jnp.concatenate([state, goal]))


def fit_standardised(
    data: Dataset,
    spec: Spec,
    *,
    hidden: Sequence[int],
    limit: int,
    seed: int = 0,
    quiet: bool = True,
) -> Standardised:
    """Fit hazards to states and goals that are standardised as a policy's inputs are.

    Without a tolerance, a goal counts as reached where `data.nearness` calls it near.
    """
    close = nearness(data, spec.tolerance)
    scale = close.scale.astype(np.float32)
    scaled = replace(data, achieved_goals=data.achieved_goals / scale, desired_goals=None)
    pairs = _draw(scaled, limit, close.radius, seed)
    states = np.asarray(observation_inputs(spec)(jnp.asarray(data.observations[pairs.row])))
    goals = np.asarray(goal_inputs(spec)(jnp.asarray(pairs.goal * scale)))
    init_key, fit_key = jax.random.split(jax.random.key(seed))
    net = MLP(states.shape[1] + goals.shape[1], hidden, limit, key=init_key)
    model, weights = Standardised(net), step_weights(data, limit)
    return _fit(model, states, pairs._replace(goal=goals), weights, key=fit_key, quiet=quiet)


Model = TypeVar("Model", Hazard, Standardised)


def _draw(data: Dataset, limit: int, tolerance: float, seed: int) -> PassageTimes:
    count = min(PAIRS, PAIRS_PER_STATE * len(data.observations))
    return draw_passage_times(data, count, limit=limit, tolerance=tolerance, seed=seed)


def _fit(
    model: Model,
    states: Float[np.ndarray, "pairs state"],
    pairs: PassageTimes,
    weights: Float[np.ndarray, " limit"],
    *,
    key: PRNGKeyArray,
    quiet: bool,
) -> Model:
    """Maximise the likelihood of the pairs."""
    rows = _Rows(*map(jnp.asarray, (states, *pairs[1:5])))
    updates = updates_of(EPOCHS, len(states), BATCH, None)

    def loss(model: Model, rows: _Rows, key: PRNGKeyArray) -> Float[Array, ""]:
        some = jax.random.randint(key, (BATCH,), 0, len(rows.steps))
        state, goal, later, steps, reached = (x[some] for x in rows)
        weight = jnp.where(later[:, None], 1.0, weights)
        logits = jax.vmap(model.logits)(state, goal)
        return -jnp.mean(jax.vmap(log_likelihood)(logits, steps, reached, weight))

    fitted, _ = fit(
        loss,
        model,
        rows,
        part=lambda model: model.net,
        updates=updates,
        learning_rate=cosine_decay(LEARNING_RATE, updates),
        key=key,
        label="distance",
        quiet=quiet,
    )
    return fitted
