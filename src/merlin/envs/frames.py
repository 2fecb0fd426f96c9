"""Frames of recorded episodes: drawn from their states, or by playing their actions again.

A camera shows more than a state holds: the elbow of an arm, for one. Where that is so, the recorded
actions are replayed from the task's start, and the states on the way must be the recorded ones.
"""

import importlib
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from merlin.envs.batch import make_single
from merlin.envs.registry import Task
from merlin.errors import MerlinError

CLOSE = 1e-4
"""So far may replayed states be from the recorded ones: the rounding of other processors."""

Frames = UInt8[np.ndarray, "states size size 3"]


def draw(task: Task, states: Float[np.ndarray, "states observation"]) -> Frames:
    """Frames of any states, for tasks whose states say all that a camera shows."""
    assert task.film is not None
    module, _, name = task.film.partition(":")
    return getattr(importlib.import_module(module), name)(states, task.image_size, **task.arguments)


def replay(
    memory: dict[str, Any],
    task: Task,
    first: int,
    episodes: list[tuple[np.ndarray, np.ndarray]],
) -> Frames:
    """Frames of whole episodes, given as states and actions; `first` is the number of the first.

    Runs in worker processes, which keep the environment open in their memory.
    """
    if memory.get("filming", (None,))[0] != task:
        memory["filming"] = task, make_single(task, **task.image_arguments())
    env = memory["filming"][1]
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
                    f"{away:.3g} away from the recorded state, so it was not recorded in "
                    f"{task.name} as it is here; record it anew with `merlin collect --pixels`."
                )
            frames.append(env.render())
    return np.stack(frames)
