"""The theorem by enumeration: cloning maximises a lower bound on the goal's log-likelihood.

Small random Markov decision processes in which every trajectory can be listed, so likelihoods,
bounds and the cloned policy are exact sums. docs/theory.md has the derivation and these names.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from merlin.data import Dataset
from merlin.data.dataset import Episode
from merlin.data.goals import hindsight

STATES, ACTIONS, LENGTH = 4, 3, 4
GOALS = (1, 3)
KINDS = ("injective", "deterministic", "stochastic")
SEEDS = range(3)


class Process(NamedTuple):
    """A Markov decision process and all its trajectories that end in a goal."""

    dynamics: np.ndarray  # (state, action, next state)
    start: np.ndarray  # distribution of first states
    states: np.ndarray  # (trajectories, LENGTH)
    actions: np.ndarray  # (trajectories, LENGTH - 1)
    q: np.ndarray  # how probable each trajectory is in the data


@functools.cache
def process(kind: str, seed: int, goals: tuple[int, ...] = GOALS) -> Process:
    rng = np.random.default_rng((KINDS.index(kind), seed))
    dynamics = rng.dirichlet(np.full(STATES, 0.7), (STATES, ACTIONS))
    if kind == "deterministic":  # two actions may lead to the same state
        dynamics = np.eye(STATES)[rng.integers(STATES, size=(STATES, ACTIONS))]
    elif kind == "injective":  # no two do
        shifts = np.stack([rng.permutation(STATES)[:ACTIONS] for _ in range(STATES)])
        dynamics = np.eye(STATES)[(np.arange(STATES)[:, None] + shifts) % STATES]
    behaviour = rng.dirichlet(np.ones(ACTIONS), STATES)
    start = rng.dirichlet(np.ones(STATES))
    listed = np.indices([STATES] * LENGTH + [ACTIONS] * (LENGTH - 1)).reshape(2 * LENGTH - 1, -1).T
    states, actions = listed[:, :LENGTH], listed[:, LENGTH:]
    q = start[states[:, 0]]
    for t in range(LENGTH - 1):
        q = q * behaviour[states[:, t], actions[:, t]]
        q = q * dynamics[states[:, t], actions[:, t], states[:, t + 1]]
    kept = (q > 0) & np.isin(states[:, -1], goals)
    return Process(dynamics, start, states[kept], actions[kept], q[kept] / q[kept].sum())


def clone(world: Process, horizon: bool) -> np.ndarray:
    """Maximum likelihood by counting: (step, state, action), equal steps without the horizon."""
    counts = np.zeros((LENGTH - 1, STATES, ACTIONS))
    for t in range(LENGTH - 1):
        np.add.at(counts[t], (world.states[:, t], world.actions[:, t]), world.q)
    if not horizon:
        counts[:] = counts.sum(axis=0)
    total = counts.sum(axis=2, keepdims=True)
    return np.where(total > 0, counts / np.where(total > 0, total, 1.0), 1.0 / ACTIONS)


# The functionals are differentiated with JAX and otherwise evaluated with NumPy, which is quicker.


def library(policy):
    return np if isinstance(policy, np.ndarray) else jnp


def transition(world: Process, policy):
    """(step, state, next state) under a policy."""
    return library(policy).einsum("tsa,san->tsn", policy, world.dynamics)


def log_likelihood(world: Process, policy, start=None):
    """E log p(s_T) over the data's last states."""
    reached = world.start if start is None else start
    for step in transition(world, policy):
        reached = reached @ step
    xp, last = library(policy), _last(world)
    return xp.sum(last * xp.log(xp.where(last > 0, reached, 1.0)))


def state_bound(world: Process, policy, start=None):
    """The paper's bound: Jensen over the states on the way to s_T."""
    paths, index = np.unique(world.states, axis=0, return_inverse=True)
    q = np.bincount(index.ravel(), world.q)
    start = world.start if start is None else start
    terms = np.log(start[paths[:, 0]]) - np.log(q / _last(world)[paths[:, -1]])
    for t, step in enumerate(transition(world, policy)):
        terms = terms + library(policy).log(step[paths[:, t], paths[:, t + 1]])
    return (q * terms).sum()


def action_bound(world: Process, policy):
    """Jensen over states and actions on the way; it depends on the policy by cloning's loss."""
    states, actions, q = world.states, world.actions, world.q
    terms = np.log(world.start[states[:, 0]]) - np.log(q / _last(world)[states[:, -1]])
    for t in range(LENGTH - 1):
        here, action, there = states[:, t], actions[:, t], states[:, t + 1]
        terms = terms + library(policy).log(policy[t, here, action])
        terms = terms + np.log(world.dynamics[here, action, there])
    return (q * terms).sum()


def _last(world: Process) -> np.ndarray:
    return np.bincount(world.states[:, -1], world.q, minlength=STATES)


def others(world: Process, horizon: bool, seed: int) -> list[np.ndarray]:
    """Policies to compare with: anywhere, and near the cloned one."""
    rng = np.random.default_rng(seed)
    cloned = clone(world, horizon)
    found = []
    for width in (0.2, 1.0, 5.0) * 4:
        anywhere = rng.dirichlet(np.full(ACTIONS, width), (LENGTH - 1, STATES))
        if not horizon:
            anywhere[:] = anywhere[0]
        anywhere = 0.999 * anywhere + 0.001 / ACTIONS  # so that no logarithm is infinite
        found += [anywhere, *(cloned + share * (anywhere - cloned) for share in (0.3, 0.03, 0.003))]
    return found


def ascend(world: Process, bound, horizon: bool, seed: int = 0) -> float:
    """The highest value of a bound that gradient ascent over all policies finds."""
    shape = (LENGTH - 1 if horizon else 1, STATES, ACTIONS)
    logits = jax.random.normal(jax.random.key(seed), shape)

    def value(logits):
        policy = jax.nn.softmax(logits, axis=-1)
        return bound(world, jnp.broadcast_to(policy, (LENGTH - 1, STATES, ACTIONS)))

    optimiser = optax.adam(0.1)

    def step(carry, _):
        logits, moments = carry
        found, gradient = jax.value_and_grad(value)(logits)
        change, moments = optimiser.update(-gradient, moments)
        return (logits + change, moments), found

    start = (logits, optimiser.init(logits))
    return float(jax.jit(lambda x: jax.lax.scan(step, x, None, 600))(start)[1].max())


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_both_bounds_are_below_the_log_likelihood(kind, seed):
    world = process(kind, seed)
    for policy in (*others(world, True, seed), *others(world, False, seed)):
        coarse, fine = action_bound(world, policy), state_bound(world, policy)
        assert coarse <= fine + 1e-12
        assert fine <= log_likelihood(world, policy) + 1e-12


@pytest.mark.parametrize("horizon", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_cloning_maximises_the_bound_over_states_and_actions(kind, seed, horizon):
    """Whatever the dynamics; what a policy loses is its mean divergence from the cloned one."""
    world = process(kind, seed)
    cloned = clone(world, horizon)
    best = action_bound(world, cloned)
    for policy in others(world, horizon, seed):
        here, actions = world.states[:, :-1], world.actions
        steps = np.arange(LENGTH - 1)
        ratio = np.log(cloned[steps, here, actions] / policy[steps, here, actions])
        divergence = (world.q[:, None] * ratio).sum()
        assert divergence > 0
        assert action_bound(world, policy) == pytest.approx(best - divergence, abs=1e-9)


@pytest.mark.parametrize("horizon", [True, False])
@pytest.mark.parametrize("kind", ["injective", "deterministic"])
@pytest.mark.parametrize("seed", SEEDS)
def test_cloning_maximises_the_papers_bound_where_dynamics_are_deterministic(kind, seed, horizon):
    world = process(kind, seed)
    best = state_bound(world, clone(world, horizon))
    for policy in others(world, horizon, seed):
        assert state_bound(world, policy) <= best + 1e-12


@pytest.mark.parametrize(
    ("bound", "kind", "horizon"),
    [
        (action_bound, "stochastic", False),
        (state_bound, "deterministic", True),
    ],
)
def test_gradient_ascent_comes_to_the_cloned_policys_value(bound, kind, horizon):
    world = process(kind, 0)
    best = float(bound(world, clone(world, horizon)))
    assert best - 1e-3 < ascend(world, bound, horizon) <= best + 1e-9


@pytest.mark.parametrize("kind", ["injective", "deterministic"])
@pytest.mark.parametrize("seed", SEEDS)
def test_told_the_horizon_the_bound_is_tight(kind, seed):
    """Started where the data starts, the cloned policy retraces it: p(s_T) is the data's."""
    world = process(kind, seed)
    start = np.bincount(world.states[:, 0], world.q, minlength=STATES)
    last = _last(world)
    entropy = -np.sum(last * np.log(np.where(last > 0, last, 1.0)))
    told, untold = clone(world, horizon=True), clone(world, horizon=False)
    assert state_bound(world, told, start) == pytest.approx(-entropy)
    assert log_likelihood(world, told, start) == pytest.approx(-entropy)
    # Not told, it mixes what should be done at different distances: there is a gap.
    assert state_bound(world, untold, start) <= log_likelihood(world, untold, start)
    assert state_bound(world, untold, start) < -entropy - 1e-3


@pytest.mark.parametrize("seed", SEEDS)
def test_one_goal_is_reached_for_certain_and_not_without_the_horizon(seed):
    world = process("injective", seed, goals=(2,))
    start = np.bincount(world.states[:, 0], world.q, minlength=STATES)
    assert log_likelihood(world, clone(world, True), start) == pytest.approx(0.0, abs=1e-12)
    assert log_likelihood(world, clone(world, False), start) < -0.05


def test_where_the_papers_step_for_stochastic_dynamics_fails():
    """Trajectories picked by how they ended were lucky, and no policy can clone luck.

    So other policies than the cloned one have a higher bound over states. Of trajectories that
    were not picked the cloned one is the best again.
    """
    world = process("stochastic", 1)
    cloned = float(state_bound(world, clone(world, True)))
    assert ascend(world, state_bound, True) > cloned + 0.05
    everything = process("stochastic", 1, goals=tuple(range(STATES)))
    best = state_bound(everything, clone(everything, True))
    assert best - 1e-3 < ascend(everything, state_bound, True) <= best + 1e-9


def test_the_librarys_sampler_shows_a_learner_these_probabilities():
    """Counting the examples of Merlin's rule for one goal and horizon gives the cloned policy.

    The corollary: hindsight picks the parts of trajectories that end in each goal. The behaviour
    does not change with time, so the distribution of an action depends on what is left only.
    """
    rng = np.random.default_rng(0)
    following = np.array([[1, 2], [2, 0], [0, 1]])  # (state, action) to state
    behaviour = np.array([[0.8, 0.2], [0.5, 0.5], [0.3, 0.7]])
    states, actions = [rng.integers(3, size=10_000)], []
    for _ in range(5):
        actions.append((rng.uniform(size=10_000) > behaviour[states[-1], 0]).astype(int))
        states.append(following[states[-1], actions[-1]])
    path, taken = np.stack(states, 1), np.stack(actions, 1)
    data = Dataset.from_episodes(
        Episode(p[:, None], a[:, None] * 2.0 - 1.0, p[:, None])
        for p, a in zip(path, taken, strict=True)
    )
    batch = hindsight(1.0, "pairs").draw(data.on_device(), jax.random.key(0), 100_000)
    seen, goal, horizon = (
        np.asarray(x).astype(int).ravel() for x in (batch.observation, batch.goal, batch.horizon)
    )
    second = np.asarray(batch.action).ravel() > 0
    step = np.einsum("sa,san->sn", behaviour, np.eye(3)[following])
    for h in (1, 2, 3):
        ways = np.linalg.matrix_power(step, h - 1)  # (state, state after h - 1 steps)
        for s in range(3):
            for g in range(3):
                weight = behaviour[s] * ways[following[s], g]
                here = (seen == s) & (goal == g) & (horizon == h)
                assert here.any() == (weight.sum() > 0)
                if here.any():
                    share = weight[1] / weight.sum()
                    assert second[here].mean() == pytest.approx(share, abs=0.03), (s, g, h)
