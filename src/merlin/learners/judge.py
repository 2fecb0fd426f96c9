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

from merlin.foresight import bin_horizons, bin_width
from merlin.nets import MLP, polyak
from merlin.types import Spec

ERROR_KEEP = 0.99
"""Share of the running error that an update keeps."""
ERROR_ROWS = 64
"""Rows of a batch that the error is measured on."""
STILL = 0.02
"""Changes of a state are not told more exactly than to this share of its deviation.

What hardly moves, a target within an episode for one, would otherwise be all that the model learns.
"""


class Judge(eqx.Module):
    """Networks on standardised states and goals, and on actions in units of their bounds."""

    distance: MLP
    model: MLP
    square_error: Float[Array, ""]  # of distances, because the model errs; in steps, squared
    width: int = eqx.field(static=True)  # horizons per bin

    def __init__(
        self,
        spec: Spec,
        distance_hidden: tuple[int, ...],
        model_hidden: tuple[int, ...],
        *,
        key: PRNGKeyArray,
    ):
        states, goals = spec.observation_shape[0], spec.goal_dim
        self.width = bin_width(spec.max_horizon)
        bins = math.ceil(spec.max_horizon / self.width)
        distance_key, model_key = jax.random.split(key)
        # One class per bin, and the last for goals of other episodes.
        self.distance = MLP(states + goals, distance_hidden, bins + 1, key=distance_key)
        self.model = MLP(states + spec.action_dim, model_hidden, states, key=model_key)
        # What has not been measured is not trusted.
        self.square_error = jnp.float32(spec.max_horizon) ** 2

    @property
    def horizons(self) -> Float[np.ndarray, " bins"]:
        """The horizon in the middle of each bin."""
        bins = self.distance.layers[-1].bias.shape[0] - 1
        return bin_horizons(bins, self.width)

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
        scores, rate = self.distance(state_goal), math.log(discount)
        return (jax.nn.logsumexp(scores[:-1] + rate * self.horizons) - scores[-1]) / rate

    def next_state(
        self, state: Float[Array, " state"], unit: Float[Array, " action"]
    ) -> Float[Array, " state"]:
        """The standardised state after an action."""
        return state + self.model(jnp.concatenate([state, unit]))


class Pairs(eqx.Module):
    """Recorded steps, and goals that were achieved so many steps later, as a judge takes them."""

    state: Float[Array, "batch state"]
    unit: Float[Array, "batch action"]
    next_state: Float[Array, "batch state"]
    goal: Float[Array, "batch goal"]
    horizon: Float[Array, " batch"]


def judge_loss(
    judge: Judge, pairs: Pairs
) -> tuple[Float[Array, ""], tuple[Float[Array, ""], Float[Array, ""]]]:
    """Cross-entropy of the steps between states and goals, and squared errors of changes.

    Goals of other episodes are those of the batch's other rows. A change is measured in units of
    how much changes differ within the batch, so that what moves seldom or little is learned as well
    as what always moves; but not what is still (`STILL`).
    """
    own = jnp.concatenate([pairs.state, pairs.goal], axis=1)
    other = jnp.concatenate([pairs.state, jnp.roll(pairs.goal, 1, axis=0)], axis=1)
    likelihood = jax.vmap(judge.log_prob)(own, pairs.horizon) + jax.vmap(judge.log_prob_other)(
        other
    )
    distance = -jnp.mean(likelihood)
    scale = jnp.maximum(jnp.std(pairs.next_state - pairs.state, axis=0), STILL)
    guess = jax.vmap(judge.next_state)(pairs.state, pairs.unit)
    error = jnp.mean(((guess - pairs.next_state) / scale) ** 2)
    return distance + error, (distance, error)


def with_error(judge: Judge, pairs: Pairs, discount: float) -> Judge:
    """The same judge, having looked once more at how far it is off."""
    some = jax.tree.map(lambda rows: rows[:ERROR_ROWS], pairs)
    guess = jax.vmap(judge.next_state)(some.state, some.unit)
    steps = jax.vmap(lambda state, goal: judge.steps(jnp.concatenate([state, goal]), discount))
    error = jnp.mean((steps(guess, some.goal) - steps(some.next_state, some.goal)) ** 2)
    running = polyak(judge.square_error, error, ERROR_KEEP)
    return eqx.tree_at(lambda j: j.square_error, judge, running)
