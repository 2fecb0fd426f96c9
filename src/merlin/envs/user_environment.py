"""User environments as tasks: their properties, found by making and probing them.

Nothing is guessed silently. If spaces, rewards and `info` leave a property undecided, the error
names the option that sets it.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import wrappers

from merlin.envs import checked, scoring
from merlin.envs.checked import KEYS
from merlin.envs.names import MIN_STEPS, EnvName, parse
from merlin.envs.registry import Task
from merlin.errors import MerlinError

PROBE_STEPS = 200
"""Maximum number of random steps used to probe an environment."""
REPEATED_STEPS = 10
"""Maximum number of steps played twice, to compare them."""


@cache
def task_of(name: str) -> Task:
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
        if steps < MIN_STEPS:
            raise MerlinError(
                f"task {asked.base}: has a time limit of {steps} step, but an episode needs at "
                f"least {MIN_STEPS}; give a longer one with `max_steps`."
            )
        decided = asked.success_key is not None or asked.goal_reward is not None
        seen = probe(env, asked.base, min(steps, PROBE_STEPS), compute=not decided)
        if not _repeats(env, asked.base, min(steps, REPEATED_STEPS)):
            print(
                f"merlin: task {asked.base}: the same seed and actions do not give the same "
                "episode again, so data and scores cannot be repeated; draw all random numbers "
                "from self.np_random, after super().reset(seed=seed).",
                file=sys.stderr,
            )
    finally:
        env.close()
    told = scoring.infer(
        asked.base,
        seen.info_keys,
        seen.rewards,
        seen.reward_at_goal,
        success_key=asked.success_key,
        goal_reward=asked.goal_reward,
    )
    for reward, info in seen.steps:
        told(asked.base, reward, info)  # raises if it cannot be read
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
        scoring=told,
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
    steps: list[tuple[float, Mapping[str, Any]]]  # reward and info of each


def probe(env: gymnasium.Env, name: str, steps: int, *, compute: bool = True) -> Seen:
    """Take random actions from a fixed seed, over several episodes if one ends early.

    With `compute`, `compute_reward` is asked too, unless `info` reports success.
    """
    steps_taken: list[tuple[float, Mapping[str, Any]]] = []
    observation = None
    for step, action in enumerate(_random_actions(env, steps)):
        if observation is None:
            observation = checked.reset(env, name, step)
        answer = checked.step(env, name, action)
        steps_taken.append((answer.reward, dict(answer.info)))
        observation = None if answer.terminated or answer.truncated else answer.observation
    keys = set.intersection(*(set(info) for _, info in steps_taken))
    at_goal = None
    compute = compute and not set(scoring.SUCCESS_KEYS) & keys
    if compute and env.has_wrapper_attr("compute_reward"):
        goal = answer.observation["desired_goal"]
        advice = "fix it, or set `success_key` or `goal_reward`"
        with checked.explained(name, "compute_reward failed at an achieved goal", advice):
            at_goal = float(env.get_wrapper_attr("compute_reward")(goal.copy(), goal, answer.info))
    return Seen(keys, {reward for reward, _ in steps_taken}, at_goal, steps_taken)


def _repeats(env: gymnasium.Env, name: str, steps: int) -> bool:
    """Whether a seed and actions give the same episode twice."""

    def play() -> Iterator[np.ndarray]:
        yield from checked.reset(env, name, 0).values()
        for action in _random_actions(env, steps):
            answer = checked.step(env, name, action)
            yield from answer.observation.values()
            if answer.terminated or answer.truncated:
                return

    first, second = list(play()), list(play())
    return len(first) == len(second) and all(map(np.array_equal, first, second))


def _random_actions(env: gymnasium.Env, steps: int) -> np.ndarray:
    space = env.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    drawn = np.random.default_rng(0).uniform(space.low, space.high, (steps, *space.shape))
    return drawn.astype(space.dtype)


def _open(asked: EnvName) -> tuple[gymnasium.Env, int | None]:
    """Make the environment; a failure becomes one sentence."""
    with checked.explained(asked.base, "cannot be made", "check the environment and `env_args`"):
        try:
            return make(asked)
        except (ModuleNotFoundError, gymnasium.error.Error) as error:
            why = " ".join(str(error).split()).removesuffix(".")
            missing = error.name if isinstance(error, ModuleNotFoundError) else None
            named = missing is None or f"{asked.module}.".startswith(f"{missing}.")
            advice = "check the name" if named else f"{asked.module} needs it, so install it"
            raise MerlinError(f"task {asked.base}: cannot be made ({why}); {advice}.") from None


def _check_spaces(env: gymnasium.Env, name: str) -> tuple[dict[str, int], np.ndarray, np.ndarray]:
    """Sizes of observation and goals, and the action bounds; refuses unsupported spaces."""
    space, action = env.observation_space, env.action_space
    if not isinstance(space, gymnasium.spaces.Dict) or not set(KEYS) <= set(space.spaces):
        raise MerlinError(
            f"task {name}: is not a goal environment; its observation must be a Dict of "
            f"{', '.join(sorted(KEYS))}."
        )
    if (
        not isinstance(action, gymnasium.spaces.Box)
        or len(action.shape) != 1
        or not action.shape[0]
    ):
        raise MerlinError(
            f"task {name}: its action space is {action}, but must be a one-dimensional Box; wrap "
            "the environment in one that takes continuous actions."
        )
    if not np.issubdtype(action.dtype, np.floating):
        raise MerlinError(
            f"task {name}: its actions are integers ({action}), but must be continuous; wrap the "
            "environment in one that takes floats."
        )
    if not (np.isfinite(action.low).all() and np.isfinite(action.high).all()):
        raise MerlinError(f"task {name}: its action space is unbounded; give it finite bounds.")
    if not (action.low.astype(np.float32) < action.high.astype(np.float32)).all():
        raise MerlinError(
            f"task {name}: a lower bound of its action space is not below the upper one; drop "
            "actions that cannot vary."
        )
    for key in KEYS:
        if len(space[key].shape or ()) != 1:
            raise MerlinError(
                f"task {name}: its {key} is {space[key]}, but must be a vector; wrap the "
                "environment in one that gives vectors."
            )
    shapes = {key: space[key].shape or () for key in KEYS}
    if shapes["achieved_goal"] != shapes["desired_goal"]:
        raise MerlinError(f"task {name}: achieved and desired goals must have the same size.")
    return {key: shape[0] for key, shape in shapes.items()}, action.low, action.high
