"""Settings of the peers, what they refuse, and that every method resumes exactly."""

import dataclasses

import jax
import numpy as np
import pytest

import merlin
from helpers.learner_data import fresh, random_walks
from helpers.learner_probe import small
from merlin.data.goals import Goals
from merlin.data.spec import make_spec
from merlin.errors import MerlinError
from merlin.learners import GCSL, LEARNERS, WGCSL, ActionableModels, GoFAR
from merlin.learners.registry import configure

PEERS = ("gcsl", "wgcsl", "am", "gofar")
CRITICS = ("wgcsl", "am", "g-dql")


def test_defaults_presets_and_relabelling():
    assert all(LEARNERS[name]().sampling.steps == "episodes" for name in PEERS)
    ratios = [LEARNERS[name]().hindsight_ratio for name in PEERS]
    assert ratios == [1.0, 1.0, 1.0, 0.0]
    # What was tuned for Merlin is not for them.
    tuned = {"hindsight_ratio": 0.2, "horizon": 20}
    assert all(configure(name, {}, tuned).learner == LEARNERS[name]() for name in PEERS)
    assert configure("wgcsl", preset="gofar-release").learner == WGCSL(best_percentile=0.0)
    awgcsl = configure("wgcsl", preset="awgcsl").learner
    assert awgcsl.sampling.goals["policy"] == Goals(future=0.8, desired=1.0 - 0.8)
    released = configure("am", preset="gofar-release").learner
    assert released == ActionableModels(released_chaining=True)
    assert configure("gcsl", {"horizon": "1"}).learner.horizon == 1


@pytest.mark.parametrize(
    ("method", "settings", "fragment"),
    [
        (GCSL, {"horizon": 0}, "horizon: 0"),
        (GCSL, {"hidden": ()}, "sizes start at 1"),
        (GCSL, {"hindsight_ratio": -1.0}, "hindsight_ratio"),
        (WGCSL, {"hindsight_ratio": 0.0}, "nothing to clone"),
        (WGCSL, {"best_percentile": 100.0}, "best_percentile"),
        (WGCSL, {"percentile_step": -0.1}, "percentile_step"),
        (WGCSL, {"max_weight": 0.0}, "max_weight"),
        (WGCSL, {"discount": 1.0}, "discount: 1.0"),
        (WGCSL, {"tolerance": -1.0}, "tolerance: -1.0"),
        (ActionableModels, {"target_keep": 1.0}, "target_keep: 1.0"),
        (ActionableModels, {"candidates": 0}, "candidates: 0"),
        (ActionableModels, {"chained": 1.1}, "chained"),
        (ActionableModels, {"conservatism": -1.0}, "conservatism"),
        (GoFAR, {"divergence": "js"}, "divergence: 'js'"),
        (GoFAR, {"gradient_penalty": -1.0}, "gradient_penalty"),
        (GoFAR, {"discriminator_learning_rate": 0.0}, "discriminator_learning_rate"),
        (GoFAR, {"learning_rate": -1.0}, "learning_rate"),
    ],
)
def test_impossible_settings_are_refused(method, settings, fragment):
    with pytest.raises(MerlinError, match=fragment):
        method(**settings)


@pytest.mark.parametrize("name", CRITICS)
def test_a_critic_must_be_told_what_reached_means(name, tmp_path):
    learner, data = LEARNERS[name](hidden=(8,), batch_size=16), random_walks()
    with pytest.raises(MerlinError, match=r"tolerance=0\.05"):
        merlin.train(learner, data, updates=2, out=tmp_path / "run")
    assert not (tmp_path / "run").exists(), "a run that cannot start leaves nothing"
    set_ = dataclasses.replace(learner, tolerance=0.3)
    merlin.train(set_, data, updates=2, out=tmp_path / "run")
    # Acting with a policy does not need it.
    policy = merlin.load_run(tmp_path / "run").policy
    assert policy(np.zeros(2), np.ones(2), key=jax.random.key(0)).shape == (2,)


def test_the_tolerance_set_goes_over_that_of_the_task():
    assert fresh(WGCSL(hidden=(8,)), 0.4).actor_critic.tolerance == np.float32(0.4)
    assert fresh(WGCSL(hidden=(8,), tolerance=0.1), 0.4).actor_critic.tolerance == np.float32(0.1)


def test_gofar_needs_desired_goals_or_hindsight():
    data = dataclasses.replace(random_walks(), desired_goals=None)
    with pytest.raises(MerlinError, match="asks for desired goals"):
        make_spec(data, GoFAR().sampling)
    make_spec(data, GoFAR(hindsight_ratio=1.0).sampling)


@pytest.mark.more
@pytest.mark.parametrize("name", LEARNERS)
def test_every_method_resumes_exactly(name, point_data, small_hazard, tmp_path):
    """From a checkpoint on disk, with everything that its updates depend on."""
    known = {field.name for field in dataclasses.fields(LEARNERS[name])}
    wanted = {"hidden": (16, 16), "batch_size": 32, "tolerance": 1.0}
    wanted |= {"channels": 8, "multipliers": (1, 2)}  # of a U-Net that compiles quickly
    sized = {key: value for key, value in wanted.items() if key in known}
    learner = dataclasses.replace(small(name), **sized)
    data = dataclasses.replace(point_data, task=None)  # nothing to play in: that is tested already
    for run, updates in (("whole", 20), ("parts", 10), ("parts", 20)):
        merlin.train(learner, data, updates=updates, out=tmp_path / run, resume=run == "parts")
    whole, parts = (tmp_path / run / "seed-0/policy.safetensors" for run in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()
