"""What a policy may ask before it acts: where an action leads, and how far that is from the goal.

Both are learned from the batches that the policy learns from. The temporal distance comes from a
classifier: given a state and a goal, was the goal achieved in the same episode h steps later, one
class per h, or is it a goal of another episode? By Bayes' rule the odds
p(h | s, g) / p(other | s, g) are p(h) p(g at h | s) / p(g), so that

    log sum_h discount^h p(h | s, g) / p(other | s, g)

says how often the goal is visited from here on, discounted, against how often it is visited at all.
Divided by log discount it is in steps: to come there as often but one step later counts one more,
whatever p(g) is, and only differences are ever asked for. To stay at the goal counts for more than
to pass it; p(h | s, g) alone has that backwards, because who stays is there after any number of
steps. The forward model predicts the change of a state within one step.

A judge looks further than one step, because the first alone sees no way around a corner: it asks
where the policy itself would go on to. To walk there step by step would take a pass of the policy's
network and one of the model for each step and each proposal. So a small network, the guide, learns
to tell at once where such walks end, from walks that are made step by step while it learns.

A judge also knows how far it is off: on recorded steps, where the true next state is known, it
compares the distance from there with the distance from where the model says the step leads. In
free space that is a fraction of a step; where things are pushed it may be more than a step, and
then little of what it says is worth acting on.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.nets.layers import MLP, clip_by_norm, polyak
from merlin.types import Metrics, Spec

MAX_BINS = 64
"""Horizons are told apart one by one up to here; those of longer episodes in groups."""
LOG_ODDS = 60.0
"""The log odds of a class against goals of other episodes are clipped to this.

It is so much that it never matters, and so little that no exponential is too large: there is no
maximum to be found first.
"""
WALK_WEIGHTS = np.array([0.2, 0.8], np.float32)
"""How much the distances after the first step of a walk and at its end count."""
JUDGE_CONSTANTS = {
    "log_odds": LOG_ODDS,
    "walk_weights": WALK_WEIGHTS.tolist(),
    "max_bins": MAX_BINS,
}
"""What judging takes beside a policy's arrays and settings."""

ERROR_KEEP = 0.99
"""Share of the running error that an update keeps."""
ERROR_ROWS = 64
"""Rows of a batch that the error is measured on."""
STILL = 0.02
"""Changes of a state are not told more exactly than to this share of its deviation.

What hardly moves, a target within an episode for one, would otherwise be all that the model learns.
"""


def bin_horizons(bins: int, width: int) -> Float[np.ndarray, " bins"]:
    """The horizon in the middle of each class of the temporal distance."""
    return np.arange(bins, dtype=np.float32) * width + (width + 1) / 2


class Judge(eqx.Module):
    """Networks on standardised states and goals, and on actions in units of their bounds."""

    distance: MLP
    model: MLP
    guide: MLP
    square_error: Float[Array, ""]  # of distances, because the model errs; in steps, squared
    width: int = eqx.field(static=True)  # horizons per bin

    def __init__(
        self,
        spec: Spec,
        distance_hidden: tuple[int, ...],
        model_hidden: tuple[int, ...],
        guide_hidden: tuple[int, ...],
        *,
        key: PRNGKeyArray,
    ):
        states, goals = spec.observation_shape[0], spec.goal_dim
        self.width = math.ceil(spec.max_horizon / MAX_BINS)
        bins = math.ceil(spec.max_horizon / self.width)
        distance_key, model_key = jax.random.split(key)
        guide_key = jax.random.fold_in(key, 2)
        # One class per bin, and the last for goals of other episodes.
        self.distance = MLP(states + goals, distance_hidden, bins + 1, key=distance_key)
        self.model = MLP(states + spec.action_dim, model_hidden, states, key=model_key)
        self.guide = MLP(states + goals, guide_hidden, states, key=guide_key)
        # What has not been measured is not trusted.
        self.square_error = jnp.float32(spec.max_horizon) ** 2

    @property
    def bins(self) -> int:
        """Classes of the distance but for the last, another episode's."""
        return self.distance.layers[-1].bias.shape[0] - 1

    def log_prob(
        self, state_goal: Float[Array, " inputs"], horizon: Float[Array, ""]
    ) -> Float[Array, ""]:
        """Log probability of the bin that a horizon lies in."""
        bin = ((horizon - 1) // self.width).astype(jnp.int32)
        return jax.nn.log_softmax(self.distance(state_goal))[bin]

    def log_prob_other(self, state_goal: Float[Array, " inputs"]) -> Float[Array, ""]:
        """Log probability that the goal is another episode's."""
        return jax.nn.log_softmax(self.distance(state_goal))[-1]

    def steps(self, state_goal: Float[Array, " inputs"], discount: float) -> Float[Array, ""]:
        """The temporal distance as one number, up to one that depends on the goal alone."""
        scores = self.distance(state_goal)
        odds = jnp.exp(jnp.clip(scores[:-1] - scores[-1], -LOG_ODDS, LOG_ODDS))
        discounts = (discount ** bin_horizons(self.bins, self.width)).astype(np.float32)
        visits = jnp.dot(odds, discounts)
        return jnp.log(visits) / math.log(discount)

    def expected_steps(self, state_goal: Float[Array, " inputs"]) -> Float[Array, ""]:
        """The mean of the steps to a goal, given that it is reached in the same episode."""
        weights = jax.nn.softmax(self.distance(state_goal)[:-1])
        return jnp.dot(weights, bin_horizons(self.bins, self.width))

    def next_state(
        self, state: Float[Array, " state"], unit: Float[Array, " action"]
    ) -> Float[Array, " state"]:
        """The standardised state after an action."""
        return state + self.model(jnp.concatenate([state, unit]))

    def walk_end(
        self, state: Float[Array, " state"], goal: Float[Array, " goal"]
    ) -> Float[Array, " state"]:
        """Where the policy's own steps lead from a state, as the guide tells."""
        return state + self.guide(jnp.concatenate([state, goal]))


class Pairs(eqx.Module):
    """Recorded steps, and goals that were achieved so many steps later, as a judge takes them."""

    state: Float[Array, "batch state"]
    unit: Float[Array, "batch action"]
    next_state: Float[Array, "batch state"]
    goal: Float[Array, "batch goal"]
    horizon: Float[Array, " batch"]


class Walks(eqx.Module):
    """Where the policy's own steps lead, from states towards goals."""

    state: Float[Array, "rows state"]
    goal: Float[Array, "rows goal"]
    end: Float[Array, "rows state"]


def starts(pairs: Pairs) -> tuple[Float[Array, "rows state"], Float[Array, "rows goal"]]:
    """States and goals that the guide learns from: half of the goals are other episodes'.

    Those are what a policy is given when it acts: goals that nobody went to from where it is.
    """
    half = len(pairs.goal) // 2
    goal = jnp.concatenate([pairs.goal[:half], jnp.roll(pairs.goal, 1, axis=0)[half:]])
    return pairs.next_state, goal


def judge_loss(judge: Judge, pairs: Pairs, walks: Walks) -> tuple[Float[Array, ""], Metrics]:
    """Cross-entropy of the steps between states and goals, and squared errors of changes.

    Goals of other episodes are those of the batch's other rows. A change is measured in units of
    how much changes differ within the batch, so that what moves seldom or little is learned as well
    as what always moves; but not what is still (`STILL`). So is the change along a walk.
    """
    own = jnp.concatenate([pairs.state, pairs.goal], axis=1)
    other = jnp.concatenate([pairs.state, jnp.roll(pairs.goal, 1, axis=0)], axis=1)
    likelihood = jax.vmap(judge.log_prob)(own, pairs.horizon) + jax.vmap(judge.log_prob_other)(
        other
    )
    scale = jnp.maximum(jnp.std(pairs.next_state - pairs.state, axis=0), STILL)
    guess = jax.vmap(judge.next_state)(pairs.state, pairs.unit)
    end = jax.vmap(judge.walk_end)(walks.state, walks.goal)
    parts = {
        "distance_loss": -jnp.mean(likelihood),
        "model_loss": jnp.mean(((guess - pairs.next_state) / scale) ** 2),
        "guide_loss": jnp.mean(((end - walks.end) / scale) ** 2),
    }
    return sum(parts.values(), jnp.float32(0.0)), parts


def clip_each(gradient: Judge, limit: float) -> Judge:
    """Each network's gradient limited by itself: what one learns fast shall not slow the others."""
    networks = lambda judge: (judge.distance, judge.model, judge.guide)  # noqa: E731
    clipped = tuple(clip_by_norm(part, limit)[0] for part in networks(gradient))
    return eqx.tree_at(networks, gradient, clipped)


def with_error(judge: Judge, pairs: Pairs, discount: float) -> Judge:
    """The same judge, having looked once more at how far it is off."""
    some = jax.tree.map(lambda rows: rows[:ERROR_ROWS], pairs)
    guess = jax.vmap(judge.next_state)(some.state, some.unit)
    steps = jax.vmap(lambda state, goal: judge.steps(jnp.concatenate([state, goal]), discount))
    error = jnp.mean((steps(guess, some.goal) - steps(some.next_state, some.goal)) ** 2)
    running = polyak(judge.square_error, error, ERROR_KEEP)
    return eqx.tree_at(lambda j: j.square_error, judge, running)
