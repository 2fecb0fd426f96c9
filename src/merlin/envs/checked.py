"""Calls to user environments: return values are checked, and errors become one sentence."""

import contextlib
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from merlin.errors import MerlinError

KEYS = ("observation", "achieved_goal", "desired_goal")
_LARGEST = float(np.finfo(np.float32).max)


class Answer(NamedTuple):
    """What a step returned."""

    observation: dict[str, np.ndarray]
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]


@contextlib.contextmanager
def explained(task: str, what: str, advice: str) -> Iterator[None]:
    """Raise errors of the user's code as one sentence that names the file and the line."""
    try:
        yield
    except MerlinError:
        raise
    except (Exception, SystemExit) as error:  # code of the user may raise anything
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        why = f"{type(error).__name__}: {' '.join(message.split())}".removesuffix(": ")
        raise MerlinError(f"task {task}: {what} ({why}, {_where(error)}); {advice}.") from None


def _where(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"in line {error.lineno} of {error.filename}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"in line {last.lineno} of {last.filename}"


def reset(env: gymnasium.Env, task: str, seed: int) -> dict[str, np.ndarray]:
    """Begin an episode; returns a checked copy of its first observation."""
    with explained(task, "reset(seed=...) failed", "fix the environment or `env_args`"):
        answer = env.reset(seed=seed)
    if not (isinstance(answer, tuple) and len(answer) == 2):
        raise MerlinError(
            f"task {task}: its reset must return an observation and info, as in Gymnasium since "
            "0.26; fix the environment."
        )
    return _checked(answer[0], env, task, "reset")


def step(env: gymnasium.Env, task: str, action: np.ndarray) -> Answer:
    """Take one step with a copy of the action; returns a checked copy of the answer."""
    told = _exact(action, env)
    with explained(task, "step failed", "fix the environment or `env_args`"):
        answer = env.step(told)
    if not (isinstance(answer, tuple) and len(answer) == 5):
        raise MerlinError(
            f"task {task}: its step must return observation, reward, terminated, truncated and "
            "info, as in Gymnasium since 0.26; fix the environment."
        )
    observation, reward, terminated, truncated, info = answer
    seen = _checked(observation, env, task, "step")
    if not isinstance(info, Mapping):
        raise MerlinError(f"task {task}: its step must return a dict as info; fix the environment.")
    worth = _number(reward, "reward", task)
    ends = bool(_number(terminated, "terminated", task))
    return Answer(seen, worth, ends, bool(_number(truncated, "truncated", task)), info)


def _number(value: Any, name: str, task: str) -> float:
    try:
        (number,) = np.ravel(value)
        return float(number)
    except (TypeError, ValueError):
        raise MerlinError(
            f"task {task}: its step returned {value!r} as {name}, which is not one number; fix the "
            "environment."
        ) from None


def _exact(action: np.ndarray, env: gymnasium.Env) -> np.ndarray:
    """A copy in the type of the action space.

    Actions are float32. A bound such as 0.1 is rounded in float32, possibly to the outside of a
    float64 space, so a bound is replaced by its exact value.
    """
    space = env.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    told = np.array(action, space.dtype)
    for bound in (space.low, space.high):
        told = np.where(action == bound.astype(np.float32), bound, told)
    return told


def _checked(seen: Any, env: gymnasium.Env, task: str, call: str) -> dict[str, np.ndarray]:
    if not isinstance(seen, Mapping) or not set(KEYS) <= set(seen):
        raise MerlinError(
            f"task {task}: its {call} does not return a dict of {', '.join(sorted(KEYS))}, "
            "although its observation space says so; fix the environment."
        )
    space = env.observation_space
    assert isinstance(space, gymnasium.spaces.Dict)
    copies = {}
    for key in KEYS:
        with explained(task, f"its {call} returned no numbers as {key}", "fix the environment"):
            copies[key] = np.array(seen[key])
            finite = (abs(copies[key]) <= _LARGEST).all()  # false for nan
        if copies[key].shape != space[key].shape:
            raise MerlinError(
                f"task {task}: its {call} returned {key} of shape {copies[key].shape}, but its "
                f"observation space says {space[key].shape}; fix the environment."
            )
        if not finite:
            raise MerlinError(
                f"task {task}: its {call} returned {key} with nan, infinity or numbers too large "
                "for float32; fix the environment."
            )
    return copies
