"""Roll out a policy in recorded transitions instead of a simulator.

The next state is predicted by a linear model of state and action, plus the residual of that model
at the nearest recorded transition. A rehearsal fails when it gets far from all recorded states,
since the data does not say what happens there.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from merlin.data import Dataset
from merlin.policies.base import Policy

MOST_TRANSITIONS = 30_000
"""Transitions that are searched for the nearest one; a random subset if there are more."""
FAR = 2.0
"""A state is far from the data if its distance to the nearest recorded state is more than this
multiple of the 99 % quantile over held-out states."""
RIDGE = 1e-4


class Transitions(eqx.Module):
    """Recorded transitions, standardised, and the changes of state and achieved goal."""

    mean: Float[Array, " state"]
    std: Float[Array, " state"]
    centre: Float[Array, " action"]
    half: Float[Array, " action"]
    state: Float[Array, "rows state"]
    unit: Float[Array, "rows action"]
    linear: Float[Array, "inputs changes"]
    missed: Float[Array, "rows changes"]  # residuals of the linear model
    far: Float[Array, ""]

    def change(
        self, observation: Float[Array, "n state"], action: Float[Array, "n action"]
    ) -> tuple[Float[Array, "n changes"], Bool[Array, " n"]]:
        """The change of state and achieved goal, and whether the state is far from the data."""
        state, unit = (observation - self.mean) / self.std, (action - self.centre) / self.half
        apart = _apart(state, self.state)
        # Means over dimensions, so that neither state nor action dominates.
        both = apart / state.shape[1] + _apart(unit, self.unit) / unit.shape[1]
        nearest = jnp.argmin(both, axis=1)
        change = _inputs(state, unit) @ self.linear + self.missed[nearest]
        return change, jnp.sqrt(apart.min(axis=1)) > self.far


def _inputs(state: Array, unit: Array) -> Array:
    return jnp.concatenate([state, unit, jnp.ones((len(state), 1))], axis=1)


def _apart(one: Float[Array, "n d"], other: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """Squared distances."""
    squares = jnp.sum(one**2, axis=1)[:, None] + jnp.sum(other**2, axis=1)
    return jnp.maximum(squares - 2 * one @ other.T, 0.0)


def transitions(data: Dataset, held_out: Dataset, seed: int = 0) -> Transitions:
    """The transitions to rehearse in; held-out states set the distance that counts as far."""
    rng = np.random.default_rng(seed)
    action = np.sort(rng.permutation(len(data.actions))[:MOST_TRANSITIONS])
    ends = data.starts[1:] - np.arange(1, len(data) + 1)
    row = action + np.searchsorted(ends, action, side="right")
    observations = np.asarray(data.observations, np.float64)
    mean, std = observations.mean(0), observations.std(0)
    std = np.where(std > 1e-6, std, 1.0)
    low, high = np.asarray(data.action_low), np.asarray(data.action_high)
    centre, half = (high + low) / 2, (high - low) / 2
    state = ((observations[row] - mean) / std).astype(np.float32)
    unit = ((data.actions[action] - centre) / half).astype(np.float32)
    both = np.concatenate([data.observations, data.achieved_goals], axis=1)
    changes = (both[row + 1] - both[row]).astype(np.float64)
    inputs = np.concatenate([state, unit, np.ones((len(row), 1))], axis=1).astype(np.float64)
    square = inputs.T @ inputs + RIDGE * len(row) * np.eye(inputs.shape[1])
    linear = np.linalg.solve(square, inputs.T @ changes)
    some = rng.permutation(len(held_out.observations))[:500]
    unseen = ((held_out.observations[np.sort(some)] - mean) / std).astype(np.float32)
    nearest = np.sqrt(np.asarray(_apart(jnp.asarray(unseen), jnp.asarray(state))).min(axis=1))
    single = partial(jnp.asarray, dtype=jnp.float32)
    return Transitions(
        **{"mean": single(mean), "std": single(std)},
        **{"centre": single(centre), "half": single(half)},
        **{"state": single(state), "unit": single(unit)},
        **{"linear": single(linear), "missed": single(changes - inputs @ linear)},
        far=single(FAR * np.quantile(nearest, 0.99)),
    )


@eqx.filter_jit
def rehearse(
    policy: Policy,
    known: Transitions,
    begin: tuple[ArrayLike, ArrayLike],
    goal: ArrayLike,
    scale: ArrayLike,
    radius: ArrayLike,
    steps: int,
    stay: bool = False,
) -> Int[Array, " rows"]:
    """The step at which each rehearsal first gets near its goal; `steps` + 1 if it never does.

    With `stay`, only rehearsals that are near their goal after the last step count. `begin` holds
    the states and achieved goals that rehearsals start from.
    """
    start, at, wanted = jnp.asarray(begin[0]), jnp.asarray(begin[1]), jnp.asarray(goal)
    near = lambda at: jnp.linalg.norm((at - wanted) / scale, axis=1) <= radius  # noqa: E731
    memory = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (len(start), *leaf.shape)), policy.begin()
    )

    def undecided(carry: Any) -> Bool[Array, ""]:
        t, *_, lost, hit = carry
        return (t < steps) & jnp.any(~lost & (stay | (hit > steps)))

    def step(carry: Any) -> Any:
        t, memory, state, at, lost, hit = carry
        keys = jax.random.split(jax.random.fold_in(jax.random.key(0), t), len(state))
        act = jax.vmap(policy.step, (0, 0, 0, None, 0))
        action, memory = act(memory, state, wanted, None, keys)
        change, far = known.change(state, action)
        width = state.shape[1]
        lost = lost | far
        state, at = state + change[:, :width], at + change[:, width:]
        hit = jnp.where((hit > steps) & near(at) & ~lost, t + 1, hit)
        return t + 1, memory, state, at, lost, hit

    hit = jnp.where(near(at), 0, steps + 1)
    first = (jnp.asarray(0), memory, start, at, jnp.zeros(len(start), bool), hit)
    *_, at, lost, hit = jax.lax.while_loop(undecided, step, first)
    return jnp.where(near(at) & ~lost, hit, steps + 1) if stay else hit
