"""Stated numbers of steps to a goal, on data where the true one is known."""

import numpy as np
import pytest

from merlin.data import Dataset, Episode
from merlin.data.nearness import Nearness, nearness
from merlin.data.splits import hold_out
from merlin.evaluation import stated_steps
from merlin.evaluation.stated_steps import check_steps, fit_steps
from merlin.learners import distance


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(distance, "HIDDEN", (64, 64))
    monkeypatch.setattr(distance, "PAIRS", 60_000)
    monkeypatch.setattr(stated_steps, "PAIRS", 4000)


def counting(unit: float = 1.0, episodes: int = 200) -> Dataset:
    """Episodes that count upwards by one from a random number; goals in another unit."""
    found = []
    for start in np.random.default_rng(0).uniform(-20, 20, episodes):
        states = (start + np.arange(17, dtype=np.float32))[:, None]
        found.append(Episode(states, np.zeros((16, 1)), unit * states))
    return Dataset.from_episodes(found)


@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_steps_are_those_that_the_data_takes(unit):
    """Goals may be no columns of the state, and need no tolerance."""
    data, held_out = hold_out(counting(unit), 0.2)
    close = nearness(data, None)
    # A step is as long as the radius, so a goal is near one step before it is achieved.
    assert close.radius * close.scale[0] == pytest.approx(unit, rel=1e-3)
    stated = fit_steps(data, held_out, close)
    assert stated.limit == 8
    ahead = np.array([2.5, 4.5, 6.5, 30.0, -5.0])[:, None].astype(np.float32)
    states = np.zeros((5, 1), np.float32)
    within = stated.within(states, unit * states, unit * ahead)
    assert stated_steps.stated_steps(within).tolist() == [2, 4, 6, 9, 9]
    assert (np.diff(within, axis=1) >= 0).all()


def test_statements_are_compared_with_held_out_episodes():
    data, held_out = hold_out(counting(), 0.2)
    stated = fit_steps(data, held_out, Nearness(np.ones(1), 0.5, ""))
    found = check_steps(stated, held_out)
    assert found["limit"] == 8
    assert found["error"]["mean"] < 0.5
    assert found["rank_correlation"] > 0.9
    assert [row["steps"] for row in found["within"]] == [1, 4, 8]
    assert max(row["error"] for row in found["within"]) < 0.05
    # Most goals of other episodes and anywhere are farther; those of the same episode are not.
    assert 0.3 < found["farther"]["share"] < 0.7
    assert found["farther"]["true"] > 0.95
    for row in found["bins"]:
        assert row["stated"] == pytest.approx(row["true"], abs=1)


def test_statements_about_other_data_are_found_wrong():
    """The model of data that moves half as fast states too many steps."""
    data, held_out = hold_out(counting(), 0.2)
    slow = Dataset.from_episodes(
        Episode(half := e.observations / 2, e.actions, half)
        for e in map(data.episode, range(len(data)))
    )
    found = check_steps(fit_steps(slow, held_out, Nearness(np.ones(1), 0.5, "")), held_out)
    assert found["bias"]["mean"] > 0.5
    assert max(row["error"] for row in found["within"]) > 0.1


def test_the_first_number_of_steps_as_likely_as_not():
    within = np.array([[0.1, 0.5, 0.9], [0.6, 0.7, 0.8], [0.0, 0.1, 0.4]])
    assert stated_steps.stated_steps(within).tolist() == [2, 1, 4]
