"""Hindsight relabelling: from trajectories to batches of (state, action, goal, horizon).

The sampling rule is that of "Learning to Reach Goals via Diffusion": an episode uniformly, then
a pair of its states t < i uniformly. With probability `hindsight_ratio` the goal is what was
achieved at i and the horizon i - t; otherwise it is the episode's desired goal and the horizon
is the number of states from t to the end of the episode, t included.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, UInt32

from merlin.data.dataset import ROWS_AT_ONCE, Dataset
from merlin.errors import MerlinError
from merlin.types import Batch, Moments, PRNGKeyArray, Spec, Trajectories


@dataclass(frozen=True)
class Relabel:
    """What goals a learner wants to be shown."""

    hindsight_ratio: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.hindsight_ratio <= 1.0:
            raise MerlinError(
                f"hindsight_ratio: {self.hindsight_ratio} is not between 0 and 1; "
                "it is the share of goals taken from the future of the same episode."
            )

    def sample(self, data: Trajectories, key: PRNGKeyArray, n: int) -> Batch:
        """Draw `n` examples; pure, so the same key gives the same batch."""
        bits = jax.random.bits(key, (4, n), jnp.uint32)
        episode = uniform_below(bits[0], len(data.starts) - 1)
        begin = data.starts[episode]
        length = data.starts[episode + 1] - begin
        # Two different states, ordered: uniform over pairs, whatever the length.
        first = uniform_below(bits[1], length)
        second = uniform_below(bits[2], length - 1)
        second = second + (second >= first).astype(jnp.int32)
        t, i = jnp.minimum(first, second), jnp.maximum(first, second)

        goal, horizon = data.achieved_goals[begin + i], i - t
        if self.hindsight_ratio < 1.0:
            assert data.desired_goals is not None, "make_spec refuses this"
            relabelled = bits[3] < np.uint32(self.hindsight_ratio * 2**32)
            goal = jnp.where(relabelled[:, None], goal, data.desired_goals[episode])
            horizon = jnp.where(relabelled, horizon, length - t)
        return Batch(
            observation=data.observations[begin + t],
            action=data.actions[begin - episode + t],
            next_observation=data.observations[begin + t + 1],
            achieved_goal=data.achieved_goals[begin + t],
            next_achieved_goal=data.achieved_goals[begin + t + 1],
            goal=goal,
            horizon=horizon.astype(jnp.float32),
        )


def uniform_below(bits: UInt32[Array, " n"], limit: int | Int32[Array, " n"]) -> Int32[Array, " n"]:
    """Random words to whole numbers from 0 to `limit` - 1: the high half of words times limit.

    No number is likelier than another by more than limit / 2^32. jax.random.randint does better,
    for twice the words and a division; here that would be a fiftieth of the training time.
    """
    limit = jnp.asarray(limit).astype(jnp.uint32)
    low, high = np.uint32(0xFFFF), np.uint32(16)
    # 32 x 32 bits by schoolbook multiplication, because there are no 64-bit integers here.
    a, b, c, d = bits >> high, bits & low, limit >> high, limit & low
    middle = a * d + ((b * d) >> high)
    carry = (b * c + (middle & low)) >> high
    return (a * c + (middle >> high) + carry).astype(jnp.int32)


def make_spec(data: Dataset, relabel: Relabel) -> Spec:
    """Describe the data to a learner, with the exact moments of what `relabel` will sample.

    The moments are those of the sampling distribution, not of the states: pairs t < i favour
    early states as observations and late ones as goals.
    """
    ratio = relabel.hindsight_ratio
    if ratio < 1.0 and data.desired_goals is None:
        raise MerlinError(
            f"hindsight_ratio: {ratio} asks for desired goals, which the data lacks; set it to 1."
        )
    lengths = data.lengths
    step = np.arange(len(data.observations)) - np.repeat(data.starts[:-1], lengths)
    length = np.repeat(lengths, lengths)
    # P(t) within an episode of L states is (L - 1 - t) / (L (L - 1) / 2), P(i) is i / (same).
    per_pair = 2.0 / (length * (length - 1.0) * len(data))
    observation_weight = (length - 1 - step) * per_pair
    goal_parts = [(data.achieved_goals, ratio * step * per_pair)]
    if data.desired_goals is not None:
        goal_parts.append((data.desired_goals, np.full(len(data), (1.0 - ratio) / len(data))))
    return Spec(
        observation_shape=data.observations.shape[1:],
        action_low=np.asarray(data.action_low),
        action_high=np.asarray(data.action_high),
        goal_dim=data.achieved_goals.shape[1],
        max_horizon=int(lengths.max()),
        observation_moments=_moments([(data.observations, observation_weight)]),
        goal_moments=_moments(goal_parts),
    )


def _moments(parts: list[tuple[np.ndarray, np.ndarray]]) -> Moments:
    """Weighted mean and deviation over the rows of several arrays, in pieces and in float64."""
    shape = parts[0][0].shape[1:]
    mean, square = np.zeros(shape), np.zeros(shape)
    for array, weight in parts:
        for begin in range(0, len(array), ROWS_AT_ONCE):
            rows = np.asarray(array[begin : begin + ROWS_AT_ONCE], np.float64)
            w = weight[begin : begin + ROWS_AT_ONCE]
            mean += np.tensordot(w, rows, axes=1)
            square += np.tensordot(w, rows**2, axes=1)
    std = np.sqrt(np.maximum(square - mean**2, 0.0))
    return Moments(mean.astype(np.float32), std.astype(np.float32))
