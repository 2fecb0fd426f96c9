"""Policy files and run folders of any method, without the training."""

from dataclasses import asdict
from pathlib import Path

import jax
import numpy as np

from merlin.files import write_json
from merlin.folders import FORMAT, SCHEMA
from merlin.learners import Learner, Policy
from merlin.loop import Schedule
from merlin.methods import method_name
from merlin.runs import save_policy, settings_of
from merlin.tasks.registry import Task
from merlin.types import Moments, Spec


def write_policy(path: Path, task: Task, learner: Learner, rng: np.random.Generator) -> Policy:
    """A policy of a task's shapes with random arrays; its bounds are not symmetric."""

    def fill(where, leaf):
        if jax.tree_util.keystr(where).endswith("scale"):
            return rng.uniform(0.5, 1.0, leaf.shape).astype(leaf.dtype)
        # A layer with such weights keeps the size of what goes through it.
        spread = np.sqrt(2 / leaf.shape[0]) if leaf.ndim > 1 else 1.0
        return (spread * rng.standard_normal(leaf.shape)).astype(leaf.dtype)

    def moments(size):
        return Moments(np.zeros(size, np.float32), np.ones(size, np.float32))

    blank = np.zeros(task.action_dim, np.float32)
    spec = Spec(
        observation_shape=(task.observation_dim,),
        action_low=blank,
        action_high=blank,
        goal_dim=task.goal_dim,
        max_horizon=task.episode_steps,
        observation_moments=moments(task.observation_dim),
        goal_moments=moments(task.goal_dim),
        tolerance=0.1,
    )
    shapes = jax.eval_shape(lambda key: learner.policy(learner.init(key, spec)), jax.random.key(0))
    policy = jax.tree_util.tree_map_with_path(fill, shapes)
    save_policy(path, policy, learner, spec, {"task": task.name})
    return policy


def write_run(folder: Path, task: Task, learner: Learner, rng: np.random.Generator) -> Path:
    """A run folder with one such policy."""
    write_policy(folder / "seed-0" / "policy.safetensors", task, learner, rng)
    config = {
        "format": FORMAT,
        "schema": SCHEMA,
        "algo": method_name(learner),
        "settings": settings_of(learner),
        "task": task.name,
        "data": {},
        "dimensions": [task.observation_dim, task.action_dim, task.goal_dim],
        "seeds": [0],
        "together": False,
        **asdict(Schedule(updates=1)),
    }
    write_json(folder / "run.json", config)
    return folder
