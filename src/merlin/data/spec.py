"""The spec of a dataset: sizes, bounds and moments, known to a learner before training."""

from typing import Any

import numpy as np
from jaxtyping import Float

from merlin.data.dataset import ROWS_AT_ONCE, Dataset
from merlin.data.goals import Sampling
from merlin.data.images import image_moments
from merlin.errors import MerlinError
from merlin.types import Moments, Spec


def make_spec(
    data: Dataset,
    sampling: Sampling,
    tolerance: float | None = None,
    *,
    augmented: Dataset | None = None,
    mix: float = 0.0,
    goal_image: bool = False,
) -> Spec:
    """Describe the data to a learner, with the exact moments of what `sampling` draws.

    The moments are those of the sampling distribution, not of the stored states: pairs t < i favour
    early states as observations and late ones as goals. All goal distributions have equal weight.
    If a fraction `mix` of every minibatch comes from `augmented` data, the moments are those of the
    mixture.
    """
    if goal_image and not data.has_images:
        raise MerlinError("goal image: the data has no images; leave it out.")
    if goal_image and sampling.desired > 0.0:
        raise MerlinError(
            f"hindsight_ratio: {1.0 - sampling.desired:g} asks for images of the desired goals, "
            "which the data lacks; set it to 1."
        )
    parts = [(data, 1.0 - mix if augmented else 1.0)]
    parts += [(augmented, mix)] if augmented else []
    observation_parts, goal_parts = [], []
    for part, share in parts:
        rule = sampling.for_data(part is data or part.desired_goals is not None)
        observations, goals = _weighted(part, rule, share)
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


def _weighted(data: Dataset, sampling: Sampling, share: float) -> tuple[Weighted, Weighted]:
    """Rows of observations and of goals with their probabilities, which sum to `share`."""
    if sampling.desired > 0.0 and data.desired_goals is None:
        raise MerlinError(
            f"hindsight_ratio: {1.0 - sampling.desired:g} asks for desired goals, "
            "which the data lacks; set it to 1."
        )
    lengths, distributions = data.lengths, list(sampling.goals.values())
    each = share * sampling.episode_shares(lengths, data.drawn_steps)
    state_weight, goal_weight = np.empty((2, len(data.observations)))
    within = {
        int(length): _shares(sampling, int(length), data.drawn_steps)
        for length in np.unique(lengths)
    }
    for begin, length, weight in zip(data.starts[:-1], lengths, each, strict=True):
        state, goal = within[int(length)]
        own = slice(int(begin), int(begin + length))
        state_weight[own], goal_weight[own] = weight * state, weight * goal
    anywhere = np.mean([goals.random for goals in distributions])
    goal_weight += share * anywhere / len(goal_weight)
    parts = [(data.achieved_goals, goal_weight)]
    if data.desired_goals is not None:
        meant = np.mean([goals.desired for goals in distributions])
        parts.append((data.desired_goals, meant * each))
    return [(data.observations, state_weight)], parts


def _shares(
    sampling: Sampling, length: int, drawn_steps: int | None
) -> tuple[Float[np.ndarray, " length"], Float[np.ndarray, " length"]]:
    """Probability of each step of an episode as t, and as a future or current goal."""
    state = sampling.step_shares(length, drawn_steps)
    goals = [
        wanted.future * wanted.offsets.shares(state) + wanted.current * state
        for wanted in sampling.goals.values()
    ]
    return state, np.mean(goals, axis=0)


def _moments(parts: list[tuple[np.ndarray, np.ndarray]]) -> Moments:
    """Weighted mean and deviation over the rows of several arrays, in chunks and in float64."""
    shape = parts[0][0].shape[1:]
    mean, square = np.zeros(shape), np.zeros(shape)
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    for array, weight in parts:
        for begin in range(0, len(array), ROWS_AT_ONCE):
            rows = np.asarray(array[begin : begin + ROWS_AT_ONCE], np.float64)
            w = weight[begin : begin + ROWS_AT_ONCE]
            mean += np.tensordot(w, rows, axes=1)
            square += np.tensordot(w, rows**2, axes=1)
            if w.any():
                drawn = rows[w > 0.0]
                low, high = np.minimum(low, drawn.min(0)), np.maximum(high, drawn.max(0))
    std = np.sqrt(np.maximum(square - mean**2, 0.0))
    extent = np.maximum(high - mean, mean - low)
    return Moments(*(array.astype(np.float32) for array in (mean, std, extent)))
