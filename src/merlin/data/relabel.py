"""Hindsight relabelling: from trajectories to batches of (state, action, goal, horizon).

The sampling rule is that of "Learning to Reach Goals via Diffusion": an episode uniformly, then
a pair of its states t < i uniformly. With probability `hindsight_ratio` the goal is what was
achieved at i and the horizon i - t; otherwise it is the episode's desired goal and the horizon
is the number of states from t to the end of the episode, t included.

Pairs favour early states. Methods with a value function draw t uniformly and then i among the
states after it (`uniform_time`). Methods that look at more than one step ask for a window.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32, UInt32

from merlin.data.dataset import ROWS_AT_ONCE, Dataset
from merlin.data.images import image_moments
from merlin.errors import MerlinError
from merlin.types import Batch, Moments, PRNGKeyArray, Spec, Trajectories, Window


@dataclass(frozen=True)
class Relabel:
    """What goals, states and windows a learner wants to be shown."""

    hindsight_ratio: float = 1.0
    uniform_time: bool = False  # t uniform, then the goal's time; otherwise the pair is uniform
    ahead: int = 0  # length of the window from t on
    behind: int = 0  # length of the window that ends with t

    def __post_init__(self) -> None:
        if self.ahead < 0 or self.behind < 0:
            raise MerlinError("ahead, behind: a window has 0 steps (none) or more.")
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
        t, i = self._times(bits[1], bits[2], length)
        future_goal, future_horizon = data.achieved_goals[begin + i], i - t
        goal, horizon = future_goal, future_horizon
        relabelled = jnp.ones(n, bool)
        if self.hindsight_ratio < 1.0:
            assert data.desired_goals is not None, "make_spec refuses this"
            relabelled = bits[3] < np.uint32(self.hindsight_ratio * 2**32)
            goal = jnp.where(relabelled[:, None], goal, data.desired_goals[episode])
            horizon = jnp.where(relabelled, horizon, length - t)

        def window(first: Int32[Array, " n"], steps: int) -> Window | None:
            if steps == 0:
                return None
            wanted = first[:, None] + jnp.arange(steps)
            state = jnp.clip(wanted, 0, length[:, None] - 1)
            action = jnp.clip(wanted, 0, length[:, None] - 2)
            return Window(
                observations=data.observations[begin[:, None] + state],
                actions=data.actions[(begin - episode)[:, None] + action],
                valid=wanted == state,
            )

        return Batch(
            observation=data.observations[begin + t],
            action=data.actions[begin - episode + t],
            next_observation=data.observations[begin + t + 1],
            achieved_goal=data.achieved_goals[begin + t],
            next_achieved_goal=data.achieved_goals[begin + t + 1],
            goal=goal,
            horizon=horizon.astype(jnp.float32),
            first_observation=data.observations[begin],
            goal_observation=data.observations[begin + i],
            relabelled=relabelled,
            future_goal=future_goal,
            future_horizon=future_horizon.astype(jnp.float32),
            ahead=window(t, self.ahead),
            behind=window(t - self.behind + 1, self.behind),
        )

    def _times(
        self, one: UInt32[Array, " n"], other: UInt32[Array, " n"], length: Int32[Array, " n"]
    ) -> tuple[Int32[Array, " n"], Int32[Array, " n"]]:
        """Step t of the state and step i > t of the goal."""
        if self.uniform_time:
            t = uniform_below(one, length - 1)
            return t, t + 1 + uniform_below(other, length - 1 - t)
        # Two different states, ordered: uniform over pairs, whatever the length.
        first = uniform_below(one, length)
        second = uniform_below(other, length - 1)
        second = second + (second >= first).astype(jnp.int32)
        return jnp.minimum(first, second), jnp.maximum(first, second)

    def shares(
        self, length: int
    ) -> tuple[Float[np.ndarray, " length"], Float[np.ndarray, " length"]]:
        """How probable each step of an episode of so many states is as t, and as i."""
        step = np.arange(length)
        if self.uniform_time:
            state = (step < length - 1) / (length - 1.0)
            after = state[:-1] / (length - 1.0 - step[:-1])
            return state, np.concatenate([[0.0], np.cumsum(after)])
        pairs = length * (length - 1) / 2
        return (length - 1 - step) / pairs, step / pairs


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


def sample_mixture(
    relabel: Relabel,
    parts: tuple[Trajectories, Trajectories],
    key: PRNGKeyArray,
    sizes: tuple[int, int],
) -> Batch:
    """One batch with so many examples of each of two datasets, by the same rule."""
    keys = jax.random.split(key)
    drawn = [relabel.sample(data, k, n) for data, k, n in zip(parts, keys, sizes, strict=True)]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *drawn)


def make_spec(
    data: Dataset,
    relabel: Relabel,
    tolerance: float | None = None,
    *,
    augmented: Dataset | None = None,
    mix: float = 0.0,
    goal_image: bool = False,
) -> Spec:
    """Describe the data to a learner, with the exact moments of what `relabel` will sample.

    The moments are those of the sampling distribution, not of the states: pairs t < i favour
    early states as observations and late ones as goals. With a share `mix` of every batch taken
    from `augmented` data they are those of the mixture.
    """
    if goal_image and not data.has_images:
        raise MerlinError("--goal image: the data has no images; leave the option away.")
    if goal_image and relabel.hindsight_ratio < 1.0:
        raise MerlinError(
            f"hindsight_ratio: {relabel.hindsight_ratio} asks for images of the desired goals, "
            "which the data lacks; set it to 1."
        )
    parts = [(data, 1.0 - mix if augmented else 1.0)]
    parts += [(augmented, mix)] if augmented else []
    observation_parts, goal_parts = [], []
    for part, share in parts:
        observations, goals = _weighted(part, relabel, share)
        observation_parts += observations
        goal_parts += goals
    return Spec(
        observation_shape=data.observations.shape[1:],
        action_low=np.asarray(data.action_low),
        action_high=np.asarray(data.action_high),
        goal_dim=data.achieved_goals.shape[1],
        max_horizon=max(int(part.lengths.max()) for part, _ in parts),
        observation_moments=(
            image_moments(data.observations) if data.has_images else _moments(observation_parts)
        ),
        goal_moments=_moments(goal_parts),
        tolerance=tolerance,
        goal_image=goal_image,
    )


Weighted = list[tuple[Any, np.ndarray]]


def _weighted(data: Dataset, relabel: Relabel, share: float) -> tuple[Weighted, Weighted]:
    """Rows of observations and of goals with how probable each is, `share` in all."""
    ratio = relabel.hindsight_ratio
    if ratio < 1.0 and data.desired_goals is None:
        raise MerlinError(
            f"hindsight_ratio: {ratio} asks for desired goals, which the data lacks; set it to 1."
        )
    lengths = data.lengths
    observation_weight, goal_weight = np.empty((2, len(data.observations)))
    shares = {int(length): relabel.shares(int(length)) for length in np.unique(lengths)}
    for begin, length in zip(data.starts[:-1], lengths, strict=True):
        own = slice(int(begin), int(begin + length))
        observation_weight[own], goal_weight[own] = shares[int(length)]
    each = share / len(data)
    goals = [(data.achieved_goals, ratio * each * goal_weight)]
    if data.desired_goals is not None:
        goals.append((data.desired_goals, np.full(len(data), (1.0 - ratio) * each)))
    return [(data.observations, each * observation_weight)], goals


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
