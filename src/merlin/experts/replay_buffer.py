"""The replay buffer of an expert, and running moments for standardisation."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from merlin.data.statistics import MomentAccumulator
from merlin.envs.registry import Task
from merlin.envs.rollout import Rollout
from merlin.experts.controllers import Controller
from merlin.experts.ddpg import Replay, Scaling
from merlin.nets.layers import Normaliser


class RunningMoments:
    """Running moments of observations and goals.

    Only the first `steps` observations of each episode are included. With advice, details matter
    at the start of an episode; later the object is far away.
    """

    def __init__(self, observation: int, goal: int, steps: int | None = None):
        self._steps = steps
        self._seen = {
            "observation": MomentAccumulator((observation,)),
            "goal": MomentAccumulator((goal,)),
        }

    def add(self, played: Rollout) -> None:
        achieved = played.achieved_goals.reshape(-1, played.achieved_goals.shape[-1])
        states = played.observations[:, : self._steps]
        self._seen["observation"].add(states.reshape(-1, states.shape[-1]))
        self._seen["goal"].add(np.concatenate([achieved, played.desired_goals]))

    def scaling(self) -> Scaling:
        return Scaling(*(Normaliser(s.moments(), epsilon=0.0) for s in self._seen.values()))

    def to_json(self) -> dict[str, list]:
        return {name: seen.sums.tolist() for name, seen in self._seen.items()}

    def restore(self, saved: dict[str, list]) -> None:
        """Restore the state saved by `to_json`."""
        for name, sums in saved.items():
            self._seen[name].sums = np.array(sums)


class ReplayBuffer:
    """All episodes of a run: on the device for sampling, on disk for resuming."""

    def __init__(
        self,
        task: Task,
        capacity: int,
        folder: Path | None,
        count: int = 0,
        controller: Controller | None = None,
    ):
        steps = task.episode_steps
        shapes = {
            "observations": (capacity, steps + 1, task.observation_dim),
            "actions": (capacity, steps, task.action_dim),
            "achieved_goals": (capacity, steps + 1, task.goal_dim),
            "desired_goals": (capacity, task.goal_dim),
        }
        self._controller = controller
        if controller is not None:
            shapes["advice"] = shapes["actions"]
        self._files = {
            name: _allocate(folder / f"{name}.npy" if folder else None, shape, count)
            for name, shape in shapes.items()
        }
        self.replay = Replay(
            **{name: jnp.asarray(array) for name, array in self._files.items()},
            filled=jnp.int32(count),
        )

    def add(self, played: Rollout) -> None:
        begin = int(self.replay.filled)
        new = played._asdict()
        if self._controller is not None:
            new["advice"] = _advice(self._controller, played)
        new = {name: new[name] for name in self._files}
        end = begin + len(played.actions)
        for name, rows in new.items():
            self._files[name][begin:end] = rows
        self.replay = _append(self.replay, new, begin)


def _advice(controller: Controller, played: Rollout) -> np.ndarray:
    """The actions of a controller in every state of the episodes."""
    states = played.observations[:, :-1]
    goals = np.repeat(played.desired_goals, states.shape[1], axis=0)
    advice = controller(states.reshape(len(goals), -1), goals)
    return advice.reshape(played.actions.shape).astype(np.float32)


def _allocate(path: Path | None, shape: tuple[int, ...], count: int) -> np.ndarray:
    """Allocate space for episodes, keeping the first `count` rows of an existing file."""
    if path is None:
        return np.zeros(shape, np.float32)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = np.array(np.load(path, mmap_mode="r")[:count]) if count else None
    room = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    if kept is not None:
        room[:count] = kept
    return room


@functools.partial(jax.jit, donate_argnums=0)
def _append(replay: Replay, new: dict[str, jax.Array], begin: jax.Array) -> Replay:
    fields = {
        name: jax.lax.dynamic_update_slice_in_dim(getattr(replay, name), rows, begin, 0)
        for name, rows in new.items()
    }
    return Replay(**fields, filled=begin + len(new["actions"]))
