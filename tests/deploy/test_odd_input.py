"""Whatever a robot hands to the runtime: an action that can be used, or one sentence."""

import datetime

import numpy as np
import pytest

import merlin.runtime
from helpers.policy_files import write_policy
from merlin.envs.registry import TASKS
from merlin.errors import MerlinError
from merlin.learners import Merlin, MerlinPlus

GOOD = {"observation": np.zeros(2), "desired_goal": np.zeros(2)}
ODD = {
    "a cube": np.zeros((2, 2, 2)),
    "nothing": None,
    "a word": "ab",
    "words": ["1", "2"],
    "bytes": [b"1", b"2"],
    "NaN": [np.nan, 0.0],
    "too many": np.zeros(3),
    "a number": 7,
    "an object": [None, 1],
    "dates": [datetime.date(2026, 1, 1)] * 2,
    "days": np.array(["2026-01-01"] * 2, "datetime64[D]"),
    "seconds": np.zeros(2, "m8[s]"),
    "complex numbers": np.zeros(2, complex),
    "uneven rows": [[1], [2, 3]],
}


@pytest.fixture(scope="module")
def policies(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("policies"), np.random.default_rng(0)
    found = []
    for learner in (Merlin(hidden=(8, 8)), MerlinPlus(hidden=(8, 8))):
        path = folder / f"{type(learner).__name__}.safetensors"
        write_policy(path, TASKS["PointReach"], learner, rng)
        found.append(merlin.runtime.load(path))
    return found


@pytest.mark.parametrize("key", GOOD)
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_observation_is_refused(policies, key, odd):
    for policy in policies:
        with pytest.raises(MerlinError, match=f"^{key.removeprefix('desired_')}: "):
            policy({**GOOD, key: ODD[odd]})


@pytest.mark.parametrize("odd", [{}, {"observation": np.zeros(2)}, None, 3, [1, 2]])
def test_what_is_no_observation_is_refused(policies, odd):
    for policy in policies:
        with pytest.raises(MerlinError, match=r"'(observation|desired_goal)'"):
            policy(odd)


@pytest.mark.parametrize("kind", [list, tuple, np.float64, np.int32, bool])
def test_numbers_of_any_kind_are_taken(policies, kind):
    numbers = np.array([1, 0])
    given = kind(numbers) if kind in (list, tuple) else numbers.astype(kind)
    action = policies[0]({"observation": given, "desired_goal": given})
    np.testing.assert_array_equal(
        action, policies[0]({"observation": numbers * 1.0, "desired_goal": numbers * 1.0})
    )
