"""Play episodes of a task with a policy, and score their returns and successes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from merlin.envs.batch import GOAL_IMAGE, EnvBatch, Observation, make_batch
from merlin.envs.registry import Task, find
from merlin.envs.rollout import (
    Rollout,
    concatenate,
    discounted,
    float32_or_images,
    rollout,
    truncate,
    waves,
)
from merlin.errors import MerlinError
from merlin.evaluation.statistics import summary
from merlin.io.schema import check_episodes
from merlin.policies.base import Policy, as_policy

DISCOUNT = 0.98
FINAL_SEED = 10_000_000
"""Seed of the first of the fixed episodes on which final policies are scored."""


@dataclass(frozen=True)
class Evaluation:
    """Scores of one policy, one number per episode."""

    returns: Float[np.ndarray, " episodes"]
    success: Float[np.ndarray, " episodes"]
    goals: Int[np.ndarray, " episodes"] | None = None  # index of the task's fixed goal, from 1

    def goal_success(self) -> dict[str, float]:
        """Success rate for each fixed goal; empty if the task has none."""
        if self.goals is None:
            return {}
        return {str(g): float(self.success[self.goals == g].mean()) for g in np.unique(self.goals)}

    def summary(self) -> dict[str, Any]:
        return summarise([self])

    def __str__(self) -> str:
        result = self.summary()
        spans = [
            "{} {:.2f} [{:.2f}, {:.2f}]".format(name, result[name]["mean"], *result[name]["ci95"])
            for name in ("return", "success")
        ]
        return f"{', '.join(spans)} over {len(self.returns)} episodes"


def summarise(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """Mean and 95 % interval of return and success over the episodes of several seeds.

    If the task has fixed goals, `goals` is the success rate for each.
    """
    found: dict[str, Any] = {
        "return": summary(np.stack([e.returns for e in evaluations])),
        "success": summary(np.stack([e.success for e in evaluations])),
    }
    each = [e.goal_success() for e in evaluations]
    if each[0]:
        found["goals"] = {goal: float(np.mean([e[goal] for e in each])) for goal in each[0]}
    return found


def evaluate(
    policy: Policy,
    task: Task | str,
    *,
    episodes: int = 100,
    seed: int = FINAL_SEED,
    horizon: int | None = None,
    temperature: float | None = None,
    batch: EnvBatch | None = None,
) -> Evaluation:
    """Play episodes `seed`, `seed + 1`, ... and score them.

    The policy may be any function of observation, goal, horizon and key. The return is the
    discounted number of steps that end at the goal, and success means being at the goal after the
    last step. If reaching the goal ends an episode, success means reaching it at any step.
    Consecutive seeds cycle through the fixed goals of a task, if it has any. Without a horizon, the
    policy uses its own. Pass `batch` to reuse environments between calls.
    """
    task = find(task)
    played = _waves(policy, task, episodes, seed, horizon, temperature, batch)
    scores = [score(wave) for wave in played]  # of images, only one wave fits in memory
    return Evaluation(
        returns=np.concatenate([s.returns for s in scores]),
        success=np.concatenate([s.success for s in scores]),
        goals=(seed + np.arange(episodes)) % task.goal_count + 1 if task.goal_count else None,
    )


def score(played: Rollout) -> Evaluation:
    """Discounted return and success at the last step of each episode."""
    return Evaluation(
        returns=discounted(played.rewards, DISCOUNT), success=played.success[:, -1].astype(float)
    )


def play(
    policy: Policy,
    task: Task | str,
    *,
    episodes: int,
    seed: int = FINAL_SEED,
    horizon: int | None = None,
    temperature: float | None = None,
) -> Rollout:
    """Play episodes and return them."""
    return concatenate(list(_waves(policy, task, episodes, seed, horizon, temperature, None)))


def _waves(
    policy: Policy,
    task: Task | str,
    episodes: int,
    seed: int,
    horizon: int | None,
    temperature: float | None,
    batch: EnvBatch | None,
) -> Iterator[Rollout]:
    """Play episodes in groups that run in parallel."""
    task = find(task)
    check_episodes("episodes", episodes)
    if horizon is not None and horizon < 1:
        raise MerlinError(f"horizon: {horizon} is not a number of steps; give 1 or more.")
    if not callable(policy):
        kind = type(policy).__name__
        raise MerlinError(f"policy: an object of type {kind} cannot act; pass run.policy.")
    policy = as_policy(policy)
    if horizon is not None and not policy.takes_horizon:
        raise MerlinError("horizon: this policy takes none; leave it out.")
    if temperature is not None:
        policy = with_temperature(policy, temperature)
    key = jax.random.key(seed)
    told = None if horizon is None else np.float32(horizon)
    opened = make_batch(task, task.environments) if batch is None else batch
    try:
        for seeds, count in waves(task, range(seed, seed + episodes)):
            act = _actor(policy, told, key, np.asarray(seeds, np.uint32))
            yield truncate(rollout(opened, act, seeds, task.episode_steps), count)
    finally:
        if batch is None:
            opened.close()


def with_temperature(policy: Policy, temperature: float) -> Any:
    """A copy of the policy that samples actions with this many times its standard deviation."""
    if not (np.isfinite(temperature) and temperature >= 0):
        raise MerlinError(f"temperature: {temperature} is not a non-negative number.")
    return policy.with_temperature(float(temperature))


def _actor(
    policy: Policy, told: ArrayLike | None, key: PRNGKeyArray, labels: np.ndarray
) -> Callable[[Observation, int], np.ndarray]:
    """The function that acts in one batch of episodes, with memory for their duration."""
    spread = lambda leaf: jnp.broadcast_to(leaf, (len(labels), *leaf.shape))  # noqa: E731
    memory = jax.tree.map(spread, policy.begin())

    def act(observation: Observation, t: int) -> np.ndarray:
        nonlocal memory
        state = float32_or_images(observation["observation"])
        goal = float32_or_images(observation.get(GOAL_IMAGE, observation["desired_goal"]))
        action, memory = _act(policy, memory, state, goal, told, key, np.uint32(t), labels)
        return np.asarray(action)

    return act


@eqx.filter_jit
def _act(
    policy: Policy,
    memory: Any,
    observation: ArrayLike,
    goal: ArrayLike,
    horizon: ArrayLike | None,
    key: PRNGKeyArray,
    t: ArrayLike,
    labels: ArrayLike,
) -> tuple[Float[Array, "batch action"], Any]:
    # One key per episode and step, so that an episode's noise does not depend on the others.
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, t), labels)
    return jax.vmap(policy.step, (0, 0, 0, None, 0))(memory, observation, goal, horizon, keys)
