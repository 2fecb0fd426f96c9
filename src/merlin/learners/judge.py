"""Training of the judge of Merlin-plus (see `policies.judge`), on the policy's own minibatches.

The hazards of its temporal distance are fitted to the data beforehand (see `distance`). The forward
model and the guide are regressions; the guide's targets are step-by-step rollouts of the policy.

The judge also estimates its own error. On recorded transitions, where the true next state is known,
it compares the distance from that state with the distance from the predicted one. In free space the
error is a fraction of a step. With contacts it can exceed a step, and the judge is then of little
use.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from merlin.nets.layers import clip_by_norm, polyak
from merlin.policies.judge import Judge, Walks
from merlin.types import Metrics

ERROR_KEEP = 0.99
"""Fraction of the running error kept in each update."""
ERROR_ROWS = 64
"""Rows of the minibatch on which the error is measured."""
STILL = 0.02
"""Lower bound on the scale of state changes, in standard deviations of the state.

Without it, dimensions that hardly move, such as a target that is fixed within an episode, would
dominate the model's loss.
"""


class Pairs(eqx.Module):
    """A minibatch of recorded transitions with goals achieved `horizon` steps later."""

    state: Float[Array, "batch state"]
    unit: Float[Array, "batch action"]
    next_state: Float[Array, "batch state"]
    goal: Float[Array, "batch goal"]
    horizon: Float[Array, " batch"]


def starts(pairs: Pairs) -> tuple[Float[Array, "rows state"], Float[Array, "rows goal"]]:
    """Start states and goals for training the guide; half of the goals are from other episodes.

    These resemble the goals at test time, which no recorded episode reaches from the same state.
    """
    half = len(pairs.goal) // 2
    goal = jnp.concatenate([pairs.goal[:half], jnp.roll(pairs.goal, 1, axis=0)[half:]])
    return pairs.next_state, goal


def judge_loss(judge: Judge, pairs: Pairs, walks: Walks) -> tuple[Float[Array, ""], Metrics]:
    """Squared errors of the model and the guide, plus the cross-entropy of a classifier.

    Hazards are fitted before training and have no loss here. A classifier's negative goals are
    those of other rows of the minibatch. State changes are scaled by their standard deviation
    within the minibatch, bounded below by `STILL`, so that dimensions that move rarely or little
    are learned as well as the others.
    """
    scale = jnp.maximum(jnp.std(pairs.next_state - pairs.state, axis=0), STILL)
    guess = jax.vmap(judge.next_state)(pairs.state, pairs.unit)
    end = jax.vmap(judge.walk_end)(walks.state, walks.goal)
    parts = {
        "model_loss": jnp.mean(((guess - pairs.next_state) / scale) ** 2),
        "guide_loss": jnp.mean(((end - walks.end) / scale) ** 2),
    }
    if not judge.hazards:
        own = jnp.concatenate([pairs.state, pairs.goal], axis=1)
        other = jnp.concatenate([pairs.state, jnp.roll(pairs.goal, 1, axis=0)], axis=1)
        likelihood = jax.vmap(judge.log_prob)(own, pairs.horizon)
        likelihood += jax.vmap(judge.log_prob_other)(other)
        parts = {"distance_loss": -jnp.mean(likelihood), **parts}
    return sum(parts.values(), jnp.float32(0.0)), parts


def clip_each(gradient: Judge, limit: float) -> Judge:
    """Clip each network's gradient separately, so that none slows down the others."""
    networks = lambda judge: (judge.distance, judge.model, judge.guide)  # noqa: E731
    clipped = tuple(clip_by_norm(part, limit)[0] for part in networks(gradient))
    return eqx.tree_at(networks, gradient, clipped)


def with_error(judge: Judge, pairs: Pairs, discount: float) -> Judge:
    """Update the judge's estimate of its own error."""
    some = jax.tree.map(lambda rows: rows[:ERROR_ROWS], pairs)
    guess = jax.vmap(judge.next_state)(some.state, some.unit)
    steps = jax.vmap(lambda state, goal: judge.steps(jnp.concatenate([state, goal]), discount))
    error = jnp.mean((steps(guess, some.goal) - steps(some.next_state, some.goal)) ** 2)
    running = polyak(judge.square_error, error, ERROR_KEEP)
    return eqx.tree_at(lambda j: j.square_error, judge, running)
