"""Evaluation: fixed episodes, scores by hand, an oracle whose score is known, intervals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import merlin
from merlin.envs.rollout import Rollout
from merlin.errors import MerlinError
from merlin.evaluation.evaluate import FINAL_SEED, Evaluation, evaluate, play, score, summarise
from merlin.evaluation.statistics import bootstrap_interval
from merlin.policies.base import Policy

MAX_RETURN = sum(0.98**t for t in range(50))  # 31.79


class Straight(eqx.Module):
    """At full speed towards the goal: optimal in PointReach, where nothing is in the way."""

    def __call__(self, observation, goal, horizon=None, key=None):
        return jnp.clip(goal - observation, -1.0, 1.0)


class Telltale(Policy):
    """Moves by what it was told: horizon, and noise by its temperature."""

    own: float = 7.0
    temperature: float = eqx.field(static=True, default=0.0)

    def act(self, observation, goal, horizon=None, key=None):
        told = self.own if horizon is None else horizon
        noise = jnp.float32(self.temperature) * jax.random.normal(key, ())
        return jnp.stack([jnp.float32(told) / 100, noise / 100])


def rollout_of(rewards, success):
    rewards, success = np.asarray(rewards, float), np.asarray(success, bool)
    episodes, steps = rewards.shape
    states = np.zeros((episodes, steps + 1, 2), np.float32)
    return Rollout(
        observations=states,
        actions=states[:, 1:],
        achieved_goals=states,
        desired_goals=states[:, 0],
        rewards=rewards,
        success=success,
        lengths=np.full(episodes, steps),
    )


def test_score_by_hand():
    """1 + 0.98^2 = 1.9604 and 0.98 + 0.98^2 = 1.9404; success is that of the last step alone."""
    found = score(
        rollout_of(
            [[1, 0, 1], [0, 1, 1], [0, 0, 0]],
            [[True, True, False], [False, False, True], [False, False, False]],
        )
    )
    np.testing.assert_allclose(found.returns, [1.9604, 1.9404, 0.0])
    np.testing.assert_array_equal(found.success, [0, 1, 0])


def test_the_highest_return_is_that_of_being_there_always():
    found = score(rollout_of(np.ones((1, 50)), np.ones((1, 50))))
    assert found.returns[0] == pytest.approx(31.79, abs=0.005)


def test_the_oracle_scores_what_theory_says():
    scores = evaluate(Straight(), "PointReach", episodes=1000)
    error = scores.returns.std() / np.sqrt(1000)
    assert abs(scores.returns.mean() - 28.68) < 3 * error
    assert error < 0.1
    assert (scores.success == 1.0).all()
    assert scores.returns.max() == pytest.approx(MAX_RETURN)
    assert "28." in str(scores)
    assert "1000 episodes" in str(scores)


def test_an_episode_is_the_same_among_few_and_many(run_folder):
    policy = merlin.load_run(run_folder).policy
    # 130 is more than are played at once, and no multiple of it.
    many = play(policy, "PointReach", episodes=130, temperature=0.5)
    few = play(policy, "PointReach", episodes=3, temperature=0.5)
    late = play(policy, "PointReach", episodes=2, seed=FINAL_SEED + 128, temperature=0.0)
    for field in Rollout._fields:
        np.testing.assert_array_equal(getattr(few, field), getattr(many, field)[:3], field)
    assert many.observations.shape == (130, 51, 2)
    # Episodes are numbered by their seed, wherever one starts counting.
    np.testing.assert_array_equal(late.desired_goals, many.desired_goals[128:])
    np.testing.assert_array_equal(late.observations[:, 0], many.observations[128:, 0])


def test_evaluation_is_deterministic_and_its_seed_matters(run_folder):
    policy = merlin.load_run(run_folder).policy
    one, same, other = (
        evaluate(policy, "PointReach", episodes=20, seed=seed) for seed in (1, 1, 100)
    )
    np.testing.assert_array_equal(one.returns, same.returns)
    assert (one.returns != other.returns).any()


def test_rewards_are_those_of_the_states_reached():
    played = play(Straight(), "PointReach", episodes=20)
    goals = played.desired_goals[:, None]
    near = np.linalg.norm(played.achieved_goals - goals, axis=-1) <= 1.0
    np.testing.assert_array_equal(played.rewards, near[:, 1:].astype(float))
    np.testing.assert_array_equal(played.success, near[:, 1:])
    assert not near[:, 0].all()


@pytest.mark.parametrize(("horizon", "told"), [(None, 7.0), (3, 3.0), (50, 50.0)])
def test_the_horizon_is_passed_on(horizon, told):
    played = play(Telltale(), "PointReach", episodes=2, horizon=horizon)
    np.testing.assert_allclose(played.actions[..., 0], told / 100)
    assert (played.actions[..., 1] == 0).all()


def test_the_temperature_is_passed_on():
    actions = play(Telltale(), "PointReach", episodes=40, temperature=2.0).actions[..., 1]
    # Independent between episodes and steps, and as wide as asked for.
    assert len(np.unique(actions)) == actions.size
    assert actions.std() == pytest.approx(0.02, rel=0.1)
    again = play(Telltale(), "PointReach", episodes=1, seed=5, temperature=2.0).actions
    assert (again[0, :, 1] != actions[0]).all()


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"episodes": 0}, "episodes: 0"),
        ({"horizon": 0}, "horizon: 0"),
        ({"temperature": -1.0}, "temperature: -1"),
        ({"temperature": float("nan")}, "temperature: nan"),
        ({"temperature": float("inf")}, "temperature: inf"),
        ({"task": "PointReech"}, "did you mean PointReach"),
    ],
)
def test_impossible_requests_are_refused(options, fragment):
    with pytest.raises(MerlinError, match=fragment):
        evaluate(Telltale(), **{"task": "PointReach", **options})


def test_a_policy_without_a_temperature_is_given_none():
    with pytest.raises(MerlinError, match="this policy has none"):
        evaluate(Straight(), "PointReach", episodes=1, temperature=1.0)


# Intervals


def test_the_interval_of_one_seed_is_that_of_normal_theory(rng):
    scores = rng.normal(10, 2, (1, 400))
    low, high = bootstrap_interval(scores)
    half = stats.norm.ppf(0.975) * scores.std() / np.sqrt(400)
    assert low == pytest.approx(scores.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(scores.mean() + half, abs=0.1 * half)
    low80, high80 = bootstrap_interval(scores, level=0.8)
    assert (high80 - low80) / (high - low) == pytest.approx(1.2816 / 1.96, rel=0.1)


def test_differences_between_seeds_widen_the_interval(rng):
    noise = rng.normal(0, 1, (5, 100))
    alike, apart = noise, noise + np.arange(5)[:, None]
    width = {
        name: np.ptp(bootstrap_interval(scores))
        for name, scores in {
            "pooled": apart.reshape(1, -1),
            "apart": apart,
            "alike": alike,
            "alike, pooled": alike.reshape(1, -1),
        }.items()
    }
    assert width["apart"] > 3 * width["pooled"]
    assert width["alike"] < 2 * width["alike, pooled"]
    # Seeds alone would spread the mean by the deviation of 0..4 over the root of five.
    assert width["apart"] == pytest.approx(2 * 1.96 * np.sqrt(2) / np.sqrt(5), rel=0.2)


def test_intervals_repeat_and_shrink_to_a_point():
    scores = np.random.default_rng(1).normal(size=(2, 30))
    assert bootstrap_interval(scores) == bootstrap_interval(scores)
    assert bootstrap_interval(np.full((3, 10), 4.0)) == (4.0, 4.0)


def test_summary_is_of_all_seeds():
    one = Evaluation(np.array([1.0, 3.0]), np.array([0.0, 1.0]))
    two = Evaluation(np.array([5.0, 7.0]), np.array([1.0, 1.0]))
    found = summarise([one, two])
    assert found["return"]["mean"] == 4.0
    assert found["success"]["mean"] == 0.75
    for name in ("return", "success"):
        low, high = found[name]["ci95"]
        assert low <= found[name]["mean"] <= high
    assert one.summary()["return"]["mean"] == 2.0
