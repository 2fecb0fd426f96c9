"""Policy files and run folders of any method, without the training."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from merlin.augment.encoder import Encoder
from merlin.augment.latents import describe_encoder
from merlin.envs.registry import Task
from merlin.learners import Learner
from merlin.learners.registry import method_name
from merlin.policies.base import Policy
from merlin.policies.images import SeeingPolicy
from merlin.training.folder import RunConfig, Schedule, Source, write_config
from merlin.training.runs import save_policy, settings_of
from merlin.types import Moments, Spec


def write_policy(
    path: Path,
    task: Task,
    learner: Learner,
    rng: np.random.Generator,
    *,
    image: tuple[int, ...] | None = None,
    goal_image: bool = False,
    encoder: Encoder | None = None,
) -> Policy:
    """A policy of a task's shapes with random arrays; its bounds are not symmetric.

    It sees images if it is given their shape, or the encoder before it.
    """
    observation = (task.observation_dim,)
    if encoder is not None:
        sizes = describe_encoder(encoder)
        observation = (sizes["dim"] * sizes["units"] + sizes["goals"],)
    elif image is not None:
        observation = image
    blank = np.zeros(task.action_dim, np.float32)
    spec = Spec(
        observation_shape=observation,
        action_low=blank,
        action_high=blank,
        goal_dim=task.goal_dim,
        max_horizon=task.episode_steps,
        observation_moments=_moments(observation),
        goal_moments=_moments((task.goal_dim,)),
        tolerance=0.1,
        goal_image=goal_image,
    )
    shapes = jax.eval_shape(lambda key: learner.policy(learner.init(key, spec)), jax.random.key(0))
    if encoder is not None:
        shapes = SeeingPolicy(encoder, shapes)
    policy = jax.tree_util.tree_map_with_path(lambda where, leaf: _fill(where, leaf, rng), shapes)
    if goal_image:  # the same as the observation's in every trained policy
        policy = eqx.tree_at(lambda p: p.goal_normaliser, policy, policy.observation_normaliser)
    save_policy(path, policy, learner, spec, {"task": task.name})
    return policy


def _fill(where: Any, leaf: Any, rng: np.random.Generator) -> np.ndarray:
    """Random numbers for an array of a policy, by its name."""
    name = jax.tree_util.keystr(where)
    if name.endswith("phi"):
        return np.arange(leaf.size, dtype=leaf.dtype)
    if leaf.dtype.kind == "i":  # the tables of a map
        return rng.integers(-1, len(leaf), leaf.shape).astype(leaf.dtype)
    if name.endswith("centres"):
        return rng.standard_normal(leaf.shape).astype(leaf.dtype)
    if name.endswith("scale"):
        low = 0.01 if leaf.ndim == 0 else 0.5
        return np.asarray(rng.uniform(low, 2 * low, leaf.shape), leaf.dtype)
    if name.endswith("limit"):  # where normalised inputs end, per dimension
        return np.linspace(4.0, 8.0, leaf.size).reshape(leaf.shape).astype(leaf.dtype)
    if name.endswith("mean") and leaf.size > 1000:  # an image
        return rng.uniform(0, 255, leaf.shape).astype(leaf.dtype)
    # A layer with such weights keeps the size of what goes through it.
    spread = np.sqrt(2 / np.prod(leaf.shape[:-1])) if leaf.ndim > 1 else 1.0
    return (spread * rng.standard_normal(leaf.shape)).astype(leaf.dtype)


def _moments(shape: tuple[int, ...]) -> Moments:
    return Moments(np.zeros(shape, np.float32), np.ones(shape, np.float32))


def write_run(folder: Path, task: Task, learner: Learner, rng: np.random.Generator) -> Path:
    """A run folder with one such policy."""
    write_policy(folder / "seed-0" / "policy.safetensors", task, learner, rng)
    config = RunConfig(
        algo=method_name(learner),
        settings=settings_of(learner),
        task=task.name,
        data=Source(),
        dimensions=(task.observation_dim, task.action_dim, task.goal_dim),
        seeds=(0,),
        together=False,
        schedule=Schedule(updates=1),
    )
    write_config(folder, config)
    return folder
