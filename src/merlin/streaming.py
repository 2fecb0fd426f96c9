"""Updates from images that stay on disk: the next batches are gathered while one is learned from.

The sampler runs as for vectors, but on the numbers of rows instead of observations: it draws the
same batches from the same key. A thread replaces the numbers by the images.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval

from merlin.data.images import Images, ahead, shift
from merlin.data.relabel import sample_mixture
from merlin.learners import Learner
from merlin.types import Batch, PRNGKeyArray, State

SHOWN = ("observation", "next_observation", "first_observation", "goal_observation")
"""The fields of a batch that are images."""


def streamed_chunk(
    learner: Learner, images: Images, sizes: tuple[int, int] | None = None, pad: int = 0
) -> Callable[..., tuple[State, dict]]:
    """The inner loop: updates `start` to `stop`, metrics averaged, as `loop.make_chunk` has it.

    With a `pad` every image is moved by up to so many pixels in each direction, at random.
    """
    draw, update = compiled_draw(learner, sizes, pad), compiled_update(learner)
    wanted: dict[str, bool] = {}

    def chunk(
        state: State, trajectories: Any, key: PRNGKeyArray, start: int, stop: int
    ) -> tuple[State, dict]:
        if not wanted:
            wanted.update(_used(learner, images.shape, draw(trajectories, key, start), state))

        def make(step: int) -> tuple[Batch, PRNGKeyArray]:
            batch, offsets, update_key = draw(trajectories, key, step)
            return _fill(batch, offsets, images, wanted, pad), update_key

        total: Any = None
        behind: Any = None
        for batch, update_key in ahead(make, range(start, stop)):
            # One update runs while the next is sent; more would pile up batches in memory.
            jax.block_until_ready(behind)
            behind = total
            state, metrics = update(state, batch, update_key)
            total = metrics if total is None else jax.tree.map(jnp.add, total, metrics)
        return state, jax.tree.map(lambda x: x / jnp.float32(stop - start), total)

    return chunk


@functools.cache
def compiled_draw(learner: Learner, sizes: tuple[int, int] | None, pad: int) -> Callable[..., Any]:
    """Update number to its batch, with rows for images, its shifts, and its key."""

    def draw(
        trajectories: Any, key: PRNGKeyArray, step: Any
    ) -> tuple[Batch, jax.Array | None, PRNGKeyArray]:
        sample_key, update_key = jax.random.split(jax.random.fold_in(key, step))
        if sizes is None:
            batch = learner.relabel.sample(trajectories, sample_key, learner.batch_size)
        else:
            batch = sample_mixture(learner.relabel, trajectories, sample_key, sizes)
        if pad == 0:
            return batch, None, update_key
        shape = (len(SHOWN), learner.batch_size, 2)
        shift_key = jax.random.fold_in(update_key, 1)
        return batch, jax.random.randint(shift_key, shape, -pad, pad + 1), update_key

    return jax.jit(draw)


@functools.cache
def compiled_update(learner: Learner) -> Callable[..., tuple[State, dict]]:
    """The learner's update, compiled once for all the seeds that train one after the other."""
    return jax.jit(learner.update)


def _used(learner: Learner, shape: tuple[int, ...], drawn: Any, state: State) -> dict[str, bool]:
    """Which images an update looks at: the others need not be read."""
    batch, _, key = drawn
    rows = {name: getattr(batch, name).shape for name in SHOWN}
    like = {n: jax.ShapeDtypeStruct((*s, *shape), np.uint8) for n, s in rows.items()}
    arguments = (state, batch._replace(**like), key)
    program = jax.make_jaxpr(learner.update)(*arguments).jaxpr
    _, used = partial_eval.dce_jaxpr(program, [True] * len(program.outvars))
    marked = jax.tree.unflatten(jax.tree.structure(arguments), used)[1]
    return {name: bool(getattr(marked, name)) for name in SHOWN}


def _fill(batch: Batch, offsets: Any, images: Images, wanted: dict[str, bool], pad: int) -> Batch:
    """The images in place of their numbers; blank ones where nobody looks."""
    shown: dict[str, Any] = {}
    for index, name in enumerate(SHOWN):
        rows = np.asarray(getattr(batch, name))
        if not wanted[name]:
            shown[name] = _blank((*rows.shape, *images.shape))
            continue
        found = images.gather(rows)
        shown[name] = jnp.asarray(shift(found, np.asarray(offsets[index])) if pad else found)
    return batch._replace(**shown)


@functools.cache
def _blank(shape: tuple[int, ...]) -> jax.Array:
    return jnp.zeros(shape, jnp.uint8)
