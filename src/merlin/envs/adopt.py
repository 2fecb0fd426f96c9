"""Environments of the user as tasks: their properties, found by making and probing them.

Nothing is guessed silently. If spaces, rewards and `info` leave a property undecided, the error
names the option that sets it.
"""

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import wrappers

from merlin.envs import scoring
from merlin.envs.names import EnvName, parse
from merlin.envs.registry import Task
from merlin.errors import MerlinError

KEYS = ("observation", "achieved_goal", "desired_goal")
PROBE_STEPS = 200
"""Maximum number of random steps used to probe an environment."""


@cache
def adopt(name: str) -> Task:
    """Make a task of an environment; imports its module and plays a few random steps."""
    asked = parse(name)
    env, limit = _open(asked)
    try:
        shapes, low, high = _check_spaces(env, name)
        steps = asked.max_steps or limit
        if steps is None:
            raise MerlinError(
                f"task {asked.base}: has no time limit; give one with `max_steps`, "
                "for example `max_steps=100`."
            )
        seen = probe(env, asked.base, min(steps, PROBE_STEPS))
    finally:
        env.close()
    return Task(
        name=name,
        env_id=asked.env_id,
        module=asked.module,
        arguments=asked.arguments,
        observation_dim=shapes["observation"],
        action_dim=len(low),
        goal_dim=shapes["desired_goal"],
        action_low=tuple(map(float, low)),
        action_high=tuple(map(float, high)),
        episode_steps=steps,
        ends=True,
        scoring=scoring.infer(
            asked.base,
            seen.info_keys,
            seen.rewards,
            seen.reward_at_goal,
            success_key=asked.success_key,
            goal_reward=asked.goal_reward,
        ),
    )


@contextlib.contextmanager
def working_directory() -> Iterator[None]:
    """Let imports find modules in the working directory, after all installed ones."""
    here = os.getcwd()
    if here in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


def make(name: EnvName, **arguments: Any) -> tuple[gymnasium.Env, int | None]:
    """An environment without the wrappers that `gymnasium.make` adds, and its time limit.

    Wrappers from its entry point or its registration are kept: they are part of it.
    """
    with working_directory():
        if name.module:
            importlib.import_module(name.module)
        env = gymnasium.make(name.env_id, disable_env_checker=True, **name.arguments, **arguments)
    limits = [env.spec.max_episode_steps] if env.spec else []
    while isinstance(env, (wrappers.TimeLimit, wrappers.OrderEnforcing)):
        if isinstance(env, wrappers.TimeLimit):
            limits.append(env._max_episode_steps)
        env = env.env
    known = [limit for limit in limits if limit is not None]
    return env, min(known) if known else None


class Seen(NamedTuple):
    """What the steps of an environment returned."""

    info_keys: set[str]  # in every step
    rewards: set[float]
    reward_at_goal: float | None  # by compute_reward, if there is one
    terminated: bool
    truncated: bool


def probe(env: gymnasium.Env, name: str, steps: int) -> Seen:
    """Take random actions from a fixed seed, over several episodes if one ends early."""
    rng = np.random.default_rng(0)
    space = env.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    keys: set[str] | None = None
    rewards: set[float] = set()
    ended = [False, False]
    info: dict[str, Any] = {}
    observation = None
    for step in range(steps):
        if observation is None:
            observation, _ = env.reset(seed=step)
            _check_observation(observation, name)
        action = rng.uniform(space.low, space.high).astype(space.dtype)
        observation, reward, terminated, truncated, info = env.step(action)
        keys = set(info) if keys is None else keys & set(info)
        rewards.add(float(reward))
        ended = [ended[0] or bool(terminated), ended[1] or bool(truncated)]
        goal = observation["desired_goal"]
        if terminated or truncated:
            observation = None
    at_goal = None
    if env.has_wrapper_attr("compute_reward") and not set(scoring.SUCCESS_KEYS) & (keys or set()):
        goal = np.asarray(goal)
        at_goal = float(env.get_wrapper_attr("compute_reward")(goal.copy(), goal, info))
    return Seen(keys or set(), rewards, at_goal, *ended)


def _open(asked: EnvName) -> tuple[gymnasium.Env, int | None]:
    """Make the environment; a failure becomes one sentence."""
    try:
        return make(asked)
    except (ImportError, gymnasium.error.Error) as error:
        why = " ".join(str(error).split())
        raise MerlinError(f"task {asked.base}: cannot be made ({why}); check the name.") from None
    except Exception as error:  # code of the user may raise anything
        last = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise MerlinError(
            f"task {asked.base}: cannot be made ({why}, in line {last.lineno} of {last.filename}); "
            "check the environment and `env_args`."
        ) from None


def _check_spaces(env: gymnasium.Env, name: str) -> tuple[dict[str, int], np.ndarray, np.ndarray]:
    """Sizes of observation and goals, and the action bounds; refuses unsupported spaces."""
    space, action = env.observation_space, env.action_space
    if not isinstance(space, gymnasium.spaces.Dict) or not set(KEYS) <= set(space.spaces):
        raise MerlinError(
            f"task {name}: is not a goal environment; its observation must be a Dict of "
            f"{', '.join(sorted(KEYS))}."
        )
    if not isinstance(action, gymnasium.spaces.Box) or len(action.shape) != 1:
        raise MerlinError(f"task {name}: its action space must be a one-dimensional Box.")
    if not (np.isfinite(action.low).all() and np.isfinite(action.high).all()):
        raise MerlinError(f"task {name}: its action space is unbounded; give it finite bounds.")
    shapes = {key: space[key].shape or () for key in KEYS}
    if any(len(shape) != 1 for shape in shapes.values()):
        raise MerlinError(f"task {name}: observations and goals must be vectors.")
    if shapes["achieved_goal"] != shapes["desired_goal"]:
        raise MerlinError(f"task {name}: achieved and desired goals must have the same size.")
    return {key: shape[0] for key, shape in shapes.items()}, action.low, action.high


def _check_observation(observation: Any, name: str) -> None:
    if not isinstance(observation, dict) or not set(KEYS) <= set(observation):
        raise MerlinError(
            f"task {name}: its reset does not return a dict of {', '.join(sorted(KEYS))}, although "
            "its observation space says so; fix the environment."
        )
