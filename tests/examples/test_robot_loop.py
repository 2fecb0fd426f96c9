"""The loop of examples/robot_loop.py against a simulated clock."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import merlin.runtime

PATH = Path(__file__).parents[2] / "examples" / "robot_loop.py"


@pytest.fixture(scope="module")
def loop():
    place = importlib.util.spec_from_file_location("robot_loop", PATH)
    module = importlib.util.module_from_spec(place)
    sys.modules["robot_loop"] = module
    place.loader.exec_module(module)
    return module


class Clock:
    """Time passes when somebody sleeps, or works."""

    def __init__(self):
        self.time = 100.0

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds


@pytest.fixture
def arm(loop):
    return loop.SimulatedArm(Clock(), np.zeros(2))


def limits(loop, **others):
    free = {"low": np.full(2, -1.0), "high": np.full(2, 1.0), "change": np.full(2, 9.0)}
    return loop.Limits(**{**free, "stale": 0.15, "lost": 0.5, **others})


def towards(state, goal):
    return np.clip(goal - state, -1.0, 1.0)


def near(state, goal):
    return bool(np.linalg.norm(goal - state) < 0.5)


GOAL = np.array([3.0, -2.0], np.float32)
RATE = {"rate": 10.0, "seconds": 2.0}


def test_it_reaches_its_goal_at_a_fixed_rate(loop, arm):
    sent = []
    send = arm.send
    arm.send = lambda action: (sent.append(arm.clock.now()), send(action))
    outcome = loop.run(towards, arm, GOAL, limits(loop), **RATE, clock=arm.clock, reached=near)
    assert outcome == loop.Outcome("the goal is reached", steps=3, held=0, late=0, limited=0)
    np.testing.assert_allclose(np.diff(sent), 0.1)
    assert arm.stopped


def test_actions_and_their_changes_are_limited(loop, arm):
    wild = lambda state, goal: np.array([50.0, -50.0])  # noqa: E731
    sent = []
    arm.send = sent.append
    tight = limits(loop, change=np.array([0.25, 0.5]))
    outcome = loop.run(wild, arm, GOAL, tight, **RATE, clock=arm.clock)
    assert outcome.why == "the time is over"
    assert outcome.limited == outcome.steps == 20
    np.testing.assert_allclose(sent[:5], [[0.25, -0.5], [0.5, -1], [0.75, -1], [1, -1], [1, -1]])


def test_a_stale_observation_is_not_acted_on_and_a_lost_robot_is_stopped(loop, arm):
    froze = arm.clock.now() + 0.55
    observe = arm.observe
    arm.observe = lambda: (observe()[0], min(arm.clock.now(), froze))
    outcome = loop.run(towards, arm, GOAL, limits(loop, stale=0.2), **RATE, clock=arm.clock)
    assert outcome.why.startswith("the last observation is 0.55 s old")
    assert outcome.steps == 8  # at 0.0 to 0.7 s
    assert outcome.held == 3  # at 0.8, 0.9 and 1.0 s
    assert arm.stopped


def test_observations_of_a_clock_that_is_ahead_are_not_acted_on(loop, arm):
    arm.observe = lambda: (arm.state, arm.clock.now() + 10)
    outcome = loop.run(towards, arm, GOAL, limits(loop), **RATE, clock=arm.clock)
    assert outcome.why == "the clock of the observations is ahead by 10.00 s"
    assert outcome.steps == 0
    assert arm.stopped


def test_what_no_limit_could_hold_is_not_sent(loop, arm):
    arm.send = lambda action: pytest.fail("sent")
    with pytest.raises(merlin.MerlinError, match="the policy returned"):
        loop.run(lambda *_: np.array([np.nan, 0]), arm, GOAL, limits(loop), **RATE, clock=arm.clock)
    assert arm.stopped
    arm.holding = lambda: np.array([0.0, 1.5])
    with pytest.raises(merlin.MerlinError, match="outside of the limits; move it first"):
        loop.run(towards, arm, GOAL, limits(loop), **RATE, clock=arm.clock)


def test_ticks_that_take_too_long_are_not_caught_up(loop, arm):
    def slow(state, goal):
        arm.clock.sleep(0.25)
        return towards(state, goal)

    outcome = loop.run(slow, arm, GOAL, limits(loop), **RATE, clock=arm.clock)
    # Each takes the time of three ticks: it acts at 0.0, 0.3, ..., 1.8 s.
    assert (outcome.steps, outcome.late) == (7, 14)
    assert arm.clock.now() == pytest.approx(102.1, abs=0.15)


def test_it_does_not_start_where_it_may_not_and_stops_on_errors(loop, arm):
    refuse = lambda state, goal: "the goal is outside of the cage"  # noqa: E731
    outcome = loop.run(towards, arm, GOAL, limits(loop), **RATE, clock=arm.clock, may_start=refuse)
    assert (outcome.why, outcome.steps) == ("the goal is outside of the cage", 0)
    arm.stopped = False
    arm.observe = lambda: (np.array([np.nan, 0.0]), arm.clock.now())
    with pytest.raises(ZeroDivisionError):
        loop.run(lambda *_: 1 / 0, arm, GOAL, limits(loop), **RATE, clock=arm.clock)
    assert arm.stopped


def test_a_trained_policy_runs_in_it(loop, arm, run_folder):
    policy = merlin.runtime.load(run_folder)
    outcome = loop.run(policy, arm, GOAL, limits(loop), **RATE, clock=arm.clock)
    assert outcome.steps == 20
    arm.stopped = False
    arm.observe = lambda: (np.array([np.nan, 0.0]), arm.clock.now())
    with pytest.raises(merlin.MerlinError, match="observation: is nan at 0"):
        loop.run(policy, arm, GOAL, limits(loop), **RATE, clock=arm.clock)
    assert arm.stopped


def test_it_starts_only_towards_goals_that_are_ready(loop, arm, tmp_path):
    words = {"ready": [3, -2], "not supported": [9, 9]}
    told = {
        "radius": 1.0,
        "scale": [1.0, 1.0],
        "goals": [{"goal": goal, "word": word} for word, goal in words.items()],
    }
    (tmp_path / "trust.json").write_text(json.dumps(told))
    how = {**RATE, "clock": arm.clock, "may_start": loop.trusted(tmp_path / "trust.json")}
    for goal, why in (([9, 9], "not supported"), ([5, 5], "no goal near this one")):
        outcome = loop.run(towards, arm, np.array(goal), limits(loop), **how)
        assert outcome.steps == 0
        assert why in outcome.why
    assert loop.run(towards, arm, GOAL, limits(loop), **how).steps > 0
