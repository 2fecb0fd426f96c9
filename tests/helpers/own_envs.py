"""Environments as other people write them: a point on a line, told in different ways.

The point moves by the action, which lies within +-0.5, and the goal is another point. Each id
registers it with other rewards, another `info`, wrappers or endings.
"""

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers

NEAR = 0.25


class Line(gymnasium.Env):
    """What is said of success is an argument."""

    def __init__(self, tells="is_success", rewards="0/1", ends=False, size=1.0, render_mode=None):
        self.tells, self.rewards, self.ends, self.size = tells, rewards, ends, size
        self.render_mode = render_mode
        box = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.observation_space = spaces.Dict(observation=box, achieved_goal=box, desired_goal=box)
        self.action_space = spaces.Box(-0.5, 0.5, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(-self.size, self.size, (2, 1))
        return self._see(), {}

    def step(self, action):
        assert self.action_space.contains(np.asarray(action, np.float32)), action
        self.place = self.place + action
        far = bool(np.abs(self.place - self.goal)[0] > NEAR)
        distance = float(np.abs(self.place - self.goal)[0])
        reward = {"0/1": 1.0 - far, "-1/0": -float(far), "dense": -distance, "none": 0.0}
        info = {} if self.tells is None else {self.tells: not far}
        return self._see(), reward[self.rewards], self.ends and not far, False, info

    def _see(self):
        return {
            "observation": self.place.copy(),
            "achieved_goal": self.place.copy(),
            "desired_goal": self.goal.copy(),
        }


class Computed(Line):
    """Has `compute_reward`, so that it can be asked what a goal is worth."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        far = np.linalg.norm(achieved_goal - desired_goal, axis=-1) > NEAR
        return {"0/1": 1.0 - far, "-1/0": -1.0 * far, "none": 0.0 * far}[self.rewards]


class Wandering(Line):
    """Its goal moves."""

    def step(self, action):
        self.goal = self.goal + 0.01
        return super().step(action)


class AddsSuccess(gymnasium.Wrapper):
    """A wrapper without which nobody knows of success."""

    def step(self, action):
        seen, reward, terminated, truncated, info = self.env.step(action)
        near = np.abs(seen["achieved_goal"] - seen["desired_goal"])[0] <= NEAR
        return seen, reward, terminated, truncated, {**info, "is_success": bool(near)}


class Doubled(gymnasium.ObservationWrapper):
    """A wrapper that changes the size of observations."""

    def __init__(self, env):
        super().__init__(env)
        parts = dict(env.observation_space.spaces)
        parts["observation"] = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.observation_space = spaces.Dict(parts)

    def observation(self, observation):
        return {**observation, "observation": np.repeat(observation["observation"], 2)}


def rescaled(**arguments):
    """Actions within +-1 for the user, within +-0.5 inside."""
    return wrappers.RescaleAction(Line(**arguments), np.float32(-1.0), np.float32(1.0))


def wrapped(**arguments):
    return Doubled(AddsSuccess(rescaled(tells=None, rewards="dense", **arguments)))


def _register(name, entry_point, steps=20, **arguments):
    env_id = f"own/{name}-v0"
    if env_id not in gymnasium.registry:
        gymnasium.register(
            env_id, entry_point=entry_point, max_episode_steps=steps, kwargs=arguments
        )


_register("Keyed", Line)
_register("KeyedMinus", Line, rewards="-1/0")
_register("KeyedDense", Line, tells="success", rewards="dense")
_register("Other", Line, tells="arrived", rewards="dense")
_register("ZeroOne", Line, tells=None)
_register("MinusZero", Line, tells=None, rewards="-1/0")
_register("Silent", Line, tells=None, rewards="none")
_register("SilentFar", Line, tells=None, rewards="0/1", size=1000.0)
_register("ComputedFar", Computed, tells=None, rewards="0/1", size=1000.0)
_register("ComputedMinus", Computed, tells=None, rewards="-1/0", size=1000.0)
_register("Dense", Line, tells=None, rewards="dense")
_register("Ends", Line, ends=True)
_register("Endless", Line, steps=None)
_register("Rescaled", rescaled)
_register("Wrapped", wrapped)
_register("Wandering", Wandering)
