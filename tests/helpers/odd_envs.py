"""Environments with mistakes that people make, each on the line of `own_envs`."""

import gymnasium
import numpy as np
from gymnasium import spaces

from helpers.own_envs import Line


class WithSpaces(Line):
    """Other spaces for actions, observations or goals."""

    def __init__(self, action=None, observation=None, goal=None, **arguments):
        super().__init__(**arguments)
        parts = dict(self.observation_space.spaces)
        if observation is not None:
            parts["observation"] = observation
        if goal is not None:
            parts |= {"achieved_goal": goal, "desired_goal": goal}
        self.observation_space = spaces.Dict(parts)
        self.action_space = self.action_space if action is None else action


class Rounded(WithSpaces):
    """Goals are whole numbers."""

    def _see(self):
        seen = super()._see()
        goals = ("achieved_goal", "desired_goal")
        return {**seen, **{key: np.round(seen[key]).astype(np.int64) for key in goals}}


class Shows(Line):
    """What is observed is an argument, whatever its space says."""

    def __init__(self, shows, **arguments):
        super().__init__(**arguments)
        self.shows = shows

    def _see(self):
        return {**super()._see(), "observation": self.shows}


class Says(Line):
    """What stands in info["is_success"] is an argument."""

    def __init__(self, says, **arguments):
        super().__init__(**arguments)
        self.says = says

    def step(self, action):
        return (*super().step(action)[:4], {"is_success": self.says})


class Breaks(Line):
    """Raises, or answers as Gym did before Gymnasium; `late` only after 60 steps."""

    def __init__(self, how, **arguments):
        super().__init__(**arguments)
        self.how, self.steps = how, 0
        if how == "exit":
            raise SystemExit(3)

    def reset(self, **arguments):
        if self.how == "reset":
            raise RuntimeError("no robot\nhere")
        answer = super().reset(**arguments)
        return answer[0] if self.how == "old reset" else answer

    def step(self, action):
        self.steps += 1
        if self.how == "step" or (self.how == "late" and self.steps > 60):
            raise RuntimeError("robot fell")
        seen, reward, terminated, _, info = super().step(action)
        if self.how == "old step":
            return seen, reward, terminated, info
        told = {} if self.how == "compute_reward" else info
        return seen, reward, terminated, False, told

    def compute_reward(self, achieved_goal, desired_goal, info):
        raise RuntimeError("no reward")


class Ends(Line):
    """What is returned as terminated is an argument."""

    def __init__(self, returned, **arguments):
        super().__init__(**arguments)
        self.returned = returned

    def step(self, action):
        seen, reward, _, truncated, info = super().step(action)
        return seen, reward, self.returned, truncated, info


class Unseeded(Line):
    """Draws starts or noise from a generator that no seed reaches."""

    def __init__(self, what, **arguments):
        super().__init__(**arguments)
        self.what, self.generator = what, np.random.default_rng()

    def reset(self, *, seed=None, options=None):
        fresh = int(self.generator.integers(1 << 30))
        return super().reset(seed=fresh if self.what == "start" else seed)

    def step(self, action):
        noise = self.generator.uniform(0.1, 0.9) if self.what == "noise" else 1.0
        return super().step(noise * action)


class NoSeed(Line):
    def reset(self):
        return super().reset()


class InPlace(Line):
    """Changes the action that it is given, and shows the same arrays again and again."""

    def __init__(self, drift=0.0, **arguments):
        super().__init__(**arguments)
        self.drift = drift
        keys = ("observation", "achieved_goal", "desired_goal")
        self.shown = {key: np.zeros(1) for key in keys}

    def step(self, action):
        self.goal = self.goal + self.drift
        answer = super().step(action.copy())
        action *= 0
        return answer

    def _see(self):
        for key, value in super()._see().items():
            self.shown[key][:] = value
        return self.shown


class Strict(WithSpaces):
    """Accepts no action outside of its bounds, not even by a rounding error."""

    def step(self, action):
        if (
            not (self.action_space.low <= action).all()
            or not (action <= self.action_space.high).all()
        ):
            raise ValueError(f"{action} is out of bounds")
        return super().step(0.99 * action)  # which rounds to float32 before it checks


def _box(*arguments, **more):
    return spaces.Box(*arguments, **more)


ODD = {
    "Images": (WithSpaces, {"observation": _box(0, 255, (8, 8, 3), np.uint8)}),
    "Discrete": (WithSpaces, {"action": spaces.Discrete(3)}),
    "Matrix": (WithSpaces, {"action": _box(-0.5, 0.5, (1, 2))}),
    "NoAction": (WithSpaces, {"action": _box(-0.5, 0.5, (0,))}),
    "Fixed": (WithSpaces, {"action": _box(np.float32([0.5]), np.float32([0.5]))}),
    "Integers": (WithSpaces, {"action": _box(-1, 1, (1,), np.int64)}),
    "DiscreteGoal": (WithSpaces, {"goal": spaces.Discrete(5)}),
    "WholeGoal": (Rounded, {"goal": _box(-9, 9, (1,), np.int64)}),
    "Larger": (Shows, {"shows": np.zeros(3)}),
    "Nan": (Shows, {"shows": np.array([np.nan])}),
    "Huge": (Shows, {"shows": np.array([1e39])}),
    "Words": (Shows, {"shows": np.array(["left"])}),
    "Text": (Says, {"says": "False"}),
    "Share": (Says, {"says": 0.3}),
    "Several": (Says, {"says": np.array([True, False])}),
    "Nothing": (Says, {"says": None}),
    "One": (Says, {"says": np.array([1.0])}),
    "NoSeed": (NoSeed, {}),
    "TwoEnds": (Ends, {"returned": np.array([False, True])}),
    "NoEnd": (Ends, {"returned": None}),
    "AtOnce": (Ends, {"returned": np.array([True])}),
    "UnseededStart": (Unseeded, {"what": "start"}),
    "UnseededNoise": (Unseeded, {"what": "noise"}),
    "Short": (Line, {}),
    "InPlace": (InPlace, {}),
    "Drifting": (InPlace, {"drift": 0.01}),
    "Strict": (Strict, {"action": _box(-0.1, 0.1, (1,), np.float64)}),
    **{
        f"Breaks-{how}".title().replace(" ", "").replace("_", ""): (Breaks, {"how": how})
        for how in ("exit", "reset", "old reset", "step", "late", "old step", "compute_reward")
    },
}

for name, (made, arguments) in ODD.items():
    if f"odd/{name}-v0" not in gymnasium.registry:
        steps = 1 if name == "Short" else 20
        gymnasium.register(f"odd/{name}-v0", made, max_episode_steps=steps, kwargs=arguments)
