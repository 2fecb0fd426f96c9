"""A small causal transformer over a short window of tokens."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from merlin.nets.layers import Linear


def normal_linear(inputs: int, outputs: int, *, key: PRNGKeyArray) -> Linear:
    """An affine map that starts as GPT's do: weights of deviation 0.02, no bias."""
    weight = 0.02 * jax.random.normal(key, (inputs, outputs))
    return eqx.tree_at(lambda layer: layer.weight, Linear(inputs, outputs), weight)


class Block(eqx.Module):
    """Self-attention and a two-layer network, each normalised before and added after.

    Query, key and value come of one product: acting on one window takes 0.18 ms (2 layers of 64)
    and 0.95 ms (4 of 120); with `eqx.nn.MultiheadAttention`, which has three, 0.21 and 1.20 ms.
    Over batches Equinox' is the faster one at times: a gradient took as long in one measurement and
    6 to 23 % less in another. Files hold the one product, so it stays.
    """

    attention_norm: eqx.nn.LayerNorm
    query_key_value: Linear
    attention_out: Linear
    net_norm: eqx.nn.LayerNorm
    widen: Linear
    narrow: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, width: int, heads: int, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 4)
        self.attention_norm, self.net_norm = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)
        self.query_key_value = normal_linear(width, 3 * width, key=keys[0])
        self.attention_out = normal_linear(width, width, key=keys[1])
        self.widen = normal_linear(width, 4 * width, key=keys[2])
        self.narrow = normal_linear(4 * width, width, key=keys[3])
        self.heads = heads

    def __call__(
        self,
        x: Float[Array, "tokens width"],
        visible: Bool[Array, "tokens tokens"],
        dropout: float,
        key: PRNGKeyArray | None,
    ) -> Float[Array, "tokens width"]:
        split = jax.vmap(self.query_key_value)(jax.vmap(self.attention_norm)(x))
        query, keys, value = jnp.split(split.reshape(len(x), 3 * self.heads, -1), 3, axis=1)
        scores = jnp.einsum("qhd,khd->hqk", query, keys) / np.float32(np.sqrt(query.shape[-1]))
        share = jax.nn.softmax(jnp.where(visible, scores, -1e9))
        share = eqx.nn.Dropout(dropout, inference=key is None)(share, key=key)
        seen = jnp.einsum("hqk,khd->qhd", share, value).reshape(x.shape)
        x = x + jax.vmap(self.attention_out)(seen)
        inner = jax.nn.gelu(jax.vmap(self.widen)(jax.vmap(self.net_norm)(x)))
        return x + jax.vmap(self.narrow)(inner)


class Transformer(eqx.Module):
    """Blocks in a row; a token sees itself and those before it, unless they are not there."""

    blocks: tuple[Block, ...]
    norm: eqx.nn.LayerNorm
    dropout: float = eqx.field(static=True)

    def __init__(
        self, width: int, layers: int, heads: int, dropout: float = 0.0, *, key: PRNGKeyArray
    ):
        keys = jax.random.split(key, layers)
        self.blocks = tuple(Block(width, heads, key=k) for k in keys)
        self.norm = eqx.nn.LayerNorm(width)
        self.dropout = dropout

    def __call__(
        self,
        tokens: Float[Array, "tokens width"],
        present: Bool[Array, " tokens"],
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "tokens width"]:
        """With a key (in training) attention is dropped at random."""
        count = len(tokens)
        # A token that is not there still sees itself, or its softmax would have nothing to share.
        visible = (jnp.tri(count, dtype=bool) & present) | jnp.eye(count, dtype=bool)
        keys = [None] * len(self.blocks) if key is None else jax.random.split(key, len(self.blocks))
        for block, block_key in zip(self.blocks, keys, strict=True):
            tokens = block(tokens, visible, self.dropout, block_key)
        return jax.vmap(self.norm)(tokens)
