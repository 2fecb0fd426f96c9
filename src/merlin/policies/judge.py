"""A learned critic of proposed actions: where an action leads, and how far that is from the goal.

The temporal distance comes from the probability that recorded behaviour reaches the goal for the
first time after k steps. A hazard model gives it (see `nets.hazard`). Then

    steps = log sum_k discount^k P(first arrival after k steps) / log discount.

Arriving one step later adds one, and arriving half as often adds log 2 / log(1 / discount).

Policies of earlier versions have a classifier instead of hazards. Given a state and a goal, it
predicts whether the goal was achieved h steps later in the same episode, with one class per h, or
belongs to another episode. Its odds p(h | s, g) / p(other | s, g) take the place of the
probabilities. By Bayes' rule they are how often the goal is visited after h steps, relative to how
often it is visited overall, so staying at the goal counts for more than passing through it.

The forward model predicts the change of the state in one step. The judge looks further ahead, since
one step does not show a way around a corner. It needs the state the policy would reach by
continuing on its own. A step-by-step rollout would cost one pass of the policy and one of the model
per step and proposal. Instead a small network, the guide, predicts the end of the rollout directly.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.nets.hazard import log_arrivals
from merlin.nets.layers import MLP
from merlin.types import Spec

MAX_BINS = 64
"""Up to this many horizons have a class each; longer horizons are grouped into bins."""
LOG_ODDS = 60.0
"""Log probabilities of arrival, and log odds of classes, are clipped to this.

The limit is never reached in practice. It is small enough that no exponential overflows, so the
sum needs no maximum subtracted first.
"""
WALK_WEIGHTS = np.array([0.2, 0.8], np.float32)
"""Weights of the distances after the first step and at the end of a rollout."""
JUDGE_CONSTANTS = {
    "log_odds": LOG_ODDS,
    "walk_weights": WALK_WEIGHTS.tolist(),
    "max_bins": MAX_BINS,
}
"""Constants of the judge that a deployed policy needs."""


def bin_horizons(bins: int, width: int) -> Float[np.ndarray, " bins"]:
    """The horizon at the centre of each bin of the temporal distance."""
    return np.arange(bins, dtype=np.float32) * width + (width + 1) / 2


class Judge(eqx.Module):
    """Networks on standardised states and goals, and on actions scaled to [-1, 1]."""

    distance: MLP
    model: MLP
    guide: MLP
    square_error: Float[Array, ""]  # of the distance, due to the model; in squared steps
    width: int = eqx.field(static=True)  # horizons per bin
    hazards: bool = eqx.field(static=True)  # whether `distance` gives hazards instead of classes

    def __init__(
        self,
        spec: Spec,
        distance_hidden: tuple[int, ...],
        model_hidden: tuple[int, ...],
        guide_hidden: tuple[int, ...],
        *,
        limit: int | None,
        key: PRNGKeyArray,
    ):
        """With a `limit`, the distance is a hazard model of that many steps; else a classifier."""
        states, goals = spec.observation_shape[0], spec.goal_dim
        self.hazards = limit is not None
        self.width = 1 if self.hazards else math.ceil(spec.max_horizon / MAX_BINS)
        # One class per bin, and a last one for goals of other episodes.
        outputs = math.ceil(spec.max_horizon / self.width) + 1 if limit is None else limit
        distance_key, model_key = jax.random.split(key)
        guide_key = jax.random.fold_in(key, 2)
        self.distance = MLP(states + goals, distance_hidden, outputs, key=distance_key)
        self.model = MLP(states + spec.action_dim, model_hidden, states, key=model_key)
        self.guide = MLP(states + goals, guide_hidden, states, key=guide_key)
        # Start with a large error: the judge is not trusted before it has been measured.
        self.square_error = jnp.float32(spec.max_horizon) ** 2

    @property
    def bins(self) -> int:
        """Number of steps or bins of steps, without the class for other episodes."""
        return self.distance.layers[-1].bias.shape[0] - (not self.hazards)

    def log_prob(
        self, state_goal: Float[Array, " inputs"], horizon: Float[Array, ""]
    ) -> Float[Array, ""]:
        """Log-probability of the bin that contains a horizon."""
        bin = ((horizon - 1) // self.width).astype(jnp.int32)
        return jax.nn.log_softmax(self.distance(state_goal))[bin]

    def log_prob_other(self, state_goal: Float[Array, " inputs"]) -> Float[Array, ""]:
        """Log-probability that the goal belongs to another episode."""
        return jax.nn.log_softmax(self.distance(state_goal))[-1]

    def steps(self, state_goal: Float[Array, " inputs"], discount: float) -> Float[Array, ""]:
        """The temporal distance in steps, up to a constant that depends only on the goal."""
        scores = self.distance(state_goal)
        log_odds = log_arrivals(scores) if self.hazards else scores[:-1] - scores[-1]
        odds = jnp.exp(jnp.clip(log_odds, -LOG_ODDS, LOG_ODDS))
        discounts = (discount ** bin_horizons(self.bins, self.width)).astype(np.float32)
        visits = jnp.dot(odds, discounts)
        return jnp.log(visits) / math.log(discount)

    def next_state(
        self, state: Float[Array, " state"], unit: Float[Array, " action"]
    ) -> Float[Array, " state"]:
        """Predict the standardised state after an action."""
        return state + self.model(jnp.concatenate([state, unit]))

    def walk_end(
        self, state: Float[Array, " state"], goal: Float[Array, " goal"]
    ) -> Float[Array, " state"]:
        """Predict where the policy leads from a state, using the guide."""
        return state + self.guide(jnp.concatenate([state, goal]))


class Walks(eqx.Module):
    """Rollouts of the policy: start states, goals and end states."""

    state: Float[Array, "rows state"]
    goal: Float[Array, "rows goal"]
    end: Float[Array, "rows state"]
