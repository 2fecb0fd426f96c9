"""examples/pusht.py on the recording, where it is, and on numbers worked out by hand."""

import importlib.util
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from helpers.log_data import recordings
from merlin.data import load
from merlin.errors import MerlinError
from merlin.policies.base import FunctionPolicy

PATH = Path(__file__).parents[2] / "examples" / "pusht.py"


@pytest.fixture(scope="module")
def pusht():
    place = importlib.util.spec_from_file_location("pusht", PATH)
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_angles_that_are_next_to_each_other_stay_so(pusht):
    states = np.array([[1, 2, 3, 4, 0.01], [1, 2, 3, 4, 2 * np.pi - 0.01]])
    seen = pusht.observation(states, states - 1)
    np.testing.assert_allclose(seen[0, :7], [1, 2, 1, 1, 3, 4, pusht.ARM], rtol=1e-4)
    assert np.linalg.norm(seen[0] - seen[1]) == pytest.approx(0.02 * pusht.ARM, rel=1e-3)


def test_the_demonstrations_end_at_their_target(pusht):
    home = recordings()
    if home is None:
        pytest.skip("the recordings are not here")
    data = pusht.prepare(home / "pusht")
    assert (len(data), data.observation_shape, data.goal_dim) == (206, (8,), 4)
    at_the_end = data.achieved_goals[data.starts[1:] - 1]
    away = np.linalg.norm(at_the_end - data.desired_goals, axis=1)
    assert np.median(away) < 10
    assert data.provenance["log"]["rate"] == 10.0


def test_actions_are_relative_to_the_pusher(pusht):
    home = recordings()
    if home is None:
        pytest.skip("the recordings are not here")
    data, log = pusht.prepare(home / "pusht"), load(home / "pusht")
    one, raw = data.episode(3), log.episode(3)
    np.testing.assert_allclose(one.observations[:-1, :2] + one.actions, raw.actions, atol=1e-3)
    moved = np.diff(raw.observations[:, :2], axis=0)
    np.testing.assert_allclose(one.observations[:, 2:4], np.vstack([[0, 0], moved]), atol=1e-3)
    assert (data.action_low <= data.actions).all()


def test_a_pusher_that_stays_does_not_move_the_block(pusht):
    pytest.importorskip("gym_pusht")
    stay = FunctionPolicy(lambda observation, goal, horizon, key: jnp.zeros(2))
    envs = pusht.environments(2)
    best, least = pusht.play(stay, envs, seed=0)
    first = np.stack([env.reset(seed=k)[0] for k, env in enumerate(envs)])
    goal = pusht.pose(pusht.TARGET[:2], pusht.TARGET[2])
    away = np.linalg.norm(pusht.pose(first[:, 2:4], first[:, 4]) - goal, axis=1)
    np.testing.assert_allclose(least, away, atol=1.0)
    assert ((best >= 0) & (best < pusht.SUCCESS)).all()


def test_without_the_environment_one_sentence_says_so(pusht, monkeypatch):
    monkeypatch.setitem(sys.modules, "gym_pusht", None)
    with pytest.raises(MerlinError, match="pip install gym-pusht"):
        pusht.environments(1)
