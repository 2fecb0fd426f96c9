"""Contrastive encoder: states that follow one another are near, others are not.

Oord et al., "Representation Learning with Contrastive Predictive Coding" (2018). For a batch of
consecutive states (s, s'), embedded as unit vectors z and z', every s is asked to pick its own
successor among all those of the batch (InfoNCE):

    loss = - mean_i log( exp(z_i . z'_i / temperature) / sum_j exp(z_i . z'_j / temperature) ).

Two places on either side of a wall are near in space, but no walk in the data leads from one to
the other in a step, so nothing pulls their embeddings together.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from merlin.augment.base import divisor, moments
from merlin.augment.fitting import fit
from merlin.data.dataset import Dataset
from merlin.nets import MLP

ROWS_PER_CALL = 1 << 16


class Encoder(eqx.Module):
    """From a state to a unit vector."""

    mean: Float[Array, " observation"]
    scale: Float[Array, " observation"]
    net: MLP

    def __call__(self, observation: Float[Array, " observation"]) -> Float[Array, " embedding"]:
        embedding = self.net((observation - self.mean) * self.scale)
        return embedding / jnp.maximum(jnp.linalg.norm(embedding), 1e-12)

    def embed_all(self, observations: np.ndarray) -> Float[np.ndarray, "states embedding"]:
        """Embeddings of many states, in pieces of one size so that one program does them all."""
        call = jax.jit(jax.vmap(self))
        found = []
        for begin in range(0, len(observations), ROWS_PER_CALL):
            rows = np.asarray(observations[begin : begin + ROWS_PER_CALL])
            short = min(ROWS_PER_CALL, len(observations)) - len(rows)
            padded = np.concatenate([rows, np.repeat(rows[:1], short, 0)])
            found.append(np.asarray(call(padded))[: len(rows)])
        return np.concatenate(found)


def info_nce(
    anchors: Float[Array, "batch embedding"],
    positives: Float[Array, "batch embedding"],
    temperature: float,
) -> Float[Array, ""]:
    """Cross-entropy of picking each anchor's own positive among those of the batch."""
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
    learning_rate: float,
    key: PRNGKeyArray,
    quiet: bool,
) -> tuple[Encoder, float]:
    """Fit an encoder to the consecutive states of all episodes; also return its last loss."""
    init_key, fit_key = jax.random.split(key)
    mean, std = moments(data.observations)
    encoder = Encoder(
        mean=jnp.asarray(mean),
        scale=jnp.asarray(1.0 / divisor(std)),
        net=MLP(data.observations.shape[1], hidden, dim, key=init_key),
    )
    # Every state but an episode's last has a successor.
    has_next = np.ones(len(data.observations), bool)
    has_next[data.starts[1:] - 1] = False
    rows = (jnp.asarray(data.observations), jnp.asarray(np.flatnonzero(has_next).astype(np.int32)))

    def loss(
        encoder: Encoder, rows: tuple[Array, Int[Array, " pairs"]], key: PRNGKeyArray
    ) -> Float[Array, ""]:
        observations, pairs = rows
        first = pairs[jax.random.randint(key, (batch,), 0, len(pairs))]
        both = jax.vmap(encoder)(observations[jnp.concatenate([first, first + 1])])
        return info_nce(both[:batch], both[batch:], temperature)

    return fit(
        loss,
        encoder,
        rows,
        part=lambda encoder: encoder.net,
        updates=updates,
        learning_rate=learning_rate,
        key=fit_key,
        label="encoder",
        quiet=quiet,
    )
