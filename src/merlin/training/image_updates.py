"""Updates on images that stay on disk; the next minibatches are loaded in the background.

The sampler runs as it does for vectors, but on row numbers instead of observations, so it draws the
same minibatches from the same key. A thread replaces the row numbers by images.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval

from merlin.data.goals import draw_mixture
from merlin.data.images import Images, ahead, shift
from merlin.learners import Learner
from merlin.types import Batch, PRNGKeyArray, State


def streamed_chunk(
    learner: Learner, images: Images, sizes: tuple[int, int] | None = None, pad: int = 0
) -> Callable[..., tuple[State, dict]]:
    """The inner loop: updates `start` to `stop`, with metrics added to `sums`, as in `make_chunk`.

    With `pad`, every image is shifted randomly by up to that many pixels in each direction.
    """
    draw, update = compiled_draw(learner, sizes, pad), compiled_update(learner)
    wanted: dict[str, bool] = {}

    def chunk(
        state: State,
        trajectories: Any,
        key: PRNGKeyArray,
        start: int,
        stop: int,
        sums: dict | None = None,
    ) -> tuple[State, dict]:
        if not wanted:
            wanted.update(_used(learner, images.shape, draw(trajectories, key, start), state))

        def make(step: int) -> tuple[Batch, PRNGKeyArray]:
            batch, offsets, update_key = draw(trajectories, key, step)
            return _fill(batch, offsets, images, wanted, pad), update_key

        behind: Any = None
        for batch, update_key in ahead(make, range(start, stop)):
            # One update runs while the next is transferred; more would pile up minibatches in
            # memory.
            jax.block_until_ready(behind)
            behind = sums
            state, metrics = update(state, batch, update_key)
            sums = jax.tree.map(jnp.zeros_like, metrics) if sums is None else sums
            sums = jax.tree.map(jnp.add, sums, metrics)
        assert sums is not None
        return state, sums

    return chunk


@functools.cache
def compiled_draw(learner: Learner, sizes: tuple[int, int] | None, pad: int) -> Callable[..., Any]:
    """Maps an update's number to its minibatch (with rows for images), its shifts and its key."""

    def draw(
        trajectories: Any, key: PRNGKeyArray, step: Any
    ) -> tuple[Batch, jax.Array | None, PRNGKeyArray]:
        sample_key, update_key = jax.random.split(jax.random.fold_in(key, step))
        if sizes is None:
            batch = learner.sampling.draw(trajectories, sample_key, learner.batch_size)
        else:
            batch = draw_mixture(learner.sampling, trajectories, sample_key, sizes)
        if pad == 0:
            return batch, None, update_key
        shape = (len(batch.shown()), learner.batch_size, 2)
        shift_key = jax.random.fold_in(update_key, 1)
        return batch, jax.random.randint(shift_key, shape, -pad, pad + 1), update_key

    return jax.jit(draw)


@functools.cache
def compiled_update(learner: Learner) -> Callable[..., tuple[State, dict]]:
    """The learner's update, compiled once for all seeds that train one after another."""
    return jax.jit(learner.update)


def _used(learner: Learner, shape: tuple[int, ...], drawn: Any, state: State) -> dict[str, bool]:
    """Which images an update uses; the others need not be read."""
    batch, _, key = drawn
    like = {
        name: jax.ShapeDtypeStruct((*rows.shape, *shape), np.uint8)
        for name, rows in batch.shown().items()
    }
    arguments = (state, batch.showing(like), key)
    program = jax.make_jaxpr(learner.update)(*arguments).jaxpr
    _, used = partial_eval.dce_jaxpr(program, [True] * len(program.outvars))
    marked = jax.tree.unflatten(jax.tree.structure(arguments), used)[1]
    return {name: bool(mark) for name, mark in marked.shown().items()}


def _fill(batch: Batch, offsets: Any, images: Images, wanted: dict[str, bool], pad: int) -> Batch:
    """Replace row numbers by images, with blanks where the update ignores them."""
    shown: dict[str, Any] = {}
    for index, (name, rows) in enumerate(batch.shown().items()):
        if not wanted[name]:
            shown[name] = _blank((*rows.shape, *images.shape))
            continue
        found = images.gather(np.asarray(rows))
        shown[name] = jnp.asarray(shift(found, np.asarray(offsets[index])) if pad else found)
    return batch.showing(shown)


@functools.cache
def _blank(shape: tuple[int, ...]) -> jax.Array:
    return jnp.zeros(shape, jnp.uint8)
