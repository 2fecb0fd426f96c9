"""Fine-tuning at the end of an advised expert's training, on the advice alone."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.experts.ddpg import DDPG, Replay, Scaling
from merlin.io.interruption import Interrupted, signals
from merlin.io.progress import Progress
from merlin.nets.layers import MLP, cosine_decay, descend

CHUNK = 1000
"""Updates between two checks for a signal."""


def fine_tune(
    learner: DDPG,
    actor: MLP,
    replay: Replay,
    scaling: Scaling,
    key: PRNGKeyArray,
    *,
    updates: int,
    label: str,
    when_stopped: str,
    quiet: bool,
) -> tuple[MLP, Float[Array, ""]]:
    """Train the actor with a decaying learning rate; returns it and its last disagreement.

    Fine-tuning is short and not checkpointed: if interrupted, it starts again with the same result.
    """
    state = _optimiser(learner, updates).init(actor)
    error = jnp.float32(0)
    with Progress(label, updates, "updates", quiet=quiet) as bar, signals() as stopped:
        for begin in range(0, updates, CHUNK):
            end = min(begin + CHUNK, updates)
            actor, state, error = _follow_advice(
                learner, updates, actor, state, replay, scaling, key, begin, end
            )
            bar.update(end, f"disagreement {float(error):.4f}")
            if stopped and end < updates:
                raise Interrupted(when_stopped)
    return actor, error


def _optimiser(learner: DDPG, updates: int) -> optax.GradientTransformation:
    return optax.adam(cosine_decay(learner.learning_rate, updates))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _follow_advice(
    learner: DDPG,
    updates: int,
    actor: MLP,
    state: optax.OptState,
    replay: Replay,
    scaling: Scaling,
    key: PRNGKeyArray,
    begin: int,
    end: int,
) -> tuple[MLP, optax.OptState, Float[Array, ""]]:
    def update(step: Any, carry: Any) -> Any:
        actor, state, _ = carry
        sub = jax.random.fold_in(key, step)
        loss = lambda actor: learner.disagreement(actor, replay, scaling, sub)  # noqa: E731
        error, gradient = jax.value_and_grad(loss)(actor)
        return *descend(_optimiser(learner, updates), actor, gradient, state), error

    return jax.lax.fori_loop(begin, end, update, (actor, state, jnp.float32(0)))
