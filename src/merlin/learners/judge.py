"""What a policy may ask before it acts: where an action leads, and how far that is from the goal.

Both are learned from the batches that the policy learns from. The temporal distance is a
distribution over the number of steps between a state and a goal, p(h | s, g), from pairs of states
of one episode; as one number it is

    log E[discount^h] / log discount,

the steps that are certain to be worth as much: with a small discount a short way counts even if it
was rarely taken. The forward model predicts the change of a state within one step; several of them,
from different beginnings, disagree where they have not seen enough.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from merlin.nets import MLP
from merlin.types import Spec

MAX_BINS = 64
"""Horizons are told apart one by one up to here; those of longer episodes in groups."""


class Judge(eqx.Module):
    """Networks on standardised states and goals, and on actions in units of their bounds."""

    distance: MLP
    models: tuple[MLP, ...]
    width: int = eqx.field(static=True)  # horizons per bin

    def __init__(
        self,
        spec: Spec,
        distance_hidden: tuple[int, ...],
        model_hidden: tuple[int, ...],
        models: int,
        *,
        key: PRNGKeyArray,
    ):
        states, goals = spec.observation_shape[0], spec.goal_dim
        self.width = math.ceil(spec.max_horizon / MAX_BINS)
        bins = math.ceil(spec.max_horizon / self.width)
        distance_key, *keys = jax.random.split(key, 1 + models)
        self.distance = MLP(states + goals, distance_hidden, bins, key=distance_key)
        self.models = tuple(
            MLP(states + spec.action_dim, model_hidden, states, key=k) for k in keys
        )

    @property
    def horizons(self) -> Float[np.ndarray, " bins"]:
        """The horizon in the middle of each bin."""
        bins = self.distance.layers[-1].bias.shape[0]
        return np.arange(bins, dtype=np.float32) * self.width + (self.width + 1) / 2

    def log_prob(
        self, state_goal: Float[Array, " inputs"], horizon: Float[Array, ""]
    ) -> Float[Array, ""]:
        """Log probability of the bin that a horizon lies in."""
        bin = ((horizon - 1) // self.width).astype(jnp.int32)
        return jax.nn.log_softmax(self.distance(state_goal))[bin]

    def steps(self, state_goal: Float[Array, " inputs"], discount: float) -> Float[Array, ""]:
        """The temporal distance as one number."""
        log_p = jax.nn.log_softmax(self.distance(state_goal))
        rate = math.log(discount)
        return jax.nn.logsumexp(log_p + rate * self.horizons) / rate

    def quantile(self, state_goal: Float[Array, " inputs"], share: ArrayLike) -> Float[Array, ""]:
        """The horizon within which a share of the ways from the state arrived at the goal."""
        cumulative = jnp.cumsum(jax.nn.softmax(self.distance(state_goal)))
        return jnp.asarray(self.horizons)[jnp.argmax(cumulative >= share)]

    def next_states(
        self, state: Float[Array, " state"], unit: Float[Array, " action"]
    ) -> Float[Array, "models state"]:
        """The standardised state after an action, according to each model."""
        x = jnp.concatenate([state, unit])
        return jnp.stack([state + model(x) for model in self.models])


def judge_loss(
    judge: Judge,
    state: Float[Array, "batch state"],
    unit: Float[Array, "batch action"],
    next_state: Float[Array, "batch state"],
    goal: Float[Array, "batch goal"],
    horizon: Float[Array, " batch"],
) -> tuple[Float[Array, ""], tuple[Float[Array, ""], Float[Array, ""]]]:
    """Cross-entropy of the steps between states and goals, and squared errors of changes.

    A change is measured in units of how much changes differ within the batch, so that what moves
    seldom or little is learned as well as what always moves.
    """
    state_goal = jnp.concatenate([state, goal], axis=1)
    distance = -jnp.mean(jax.vmap(judge.log_prob)(state_goal, horizon))
    scale = jnp.maximum(jnp.std(next_state - state, axis=0), 1e-4)
    guess = jax.vmap(judge.next_states)(state, unit)
    error = jnp.mean(((guess - next_state[:, None]) / scale) ** 2)
    return distance + error, (distance, error)
