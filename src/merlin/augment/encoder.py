"""A contrastive encoder that maps consecutive states to nearby embeddings.

Oord et al., "Representation Learning with Contrastive Predictive Coding" (2018). For a minibatch of
consecutive states (s, s') with unit embeddings z and z', each s must identify its own successor
among those of the minibatch (InfoNCE):

    loss = - mean_i log( exp(z_i . z'_i / temperature) / sum_j exp(z_i . z'_j / temperature) ).

Two places on either side of a wall are close in space, but no transition connects them, so nothing
pulls their embeddings together. Images are encoded by a CNN. It can also be trained to predict the
goal that an image achieves (`goal_weight`), so that embedding and goal together represent the
image. Half of its images are then sampled such that rare goals are as frequent as common ones
(`balanced_sampling.py`).
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from merlin.augment.balanced_sampling import balanced_sampler
from merlin.augment.fit import fit
from merlin.data.dataset import Dataset
from merlin.data.images import Images, image_moments
from merlin.data.statistics import moments_of
from merlin.nets.cnn import ImageNet, Net, pixel_normaliser
from merlin.nets.layers import MLP, Linear, Normaliser, plain_normaliser
from merlin.types import Moments

ROWS_PER_CALL = 1 << 16
IMAGES_PER_CALL = 1 << 10


class Encoder(eqx.Module):
    """Maps a state to a unit vector, and optionally predicts the goal that the state achieves."""

    inputs: Normaliser
    net: Net
    readout: Linear | None = None
    units: bool = eqx.field(static=True, default=True)  # whether latents include the unit vector

    def __call__(self, observation: Array) -> Float[Array, " latent"]:
        """The latent of a state: its unit vector, followed by the predicted goal, if any."""
        embedding = self.embed(observation)
        if self.readout is None:
            return unit(embedding)
        # The goal is read from the unnormalised embedding, since a unit vector is bounded.
        goal = self.readout(embedding)
        return jnp.concatenate([unit(embedding), goal]) if self.units else goal

    def embed(self, observation: Array) -> Float[Array, " embedding"]:
        """The embedding before normalisation, from which the goal is also predicted."""
        return self.net(self.inputs(observation))

    def goals(self, latents: Float[np.ndarray, "*n latent"]) -> Float[np.ndarray, "*n goal"]:
        """The predicted goals contained in latents."""
        assert self.readout is not None
        return latents[..., -len(self.readout.bias) :]

    def embed_all(self, observations: Any) -> Float[np.ndarray, "states latent"]:
        """Encode many states, in chunks of equal size so that the program compiles once."""
        call = jax.jit(jax.vmap(self))
        images = Images([observations]) if observations.ndim > 2 else None
        size = ROWS_PER_CALL if images is None else IMAGES_PER_CALL
        found = []
        for begin in range(0, len(observations), size):
            numbers = np.arange(begin, min(begin + size, len(observations)))
            rows = np.asarray(observations[numbers]) if images is None else images.gather(numbers)
            short = min(size, len(observations)) - len(rows)
            padded = np.concatenate([rows, np.repeat(rows[:1], short, 0)])
            found.append(np.asarray(call(padded))[: len(rows)])
        return np.concatenate(found)


def unit(embedding: Float[Array, " embedding"]) -> Float[Array, " embedding"]:
    """Normalise to unit length."""
    return embedding / jnp.maximum(jnp.linalg.norm(embedding), 1e-12)


def image_encoder(
    moments: Moments,
    hidden: Sequence[int],
    dim: int,
    goals: int,
    units: bool = True,
    *,
    key: PRNGKeyArray,
) -> Encoder:
    """An untrained image encoder; with `goals`, it also predicts the achieved goal."""
    net_key, readout_key = jax.random.split(key)
    return Encoder(
        inputs=pixel_normaliser(moments),
        net=ImageNet(moments.mean.shape, 1, 0, hidden, dim, key=net_key),
        readout=Linear(dim, goals, key=readout_key) if goals else None,
        units=units,
    )


def info_nce(
    anchors: Float[Array, "batch embedding"],
    positives: Float[Array, "batch embedding"],
    temperature: float,
) -> Float[Array, ""]:
    """Cross-entropy of identifying each anchor's own positive within the minibatch."""
    logits = anchors @ positives.T / temperature
    return -jnp.mean(jnp.diagonal(jax.nn.log_softmax(logits, axis=1)))


def train_encoder(
    data: Dataset,
    *,
    hidden: tuple[int, ...],
    dim: int,
    temperature: float,
    updates: int,
    batch: int,
    learning_rate: optax.ScalarOrSchedule,
    key: PRNGKeyArray,
    quiet: bool,
    goal_weight: float = 0.0,
    units: bool = True,
) -> tuple[Encoder, float]:
    """Train an encoder on the consecutive states of all episodes; return it and its final loss.

    An image encoder without `units` is trained on goal prediction only.
    """
    init_key, fit_key = jax.random.split(key)
    # Every state except the last of an episode has a successor.
    has_next = np.ones(len(data.observations), bool)
    has_next[data.starts[1:] - 1] = False
    pairs = np.flatnonzero(has_next).astype(np.int32)
    how: dict[str, Any] = {
        "updates": updates,
        "learning_rate": learning_rate,
        "key": fit_key,
        "label": "encoder",
        "quiet": quiet,
    }
    if data.has_images:
        sizes = (hidden, dim, units)
        return _fit_to_images(data, pairs, sizes, temperature, batch, goal_weight, key, how)
    encoder = Encoder(
        inputs=plain_normaliser(moments_of(data.observations)),
        net=MLP(data.observations.shape[1], hidden, dim, key=init_key),
    )
    rows = (jnp.asarray(data.observations), jnp.asarray(pairs))

    def loss(
        encoder: Encoder, rows: tuple[Array, Int[Array, " pairs"]], key: PRNGKeyArray
    ) -> Float[Array, ""]:
        observations, pairs = rows
        first = pairs[jax.random.randint(key, (batch,), 0, len(pairs))]
        both = jax.vmap(encoder)(observations[jnp.concatenate([first, first + 1])])
        return info_nce(both[:batch], both[batch:], temperature)

    return fit(loss, encoder, rows, part=lambda encoder: encoder.net, **how)


def _fit_to_images(
    data: Dataset,
    pairs: Int[np.ndarray, " pairs"],
    sizes: tuple[tuple[int, ...], int, bool],
    temperature: float,
    batch: int,
    goal_weight: float,
    key: PRNGKeyArray,
    how: dict[str, Any],
) -> tuple[Encoder, float]:
    """Train on images, which are gathered one minibatch at a time."""
    goals = data.achieved_goals.shape[1] if goal_weight > 0 else 0
    hidden, dim, units = sizes
    seen = image_moments(data.observations)
    encoder = image_encoder(seen, hidden, dim, goals, units, key=key)
    images = Images([data.observations])
    achieved = np.asarray(data.achieved_goals)
    scale = plain_normaliser(moments_of(achieved)).scale
    balanced = balanced_sampler(achieved[pairs]) if goals else None

    def draw(step: int) -> tuple[Array, Array]:
        draw_key = jax.random.fold_in(key, step)
        first = np.array(jax.random.randint(draw_key, (batch,), 0, len(pairs)))
        if balanced is not None:
            # Half of the minibatch follows the data; the other half has balanced goals.
            some = jax.random.uniform(jax.random.fold_in(draw_key, 1), (batch // 2, 2))
            first[: batch // 2] = balanced.draw(np.asarray(some))
        both = pairs[np.concatenate([first, first]) if units else first]
        both[batch:] += 1
        return jnp.asarray(images.gather(both)), jnp.asarray(achieved[both])

    def loss(encoder: Encoder, rows: tuple[Array, Array], key: PRNGKeyArray) -> Float[Array, ""]:
        both = jax.vmap(encoder.embed)(rows[0])
        value = jnp.float32(0.0)
        if units:
            ways = jax.vmap(unit)(both)
            value += info_nce(ways[:batch], ways[batch:], temperature)
        if encoder.readout is not None:
            error = (jax.vmap(encoder.readout)(both) - rows[1]) * scale
            value += goal_weight * jnp.mean(error**2)
        return value

    part = (lambda e: (e.net, e.readout)) if goals else (lambda e: e.net)
    return fit(loss, encoder, None, part=part, batches=draw, **how)
