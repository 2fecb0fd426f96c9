"""Reverse models: what they are trained on, what they learn, and the data that comes of them."""

import math
from dataclasses import replace
from functools import lru_cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from merlin.augment import Rollouts
from merlin.augment.base import find_phi
from merlin.augment.models import (
    make_dynamics,
    make_proposer,
    range_of,
    scales_of,
    sequences,
    window,
)
from merlin.data import Dataset, Episode
from merlin.data.dataset import validate
from merlin.errors import MerlinError

QUICK = {
    "proposer_hidden": (32,),
    "dynamics_width": 16,
    "model_learning_rate": 1e-2,
    "dynamics_learning_rate": 1e-2,
    "dynamics_batch": 32,
    "model_batch": 32,
    "held_out": 0.2,
}
"""Small models, of the same sizes in all tests, so that their programs are compiled once."""
FEW = {"model_epochs": 1, "margin": 9.0, "trajectories": 5, **QUICK}
LOW, HIGH = np.array([-1.0, 0.0]), np.array([1.0, 0.5])


@lru_cache
def drifting(lengths=(20,) * 60, goals=True) -> Dataset:
    """next state = state + action in a plane, beside a dimension that never moves."""
    rng = np.random.default_rng(0)
    episodes = []
    for length in lengths:
        actions = rng.uniform(LOW, HIGH, (length - 1, 2))
        states = rng.normal(size=(1, 2)) + np.cumsum(np.vstack([np.zeros(2), actions]), 0)
        states = np.c_[states[:, 1], states[:, 0], np.full(length, 3.0)]
        episodes.append(Episode(states, actions, states[:, [1, 0]], np.zeros(2) if goals else None))
    return Dataset.from_episodes(episodes, action_low=LOW, action_high=HIGH)


@lru_cache
def made(forward: bool, steps: int | None = None):
    """Whole episodes, or so many steps and the rest of a recorded one."""
    how = {"rollout_steps": steps, "max_error": None}
    return Rollouts(model_epochs=120, forward=forward, **how, **QUICK)(drifting(), seed=0)


# The parts


def test_gru_by_hand():
    """Zero weights but for the candidate's bias b: gates are a half, so h <- (h + tanh b) / 2."""
    data = drifting()
    dynamics = make_dynamics(data, scales_of(data, False), 1, 1, jax.random.key(0))
    gru = jax.tree.map(jnp.zeros_like, dynamics.layers[0])
    bias = jnp.asarray([0.0, 0.0, 0.7], jnp.float32)
    gru = eqx.tree_at(lambda gru: gru.bias, gru, bias)
    # The head tells the memory, and nothing of the inputs.
    head = jax.tree.map(jnp.zeros_like, dynamics.head)
    head = eqx.tree_at(lambda head: head.weight, head, head.weight.at[0].set(1.0))
    dynamics = eqx.tree_at(lambda d: (d.layers[0], d.head), dynamics, (gru, head))
    first, second = np.asarray(dynamics.differences(jnp.zeros((2, 3)), jnp.zeros((2, 2))))[:, 0]
    np.testing.assert_allclose(first, math.tanh(0.7) / 2, rtol=1e-6)
    np.testing.assert_allclose(second, first / 2 + math.tanh(0.7) / 2, rtol=1e-6)


@pytest.mark.parametrize("forward", [False, True])
def test_windows_run_in_the_models_direction(forward):
    data = drifting((4, 6))
    rows = sequences(data, np.array([1]))
    seen = window(rows, jnp.int32(1), 5, jax.random.key(0), forward=forward)
    episode = data.episode(1)
    order = slice(None) if forward else slice(None, None, -1)
    earlier, later = episode.observations[:-1][order], episode.observations[1:][order]
    np.testing.assert_array_equal(seen.states, earlier if forward else later)
    np.testing.assert_array_equal(seen.nexts, later if forward else earlier)
    np.testing.assert_array_equal(seen.actions, episode.actions[order])
    short = window(rows, jnp.int32(0), 5, jax.random.key(0), forward=forward)
    assert short.valid.tolist() == [True] * 3 + [False] * 2
    # Of a longer episode some piece, whole and in order.
    piece = window(rows, jnp.int32(1), 2, jax.random.key(3), forward=forward)
    np.testing.assert_array_equal(piece.nexts[0], piece.states[1])
    assert piece.valid.all()


def test_proposer_loss_by_hand():
    """Nets of zeros: the latent is the prior and costs nothing, the action is the middle."""
    data = drifting()
    proposer = make_proposer(data, scales_of(data, False), (4,), jax.random.key(0))
    zeros = jax.tree.map(jnp.zeros_like, (proposer.encoder, proposer.decoder))
    proposer = eqx.tree_at(lambda p: (p.encoder, p.decoder), proposer, zeros)
    action = jnp.asarray([0.5, 0.5], jnp.float32)  # 0.5 and 1 halves of the range from the middle
    loss = proposer.loss(jnp.zeros(3), action, 1.0, jax.random.key(0))
    np.testing.assert_allclose(loss, (0.5**2 + 1.0**2) / 2, rtol=1e-6)
    # With latents of mean 1 and log deviation ln 2 in all 4 dimensions, and a weight of 3:
    bias = jnp.asarray([1.0] * 4 + [math.log(2)] * 4, jnp.float32)
    proposer = eqx.tree_at(lambda p: p.encoder.layers[-1].bias, proposer, bias)
    loss = proposer.loss(jnp.zeros(3), action, 3.0, jax.random.key(0))
    divergence = 0.5 * (1 + 4 - 1) - math.log(2)
    np.testing.assert_allclose(loss, 0.625 + 3 * divergence, rtol=1e-5)


def test_steps_of_the_dynamics_are_its_differences():
    data = drifting()
    dynamics = make_dynamics(data, scales_of(data, False), 8, 2, jax.random.key(0))
    episode = data.episode(0)
    states, actions = jnp.asarray(episode.observations[:-1]), jnp.asarray(episode.actions)
    scales, memory = dynamics.scales, dynamics.empty()
    for t, change in enumerate(dynamics.differences(states, actions)):
        memory, there = dynamics.step(memory, states[t], actions[t])
        expected = states[t] + change * scales.difference_std + scales.difference.mean
        np.testing.assert_allclose(there, expected, atol=1e-5)


# phi


def test_phi_is_found_in_the_data():
    data = drifting()
    np.testing.assert_array_equal(data.observations[:, find_phi(data)], data.achieved_goals)
    assert find_phi(data) == (1, 0)
    assert find_phi(replace(data, phi=(0, 1))) == (0, 1)


def test_goals_that_are_no_part_of_states_need_phi():
    data = drifting()
    other = replace(data, achieved_goals=data.achieved_goals + np.float32(1))
    with pytest.raises(MerlinError, match=r"phi: .* name the task"):
        Rollouts()(other, seed=0)
    new = Rollouts(**FEW)(replace(other, phi=(1, 0)), seed=0).dataset
    np.testing.assert_array_equal(new.achieved_goals, new.observations[:, [1, 0]])


# The whole


@pytest.mark.parametrize("forward", [False, True])
def test_the_models_learn_the_world_and_its_actions(forward):
    new, report = made(forward)
    assert report["explained_variance"] > 0.95
    # Played forwards, the rollouts obey the world's rule, whichever way they were made.
    steps, errors = [], []
    for e in range(len(new)):
        episode = new.episode(e)
        moved = np.diff(episode.observations[:, [1, 0]], axis=0)
        errors.append(np.abs(moved - episode.actions).mean())
        steps.append(episode.actions)
    assert np.mean(errors) < 0.15
    actions = np.concatenate(steps)
    assert (actions >= LOW - 1e-6).all()
    assert (actions <= HIGH + 1e-6).all()
    # Not always the same action.
    assert (actions.std(0) > 0.1 * (HIGH - LOW)).all()


@pytest.mark.parametrize("forward", [False, True])
def test_rollouts_begin_where_episodes_do(forward):
    data, new = drifting(), made(forward)[0]
    validate(new)
    assert len(new) == len(data)
    end = 0 if forward else -1
    seeds = {tuple(data.episode(e).observations[end]) for e in range(len(data))}
    others = set()
    for e in range(len(new)):
        episode = new.episode(e)
        assert tuple(episode.observations[end]) in seeds
        assert episode.desired_goal is None
        np.testing.assert_array_equal(episode.achieved_goals, episode.observations[:, [1, 0]])
        others.add(tuple(episode.observations[-1 - end]))
    assert len(others) == len(new)
    assert not others & {tuple(row) for row in data.observations}
    assert (new.observations[:, 2] == 3.0).all()


@pytest.mark.parametrize("forward", [False, True])
def test_short_rollouts_branch_off_anywhere_and_the_rest_is_recorded(forward):
    data, new = drifting(), made(forward, 6)[0]
    validate(new)
    recorded = {tuple(row): (e, t) for e in range(60) for t, row in enumerate(data.episode(e)[0])}
    lengths = set()
    for e in range(len(new)):
        episode = new.episode(e)
        length = len(episode.observations)
        lengths.add(length)
        kept = slice(0, length - 6) if forward else slice(6, length)
        assert sum(tuple(row) in recorded for row in episode.observations) == length - 6
        origin, t = recorded[tuple(episode.observations[kept][0])]
        old = data.episode(origin)
        span = slice(t, t + length - 6)
        np.testing.assert_array_equal(episode.observations[kept], old.observations[span])
        moves = slice(kept.start, kept.stop - 1)
        np.testing.assert_array_equal(episode.actions[moves], old.actions[t : t + length - 7])
        # Recorded up to an end of the episode, which it does not outgrow.
        assert t == 0 if forward else t + length - 6 == 20
        assert length <= 20
    assert len(lengths) > 8


def test_only_generated_steps_are_drawn():
    """A recorded step is in the recorded data already; read forwards, rollouts come last."""
    assert [made(forward, 6)[0].drawn_steps for forward in (False, True)] == [6, None]
    assert made(False)[0].drawn_steps is None


def test_generated_steps_are_where_recorded_ones_are_drawn():
    """Of 20 states, the earlier of two drawn uniformly is state t with probability ~ 19 - t."""
    data, n, size = drifting(), 100_000, 3
    rng = np.random.default_rng(0)
    episodes = rng.integers(len(data), size=n)
    rows = Rollouts()._branches(data, episodes, np.full(n, size), rng) - data.starts[episodes]
    assert rows.min() == size
    assert rows.max() == 19
    steps = (rows[:, None] - 1 - np.arange(size)).ravel()
    shares = np.bincount(steps, minlength=19) / len(steps)
    wanted = (19 - np.arange(19)) / 190
    # No rollout outgrows its episode, which moves the weight within the first and last few steps.
    np.testing.assert_allclose(shares[size:-size], wanted[size:-size], atol=0.004)
    np.testing.assert_allclose(shares[:size].sum(), wanted[:size].sum(), atol=0.02)


def test_a_final_state_is_the_desired_goal_if_asked_for():
    new = Rollouts(final_goals=True, **FEW)(drifting(), seed=0).dataset
    np.testing.assert_array_equal(new.desired_goals, new.achieved_goals[new.starts[1:] - 1])


def test_rollouts_stay_in_range_and_are_counted():
    data, rollouts = drifting(), Rollouts(model_epochs=20, margin=0.1, **QUICK)
    proposer, dynamics, _ = rollouts.fit(data, seed=0)
    # A drift that carries those out of range that begin on one side of it, and not the others.
    drifts = dynamics.head.bias.at[0].add(-2.0)
    dynamics = eqx.tree_at(lambda d: d.head.bias, dynamics, drifts)
    states, _, lengths, report = rollouts.roll_out(data, proposer, dynamics, 10, seed=0, quiet=True)
    low, high = data.observations.min(0), data.observations.max(0)
    slack = 0.1 * (high - low) + 1e-5
    assert ((states >= low - slack) & (states <= high + slack)).all()
    assert report["trajectories"] == len(lengths)
    assert len(states) == lengths.sum()
    assert 0 < report["dropped_outside"] < 1
    assert report["dropped"] == report["dropped_outside"]
    assert report["dropped_not_finite"] == 0


@pytest.mark.parametrize(
    ("explained", "limit", "steps"),
    [
        *((0.89, 1.0, 9), (0.26, 1.0, 1), (-3.0, 1.0, 1), (0.75, 1.0, 4), (0.75, 2.0, 8)),
        *((0.99, 1.0, 10), (1.0, 1.0, 10), (None, 1.0, 10), (0.26, None, 10)),
    ],
)
def test_rollouts_are_as_long_as_the_model_is_good(explained, limit, steps):
    """By hand: 0.25 unexplained in each step are 1 after 4 steps. Without a limit, 10 steps."""
    rollouts = Rollouts(max_error=limit)
    assert rollouts._trusted_steps(drifting(), explained) == steps


def test_an_epoch_of_the_dynamics_sees_every_step():
    """By hand: windows of 6 steps cover 19, 19 and 6 steps with 4, 4 and 1; twice 9 in tens."""
    rollouts = Rollouts(model_epochs=2, dynamics_batch=10)
    assert rollouts._dynamics_updates(np.array([19, 19, 6]), 6) == 2
    limited = replace(rollouts, model_epochs=200, dynamics_max_updates=50)
    assert limited._dynamics_updates(np.array([19, 19, 6]), 6) == 50


@pytest.mark.parametrize(("decay", "last"), [(True, 0.0), (False, 1e-3)])
def test_learning_rates_decay_to_zero(decay, last):
    schedule = Rollouts(decay=decay)._schedule(1e-3, 100)
    assert (schedule(100) if decay else schedule) == pytest.approx(last)


def test_a_poor_model_makes_short_rollouts():
    """After one epoch it explains little, and the report says how long rollouts were."""
    report = Rollouts(**FEW)(drifting(), seed=0).report
    assert report["explained_variance"] < 0.5
    assert report["rollout_steps"] == 1


def test_the_seed_decides():
    one, same, other = (Rollouts(**FEW)(drifting(), seed=seed) for seed in (1, 1, 2))
    assert one.dataset.fingerprint() == same.dataset.fingerprint()
    assert one.report == same.report
    assert one.dataset.fingerprint() != other.dataset.fingerprint()


def test_episodes_of_many_lengths():
    data = drifting((2, 3, 150, 7))
    how = FEW | {"margin": 50.0, "trajectories": 40, "max_error": None}
    new = Rollouts(rollout_steps=None, **how)(data, seed=0).dataset
    assert set(new.lengths) == {2, 3, 150, 7}
    short = Rollouts(rollout_steps=2, **how)(data, seed=0).dataset
    assert {2, 3} < set(short.lengths)
    assert short.lengths.max() <= 150


def test_noise_on_states_is_part_of_what_is_to_be_undone():
    """A model that predicts no change errs by the noise as well: by 2 squared in such units."""
    data = drifting()
    rows, scales = sequences(data, np.arange(len(data))), scales_of(data, forward=False)
    model = make_dynamics(data, scales, 4, 1, jax.random.key(0))
    model = jax.tree.map(jnp.zeros_like, model)
    model = eqx.tree_at(lambda m: m.scales, model, scales)
    losses = []
    for noise in (0.0, 2.0):
        rollouts = Rollouts(state_noise=noise, dynamics_batch=64)
        loss = jax.jit(partial(rollouts._dynamics_loss, model, rows, 10))
        losses.append(np.mean([loss(jax.random.key(seed)) for seed in range(8)]))
    moving = np.mean(np.asarray(scales.difference_std) > 0)
    assert 0 < moving < 1  # what never changes gets no noise
    np.testing.assert_allclose(losses[1] - losses[0], 4.0 * moving, rtol=0.1)


def test_what_hardly_moves_may_be_missed_by_what_no_policy_sees():
    """The first dimension moves by 2, the second by a micrometre: it counts as one of 0.1."""
    rows = np.array([[-1.0, 3.0], [1.0, 3.000001]], np.float32)
    low, high = range_of(rows, margin=0.05)
    np.testing.assert_allclose(low, [-1.1, 2.995], atol=1e-5)
    np.testing.assert_allclose(high, [1.1, 3.005], atol=1e-5)


def test_a_model_that_runs_away_is_said_so():
    data = drifting()
    wild = replace(data, observations=data.observations * np.float32(1e-3))
    wild = replace(wild, achieved_goals=wild.observations[:, [1, 0]])
    rollouts = Rollouts(model_epochs=1, trajectories=4, margin=0.0, latent_scale=0.0, **QUICK)
    proposer, dynamics, _ = rollouts.fit(wild, seed=0)
    for bias in (1e6, jnp.nan):
        worse = eqx.tree_at(lambda d: d.head.bias, dynamics, jnp.full(3, bias, jnp.float32))
        with pytest.raises(MerlinError, match="all 40 left the range"):
            rollouts.roll_out(wild, proposer, worse, 10, seed=0, quiet=True)


@pytest.mark.parametrize(
    ("values", "fragment"),
    [
        ({"dynamics_width": 0}, "start at 1"),
        ({"proposer_hidden": ()}, "start at 1"),
        ({"model_learning_rate": 0.0}, "model_learning_rate"),
        ({"dynamics_learning_rate": 0.0}, "dynamics_learning_rate"),
        ({"kl_weight": -1.0}, "kl_weight"),
        ({"state_noise": -1.0}, "state_noise"),
        ({"held_out": 1.0}, "held_out"),
    ],
)
def test_impossible_settings_are_refused(values, fragment):
    with pytest.raises(MerlinError, match=fragment):
        Rollouts(**values)
