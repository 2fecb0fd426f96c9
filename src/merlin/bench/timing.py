"""Measure the time of a method before the first update, per update and per action."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from merlin.augment.latents import Latents
from merlin.bench.grids import Cell
from merlin.data import Dataset
from merlin.data.images import Images
from merlin.learners.base import Learner
from merlin.learners.registry import Method
from merlin.policies.base import Policy
from merlin.policies.images import SeeingPolicy
from merlin.training.image_updates import streamed_chunk
from merlin.training.loop import compiled_chunk
from merlin.training.plan import Plan
from merlin.training.prepare import Sources, prepare
from merlin.types import Spec

ACTION_BATCHES = (1, 100)
TIMED_SECONDS = 2.0
SLOW_SECONDS = 10.0
"""A call that takes longer than this is timed only once."""


def measure(cell: Cell, method: Method, data: Dataset, latents: Latents | None) -> dict[str, Any]:
    """Measure a method on a dataset, excluding the compilation of updates and actions.

    `before_s` is the time to compute latents and trajectories, measured once. The others are the
    fastest of several rounds, because other load on the machine can only slow a round down.
    """
    plan = Plan.make(
        method.learner,
        data,
        {"augment": method.augmentation, "task": cell.task, "latents": latents},
    )
    recorded = plan.data.on_device()
    began = time.perf_counter()
    made = prepare(plan, recorded, cell.seed, None, quiet=True)
    before = time.perf_counter() - began
    policy = fresh_policy(plan.learner, made.spec)
    if made.encoder is not None:
        policy = SeeingPolicy(made.encoder, policy)
    actions = {
        str(batch): round(1e6 * _fastest(acting(policy, data, batch)) / batch, 3)
        for batch in ACTION_BATCHES
    }
    updates = updating(plan.learner, made.spec, made.sources, made.images, made.sizes)
    per_update = _fastest(lambda: updates(cell.updates)) / cell.updates
    return {
        "update_ms": round(1000.0 * per_update, 4),
        "action_us": actions,
        "before_s": float(f"{before:.3g}"),
    }


def updating(
    learner: Learner,
    spec: Spec,
    sources: Sources,
    images: Images | None = None,
    sizes: tuple[int, int] | None = None,
) -> Callable[[int], None]:
    """A function that makes a number of updates from a fresh state, and waits for the last."""
    chunk = (
        compiled_chunk(learner, together=False, sizes=sizes)
        if images is None
        else streamed_chunk(learner, images, sizes)
    )
    key = jax.random.key(0)
    state = jax.jit(lambda k: learner.init(k, spec))(key)

    def run(updates: int) -> None:
        jax.block_until_ready(chunk(state, sources, key, 0, updates))

    return run


def fresh_policy(learner: Learner, spec: Spec) -> Policy:
    """The policy before the first update, which acts as fast as any later one."""
    return learner.policy(jax.jit(lambda k: learner.init(k, spec))(jax.random.key(0)))


def acting(policy: Policy, data: Dataset, batch: int) -> Callable[[], Any]:
    """A function that acts on a batch of states."""
    states = np.resize(data.observations[:batch], (batch, *data.observation_shape))
    goals = np.resize(data.achieved_goals[:batch], (batch, data.goal_dim))
    keys = jax.random.split(jax.random.key(1), batch)
    return lambda: np.asarray(_act(policy, states, goals, keys))


@eqx.filter_jit
def _act(policy: Policy, observations: Any, goals: Any, keys: Any) -> Any:
    return jax.vmap(policy, (0, 0, None, 0))(observations, goals, None, keys)


def _fastest(call: Callable[[], Any]) -> float:
    """Seconds of the fastest call, after a first one that compiles."""
    call()
    times: list[float] = []
    until = time.monotonic() + TIMED_SECONDS
    while len(times) < 3 or time.monotonic() < until:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
        if times[-1] > SLOW_SECONDS:
            break
    return min(times)
