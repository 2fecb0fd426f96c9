"""Distributions of the offset of a future goal from the step at which it is asked for."""

import abc
import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32, UInt32

from merlin.errors import MerlinError


class Offsets(abc.ABC):
    """Distribution of the offset of a future goal, from 1 to the steps left in the episode."""

    @abc.abstractmethod
    def draw(self, word: UInt32[Array, " n"], rest: Int32[Array, " n"]) -> Int32[Array, " n"]:
        """Draw from random words, given the number of steps in the episode after t."""

    @abc.abstractmethod
    def shares(self, steps: Float[np.ndarray, " length"]) -> Float[np.ndarray, " length"]:
        """Probability of each step of an episode as the goal's, given the probabilities of t."""


@dataclass(frozen=True)
class Uniform(Offsets):
    """Uniform over all later steps of the episode, or over the next `limit` steps."""

    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise MerlinError(f"limit: {self.limit} is below 1; a future goal is a step away.")

    def draw(self, word: UInt32[Array, " n"], rest: Int32[Array, " n"]) -> Int32[Array, " n"]:
        within = rest if self.limit is None else jnp.minimum(rest, self.limit)
        return 1 + uniform_below(word, within)

    def shares(self, steps: Float[np.ndarray, " length"]) -> Float[np.ndarray, " length"]:
        limit = len(steps) if self.limit is None else self.limit
        rest = len(steps) - 1.0 - np.arange(len(steps) - 1)
        up_to = np.concatenate([[0.0], np.cumsum(steps[:-1] / np.minimum(rest, limit))])
        return up_to - up_to[np.maximum(np.arange(len(steps)) - limit, 0)]

    def cuts(self, length: Any) -> Any:
        """Whether the limit excludes any step of an episode with this many states."""
        return False if self.limit is None else length - 1 > self.limit


@dataclass(frozen=True)
class Geometric(Offsets):
    """Offset k has probability (1 - discount) discount^(k - 1), capped at the episode's end."""

    discount: float

    def __post_init__(self) -> None:
        if not 0.0 < self.discount < 1.0:
            raise MerlinError(f"discount: {self.discount} is not between 0 and 1.")

    def draw(self, word: UInt32[Array, " n"], rest: Int32[Array, " n"]) -> Int32[Array, " n"]:
        # 24 bits, which float32 represents exactly, in (0, 1].
        uniform = ((word >> np.uint32(8)) + np.uint32(1)).astype(jnp.float32) * jnp.float32(2**-24)
        whole = jnp.floor(jnp.log(uniform) / jnp.float32(math.log(self.discount)))
        return jnp.minimum(1 + whole.astype(jnp.int32), rest)

    def shares(self, steps: Float[np.ndarray, " length"]) -> Float[np.ndarray, " length"]:
        from scipy.signal import lfilter  # scipy.signal is slow to import

        goal = lfilter([0.0, 1.0 - self.discount], [1.0, -self.discount], steps)
        goal[-1] = steps.sum() - goal[:-1].sum()
        return goal


@dataclass(frozen=True)
class Fixed(Offsets):
    """A constant offset, capped at the episode's end."""

    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise MerlinError(f"steps: {self.steps} is below 1; a future goal is a step away.")

    def draw(self, word: UInt32[Array, " n"], rest: Int32[Array, " n"]) -> Int32[Array, " n"]:
        return jnp.minimum(self.steps, rest)

    def shares(self, steps: Float[np.ndarray, " length"]) -> Float[np.ndarray, " length"]:
        at = np.minimum(np.arange(len(steps)) + self.steps, len(steps) - 1)
        return np.bincount(at, steps, len(steps))


UNIFORM = Uniform()
"""Over all later steps of the episode."""


def uniform_below(bits: UInt32[Array, " n"], limit: int | Int32[Array, " n"]) -> Int32[Array, " n"]:
    """Convert random words to integers below `limit`: the high half of the product with `limit`.

    The bias is at most limit / 2^32. jax.random.randint has less bias but needs twice the words and
    a division, which would take 2 % of the training time.
    """
    limit = jnp.asarray(limit).astype(jnp.uint32)
    low, high = np.uint32(0xFFFF), np.uint32(16)
    # 32 x 32 bits by schoolbook multiplication, because 64-bit integers are disabled.
    a, b, c, d = bits >> high, bits & low, limit >> high, limit & low
    middle = a * d + ((b * d) >> high)
    carry = (b * c + (middle & low)) >> high
    return (a * c + (middle >> high) + carry).astype(jnp.int32)
