"""A temporal U-Net: convolutions over time at several resolutions.

Janner et al., "Planning with Diffusion for Flexible Behavior Synthesis" (2022). Each level has two
residual blocks, conditioned on an embedding of the noise level and the condition. The way down
halves the length; the way up doubles it and concatenates the features of the same level.

Sequences have shape (length, channels). A convolution is one matrix product over stacked shifts.
Against the convolutions of Equinox, one action takes 1.1 ms instead of 2.2 ms with 32 channels, and
48 ms instead of 227 ms with 128; a gradient on 32 windows takes 105 ms instead of 85 ms, and 2.0 s
instead of 3.2 s (windows of 50 steps, one core). Layers are created with zero weights, to be filled
by `layers.randomise`.
"""

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from merlin.nets.layers import Linear, mish


class Conv(eqx.Module):
    """A convolution over time that keeps the length, or halves it with stride 2."""

    linear: Linear
    kernel: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1):
        self.linear = Linear(kernel * inputs, outputs)
        self.kernel, self.stride = kernel, stride

    def __call__(self, x: Float[Array, "length inputs"]) -> Float[Array, "shorter outputs"]:
        length, half = len(x), self.kernel // 2
        padded = jnp.pad(x, ((half, half), (0, 0)))
        shifts = [padded[i : i + length : self.stride] for i in range(self.kernel)]
        return jax.vmap(self.linear)(jnp.concatenate(shifts, axis=1))


class Upsample(eqx.Module):
    """A transposed convolution with kernel 4 and stride 2; each output depends on two inputs."""

    even: Linear
    odd: Linear

    def __init__(self, channels: int):
        self.even, self.odd = Linear(2 * channels, channels), Linear(2 * channels, channels)

    def __call__(self, x: Float[Array, "length channels"]) -> Float[Array, "longer channels"]:
        padded = jnp.pad(x, ((1, 1), (0, 0)))
        even = jax.vmap(self.even)(jnp.concatenate([padded[:-2], x], axis=1))
        odd = jax.vmap(self.odd)(jnp.concatenate([x, padded[2:]], axis=1))
        return jnp.stack([even, odd], axis=1).reshape(2 * len(x), -1)


def group_norm(channels: int) -> eqx.nn.GroupNorm:
    """Group normalisation over time with eight groups of channels."""
    return eqx.nn.GroupNorm(8, channels)


def normalise(
    norm: eqx.nn.GroupNorm, x: Float[Array, "length channels"]
) -> Float[Array, "length channels"]:
    """Apply a normalisation that expects channels first."""
    return norm(x.T).T


class Residual(eqx.Module):
    """Two convolutions with the embedding added in between, and a residual connection."""

    convs: tuple[Conv, Conv]
    norms: tuple[eqx.nn.GroupNorm, eqx.nn.GroupNorm]
    tell: Linear
    skip: Linear | None

    def __init__(self, inputs: int, outputs: int, embedding: int, kernel: int):
        self.convs = Conv(inputs, outputs, kernel), Conv(outputs, outputs, kernel)
        self.norms = group_norm(outputs), group_norm(outputs)
        self.tell = Linear(embedding, outputs)
        self.skip = None if inputs == outputs else Linear(inputs, outputs)

    def __call__(
        self, x: Float[Array, "length inputs"], embedding: Float[Array, " embedding"]
    ) -> Float[Array, "length outputs"]:
        y = mish(normalise(self.norms[0], self.convs[0](x))) + self.tell(mish(embedding))
        y = mish(normalise(self.norms[1], self.convs[1](y)))
        return y + (x if self.skip is None else jax.vmap(self.skip)(x))


class UNet(eqx.Module):
    """Maps a sequence of any length and an embedding to a sequence of the same shape."""

    down: tuple[tuple[Residual, Residual, Conv | None], ...]
    middle: tuple[Residual, Residual]
    up: tuple[tuple[Residual, Residual, Upsample], ...]
    last: Conv
    norm: eqx.nn.GroupNorm
    out: Linear

    def __init__(
        self,
        dim: int,
        embedding: int,
        *,
        channels: int,
        multipliers: Sequence[int],
        kernel: int = 5,
    ):
        def block(inputs: int, outputs: int) -> Residual:
            return Residual(inputs, outputs, embedding, kernel)

        widths = [channels * m for m in multipliers]
        pairs = list(itertools.pairwise([dim, *widths]))
        self.down = tuple(
            (
                block(inputs, outputs),
                block(outputs, outputs),
                # The coarsest level has no downsampling.
                Conv(outputs, outputs, 3, stride=2) if level < len(pairs) else None,
            )
            for level, (inputs, outputs) in enumerate(pairs, start=1)
        )
        self.middle = block(widths[-1], widths[-1]), block(widths[-1], widths[-1])
        self.up = tuple(
            (block(2 * outer, inner), block(inner, inner), Upsample(inner))
            for inner, outer in reversed(list(itertools.pairwise(widths)))
        )
        self.last = Conv(widths[0], widths[0], kernel)
        self.norm = group_norm(widths[0])
        self.out = Linear(widths[0], dim)

    def __call__(
        self, x: Float[Array, "length dim"], embedding: Float[Array, " embedding"]
    ) -> Float[Array, "length dim"]:
        length = len(x)
        # Pad the sequence with its last element to a multiple of the total stride; cut off at the
        # end.
        missing = -length % 2 ** len(self.up)
        x = jnp.pad(x, ((0, missing), (0, 0)), mode="edge")
        seen = []
        for first, second, downsample in self.down:
            x = second(first(x, embedding), embedding)
            seen.append(x)
            x = x if downsample is None else downsample(x)
        for residual in self.middle:
            x = residual(x, embedding)
        for first, second, upsample in self.up:
            x = jnp.concatenate([x, seen.pop()], axis=1)
            x = upsample(second(first(x, embedding), embedding))
        x = mish(normalise(self.norm, self.last(x)))
        return jax.vmap(self.out)(x)[:length]
