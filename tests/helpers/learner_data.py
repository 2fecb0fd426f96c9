"""A world whose answers are known, and batches by hand, for the tests of learners."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from merlin.data import Dataset, Episode
from merlin.data.spec import make_spec
from merlin.learners import Learner
from merlin.types import Batch, DrawnGoals

SYMMETRIC = (np.array([-1.0, -1.0]), np.array([1.0, 1.0]))
ASYMMETRIC = (np.array([-0.5, -0.2]), np.array([2.0, 0.6]))
TOLERANCE = 0.3
"""What the walks count as reached: a third of a step."""


@lru_cache
def random_walks(asymmetric: bool = False) -> Dataset:
    """The plane where next state = state + action, walked at random; goals are reached."""
    rng = np.random.default_rng(7)
    low, high = ASYMMETRIC if asymmetric else SYMMETRIC
    episodes = []
    for _ in range(400):
        actions = rng.uniform(low, high, (5, 2))
        states = rng.normal(0, 1, (1, 2)) + np.cumsum(np.vstack([np.zeros(2), actions]), 0)
        episodes.append(Episode(states, actions, states, states[-1]))
    return Dataset.from_episodes(episodes, action_low=low, action_high=high)


@lru_cache
def fresh(learner: Learner, tolerance: float = TOLERANCE) -> Any:
    """A learner's first state, for walks within bounds that are not symmetric."""
    spec = make_spec(random_walks(asymmetric=True), learner.sampling, tolerance)
    return learner.init(jax.random.key(0), spec)


def floats(*values: Any) -> jax.Array:
    return jnp.asarray(values, jnp.float32)


def tiny_batch(actions, **fields) -> Batch:
    """A batch of zeros with one distribution of goals; fields are the batch's or the goals'."""
    n = len(actions)
    zeros = jnp.zeros((n, 2), jnp.float32)
    blank = Batch(
        observation=zeros,
        action=jnp.asarray(actions, jnp.float32),
        next_observation=zeros,
        achieved_goal=zeros,
        next_achieved_goal=zeros,
        first_observation=zeros,
        goals={},
    )
    drawn = DrawnGoals(
        goal=zeros,
        observation=zeros,
        horizon=jnp.ones(n, jnp.float32),
        reached=jnp.zeros(n, bool),
        relabelled=jnp.ones(n, bool),
    )
    own = {name: fields.pop(name) for name in drawn._fields if name in fields}
    return blank._replace(goals={"policy": drawn._replace(**own)}, **fields)


def rows(n, dim=2, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(0, 1.5, (n, dim)), jnp.float32)
