"""Measure how well a policy predicts the actions in held-out episodes."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from merlin.data import Dataset
from merlin.data.images import reader
from merlin.policies.base import Policy
from merlin.policies.goal import GoalPolicy
from merlin.policies.images import SeeingPolicy

PAIRS = 2048
"""Number of recorded steps that are predicted."""
MOST_STEPS = 100
"""Goals are achieved goals of the same episode, at most this many steps later."""
ROWS = 256
"""Rows per call of the policy."""


class Pairs(NamedTuple):
    """Recorded steps, each with a goal that was achieved later in the same episode."""

    state: Int[np.ndarray, " pairs"]  # rows of the dataset
    goal: Int[np.ndarray, " pairs"]
    action: Int[np.ndarray, " pairs"]
    episode: Int[np.ndarray, " pairs"]

    @property
    def horizon(self) -> Int[np.ndarray, " pairs"]:
        """Steps from the state to the goal."""
        return self.goal - self.state


@dataclass(frozen=True)
class Prediction:
    """Means over held-out steps, after a number of updates."""

    action_error: float  # absolute, relative to half the range of each action
    log_likelihood: float | None  # None if the policy defines no distribution
    step: int


def draw_pairs(data: Dataset, most: int, limit: int, seed: int = 0) -> Pairs:
    """Draw steps without replacement, each with a goal uniformly 1 to `limit` steps later."""
    rng = np.random.default_rng(seed)
    action = np.sort(rng.permutation(len(data.actions))[:most])
    ends = data.starts[1:] - np.arange(1, len(data) + 1)  # of each episode's actions
    episode = np.searchsorted(ends, action, side="right")
    state = action + episode
    left = np.minimum(data.starts[episode + 1] - 1 - state, limit)
    return Pairs(state, state + rng.integers(1, left + 1), action, episode)


def longest_horizon(policy: Policy) -> int:
    """The longest horizon the policy was trained for, which limits the distance of pairs."""
    inner = policy.policy if isinstance(policy, SeeingPolicy) else policy
    longest = int(inner.max_period) if isinstance(inner, GoalPolicy) else MOST_STEPS
    return max(1, min(MOST_STEPS, longest))


def told_goals(data: Dataset, rows: Int[np.ndarray, " rows"], goal_image: bool) -> np.ndarray:
    """Achieved goals in the form that the policy takes: vectors or images."""
    return reader(data.observations if goal_image else data.achieved_goals)(rows)


def ask(
    policy: Policy,
    data: Dataset,
    pairs: Pairs,
    goal_image: bool = False,
    goal: Int[np.ndarray, " pairs"] | None = None,
) -> Any:
    """The policy's actions and the log densities of the recorded ones, None if there are none.

    The policy gets the true number of steps to the goal, if it takes a horizon. With `goal`, it
    gets the goals of these rows instead of the true ones.
    """
    recorded = data.actions[pairs.action]
    seen, goals = (
        reader(data.observations)(pairs.state),
        told_goals(data, pairs.goal if goal is None else goal, goal_image),
    )
    horizon = pairs.horizon.astype(np.float32)
    keys = jax.random.split(jax.random.key(0), len(horizon))
    return jax.tree.map(np.asarray, _ask(policy, seen, goals, horizon, recorded, keys))


@eqx.filter_jit
def _ask(
    policy: Policy,
    observations: ArrayLike,
    goals: ArrayLike,
    horizons: ArrayLike,
    actions: ArrayLike,
    keys: PRNGKeyArray,
) -> tuple[Float[Array, "rows action"], Float[Array, " rows"] | None]:
    def one(row: tuple[Array, ...]) -> tuple[Array, Array | None]:
        observation, goal, horizon, action, key = row
        return (
            policy.act(observation, goal, horizon, key),
            policy.log_prob(observation, goal, action, horizon),
        )

    rows = (observations, goals, horizons, actions, keys)
    return jax.lax.map(one, jax.tree.map(jnp.asarray, rows), batch_size=ROWS)


def action_error(
    data: Dataset, pairs: Pairs, actions: Float[np.ndarray, "pairs action"]
) -> Float[np.ndarray, " pairs"]:
    """Mean absolute error of each row, relative to half the range of each action."""
    half = (np.asarray(data.action_high) - np.asarray(data.action_low)) / 2
    return np.mean(np.abs(actions - data.actions[pairs.action]) / half, axis=1)


def predict(policy: Policy, data: Dataset, step: int, goal_image: bool = False) -> Prediction:
    """Evaluate a policy on a fixed set of held-out steps."""
    pairs = draw_pairs(data, PAIRS, longest_horizon(policy))
    actions, likely = ask(policy, data, pairs, goal_image)
    return Prediction(
        action_error=float(action_error(data, pairs, actions).mean()),
        log_likelihood=None if likely is None else float(likely.mean()),
        step=step,
    )
