"""Frames of recorded episodes: rendered from their states, or by replaying their actions.

A camera may show more than a state contains, such as the elbow of an arm. The recorded actions are
then replayed from the start state of the task, and the states must match the recorded ones.
"""

import importlib
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from merlin.envs.batch import make_single
from merlin.envs.registry import Task
from merlin.errors import MerlinError

CLOSE = 1e-4
"""Allowed difference of replayed and recorded states: rounding differs between processors."""

Frames = UInt8[np.ndarray, "states size size 3"]


def draw(task: Task, states: Float[np.ndarray, "states observation"]) -> Frames:
    """Frames of any states, for tasks whose states determine the whole image."""
    assert task.film is not None
    module, _, name = task.film.partition(":")
    return getattr(importlib.import_module(module), name)(states, task.image_size, **task.arguments)


def replay(
    memory: dict[str, Any],
    task: Task,
    first: int,
    episodes: list[tuple[np.ndarray, np.ndarray]],
) -> Frames:
    """Frames of whole episodes, given as states and actions; `first` is the index of the first.

    Runs in worker processes, which keep the environment open in their memory.
    """
    if memory.get("rendering", (None,))[0] != task:
        memory["rendering"] = task, make_single(task, **task.image_arguments())
    env = memory["rendering"][1]
    frames = []
    for index, (states, actions) in enumerate(episodes):
        observation = env.reset(seed=0)[0]
        for step, state in enumerate(states):
            if step > 0:
                observation = env.step(actions[step - 1])[0]
            away = float(np.abs(observation["observation"] - state).max())
            if not away <= CLOSE:
                raise MerlinError(
                    f"step {step} of episode {first + index}: replaying the actions leads "
                    f"{away:.3g} away from the recorded state, so it was not recorded in this "
                    f"version of {task.name}; record new data with `merlin collect --pixels`."
                )
            frames.append(env.render())
    return np.stack(frames)
