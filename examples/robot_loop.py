"""A loop for a robot: a policy at a fixed rate, with limits and a watchdog, on NumPy alone.

    merlin train PointReach --variant random --updates 4000 --out runs/reach
    python examples/robot_loop.py runs/reach --goal 3 -2

This runs the policy on a simulated arm. With `--trust FILE` it starts only towards goals that
`merlin trust RUN --goals GOALS.csv --json > FILE` reported as ready. For your own robot, write a
class with the four methods of `Robot`, choose `Limits` carefully, and call `run`. `Robot.stop` is
always called at the end, also after an error.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import merlin.runtime


class Robot(Protocol):
    """The interface of a robot that the loop controls."""

    def observe(self) -> tuple[np.ndarray, float]:
        """The latest state, and the clock time at which it was measured."""

    def holding(self) -> np.ndarray:
        """The action that keeps the robot still: its position, or zeros for relative actions."""

    def send(self, action: np.ndarray) -> None: ...

    def stop(self) -> None: ...


class Clock(Protocol):
    """A clock in seconds with an arbitrary origin, and a way to wait."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class WallClock:
    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True)
class Limits:
    """Limits that hold for every action, whatever the policy returns."""

    low: np.ndarray  # of actions
    high: np.ndarray
    change: np.ndarray  # maximum difference between consecutive actions
    stale: float  # observations older than this many seconds are not acted on
    lost: float  # the robot is stopped if the observation is older than this


@dataclass(frozen=True)
class Outcome:
    """How a run of the loop ended, with counts of its ticks."""

    why: str
    steps: int  # actions sent
    held: int  # ticks without an action, since the observation was stale
    late: int  # ticks that were missed because the previous one took too long
    limited: int  # actions that a limit changed


def run(
    policy: Callable[[np.ndarray, np.ndarray], np.ndarray],
    robot: Robot,
    goal: np.ndarray,
    limits: Limits,
    *,
    rate: float,
    seconds: float,
    clock: Clock | None = None,
    reached: Callable[[np.ndarray, np.ndarray], bool] = lambda state, goal: False,
    may_start: Callable[[np.ndarray, np.ndarray], str | None] = lambda state, goal: None,
) -> Outcome:
    """Act `rate` times per second until the goal is reached, time is up, or observations stop.

    `may_start` is called once before the robot moves. It returns the reason not to start, or None.
    """
    if not (0 < rate < math.inf and 0 < limits.stale <= limits.lost):
        raise merlin.MerlinError("robot loop: the rate and the ages must be above 0; correct them.")
    watch = WallClock() if clock is None else clock
    steps = held = late = limited = 0
    why = "the time is over"
    begin = watch.now()
    tick = 0
    try:
        before = robot.holding()
        if not np.array_equal(before, np.clip(before, limits.low, limits.high)):
            raise merlin.MerlinError(
                f"robot loop: the robot holds {before}, outside of the limits; move it first."
            )
        while tick < round(seconds * rate):
            state, measured = robot.observe()
            age = watch.now() - measured
            if age > limits.lost:
                why = f"the last observation is {age:.2f} s old"
                break
            if age < -limits.stale:  # it would never become stale
                why = f"the clock of the observations is ahead by {-age:.2f} s"
                break
            if tick == 0 and (reason := may_start(state, goal)):
                why = reason
                break
            if reached(state, goal):
                why = "the goal is reached"
                break
            if age > limits.stale:
                held += 1
            else:
                wanted = policy(state, goal)
                if not np.isfinite(wanted).all():  # clipping does not remove NaN
                    raise merlin.MerlinError(f"robot loop: the policy returned {wanted}.")
                action = within(wanted, before, limits)
                limited += not np.array_equal(action, wanted)
                robot.send(action)
                before = action
                steps += 1
            # Ticks follow the clock: if one takes too long, the ticks that it overlaps are skipped.
            now = int((watch.now() - begin) * rate)
            late += max(now - tick, 0)
            tick = max(now, tick) + 1
            watch.sleep(max(begin + tick / rate - watch.now(), 0.0))
    finally:
        robot.stop()
    return Outcome(why, steps, held, late, limited)


def within(action: np.ndarray, before: np.ndarray, limits: Limits) -> np.ndarray:
    """The nearest action within the limits, at most `change` away from the previous action."""
    bounded = np.clip(action, limits.low, limits.high)
    return np.clip(bounded, before - limits.change, before + limits.change)


def trusted(path: str) -> Callable[[np.ndarray, np.ndarray], str | None]:
    """A `may_start` that accepts goals near one that `merlin trust RUN --json` called ready."""
    told = json.loads(Path(path).read_text().splitlines()[-1])
    goals, scale = np.array([row["goal"] for row in told["goals"]]), np.array(told["scale"])

    def may_start(state: np.ndarray, goal: np.ndarray) -> str | None:
        apart = np.linalg.norm((goals - goal) / scale, axis=1)
        if apart.min() > told["radius"]:
            return "no goal near this one was judged; ask with `merlin trust --goals`"
        word = told["goals"][int(apart.argmin())]["word"]
        return None if word == "ready" else f"the goal is not ready: {word}"

    return may_start


class SimulatedArm:
    """An arm that moves by its action at every step, within a box, and measures instantly."""

    def __init__(self, clock: Clock, state: np.ndarray):
        self.clock, self.state, self.stopped = clock, np.array(state, np.float32), False

    def observe(self) -> tuple[np.ndarray, float]:
        return self.state.copy(), self.clock.now()

    def holding(self) -> np.ndarray:
        return np.zeros_like(self.state)

    def send(self, action: np.ndarray) -> None:
        self.state = np.clip(self.state + action, -5.0, 5.0).astype(np.float32)

    def stop(self) -> None:
        self.stopped = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="run folder or policy file of PointReach")
    parser.add_argument("--goal", type=float, nargs=2, default=[3.0, -2.0])
    parser.add_argument("--trust", help="output of `merlin trust RUN --goals FILE --json`")
    parser.add_argument("--rate", type=float, default=20.0)
    given = parser.parse_args()
    policy: Any = merlin.runtime.load(given.run)
    clock = WallClock()
    arm = SimulatedArm(clock, np.zeros(2))
    limits = Limits(
        low=np.full(2, -1.0),
        high=np.full(2, 1.0),
        change=np.full(2, 0.5),
        stale=2 / given.rate,
        lost=1.0,
    )
    goal = np.array(given.goal, np.float32)
    near = lambda state, goal: bool(np.linalg.norm(state - goal) < 1.0)  # noqa: E731
    how: dict[str, Any] = {"rate": given.rate, "seconds": 10.0, "clock": clock, "reached": near}
    if given.trust:
        how["may_start"] = trusted(given.trust)
    outcome = run(policy, arm, goal, limits, **how)
    print(f"{outcome.why} at {arm.state.round(2)}: {outcome}")


if __name__ == "__main__":
    main()
