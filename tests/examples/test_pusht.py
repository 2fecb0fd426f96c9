"""examples/pusht.py on the recording, where it is, and on numbers worked out by hand."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from helpers.log_data import recordings

PATH = Path(__file__).parents[2] / "examples" / "pusht.py"


@pytest.fixture(scope="module")
def pusht():
    place = importlib.util.spec_from_file_location("pusht", PATH)
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_angles_that_are_next_to_each_other_stay_so(pusht):
    states = np.array([[1, 2, 3, 4, 0.01], [1, 2, 3, 4, 2 * np.pi - 0.01]])
    seen = pusht.observation(states)
    np.testing.assert_allclose(seen[0, :5], [1, 2, 3, 4, pusht.ARM], rtol=1e-4)
    assert np.linalg.norm(seen[0] - seen[1]) == pytest.approx(0.02 * pusht.ARM, rel=1e-3)


def test_the_demonstrations_end_at_their_target(pusht):
    home = recordings()
    if home is None:
        pytest.skip("the recordings are not here")
    data = pusht.prepare(home / "pusht")
    assert (len(data), data.observation_shape, data.goal_dim) == (206, (6,), 4)
    at_the_end = data.achieved_goals[data.starts[1:] - 1]
    away = np.linalg.norm(at_the_end - data.desired_goals, axis=1)
    assert np.median(away) < 10
    assert data.provenance["log"]["rate"] == 10.0
