"""Training of an expert: cycles of playing and learning, with exact resuming."""

import functools
import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from jaxtyping import Float

import merlin
from merlin.collection.behaviour import Behaviour, Expert, play_episodes
from merlin.envs.registry import Task
from merlin.envs.rollout import Rollout, concatenate, discounted
from merlin.errors import MerlinError
from merlin.experts.actor import Actor
from merlin.experts.controllers import CONTROLLERS
from merlin.experts.ddpg import DDPG, DDPGState, Replay, Scaling, to_numpy, track
from merlin.experts.fine_tuning import fine_tune
from merlin.experts.plans import PLANS, Plan
from merlin.experts.replay_buffer import ReplayBuffer, RunningMoments
from merlin.io.files import is_empty, read_json, refuse_links, write_bytes, write_json
from merlin.io.interruption import Interrupted, signals
from merlin.io.progress import Progress
from merlin.nets.checkpoint import load_tree, save_tree
from merlin.parallel.workers import Pool, default_workers

DISCOUNT = 0.98
CURVE_SEED, CARD_SEED = 1_000_003, 1_000_033
"""Seeds of the learning curve, which selects the actor, and of the card, which scores it."""


class Players:
    """Plays episodes on all cores, or in this process if the task is vectorised."""

    def __init__(self, task: Task, workers: int | None = None):
        self.task = task
        self._memory: dict[str, Any] = {}
        count = default_workers() if workers is None else workers
        self._pool = None if task.vector_entry_point else Pool(count)
        self._count = count

    def play(self, behaviour: Behaviour, seed: int, indices: Sequence[int]) -> Rollout:
        steps = self.task.episode_steps
        if self._pool is None:
            return play_episodes(self._memory, self.task, behaviour, seed, indices, steps)
        share = -(-len(indices) // self._count)
        jobs = [
            (self.task, behaviour, seed, indices[begin : begin + share], steps)
            for begin in range(0, len(indices), share)
        ]
        return concatenate(list(self._pool.map(play_episodes, jobs)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()


def evaluate_actor(
    opened: Players, actor: Any, episodes: int, seed: int
) -> tuple[Float[np.ndarray, " episodes"], Float[np.ndarray, " episodes"]]:
    """Return and success of an actor without noise, per seeded episode."""
    played = opened.play(Expert(actor, noise=0.0, uniform=0.0), seed, range(episodes))
    return discounted(played.rewards, DISCOUNT), played.success[:, -1].astype(float)


def collected_return(opened: Players, actor: Any, episodes: int, seed: int) -> float:
    """Mean return of the data that an actor collects, computed like the published statistics.

    These start with the reward of the first state and end one state before the last.
    """
    played = opened.play(Expert(actor), seed, range(episodes))
    task = opened.task
    assert task.tolerance is not None
    apart = played.achieved_goals - played.desired_goals[:, None]
    at_goal = np.linalg.norm(apart[:, : task.episode_steps - 1], axis=-1) <= task.tolerance
    return float(np.mean(discounted(at_goal, DISCOUNT)))


@functools.partial(jax.jit, static_argnums=0)
def _improve(
    learner: DDPG,
    state: DDPGState,
    replay: Replay,
    demonstrations: Replay | None,
    scaling: Scaling,
    key: jax.Array,
    updates: int,
    keep: float,
) -> tuple[DDPGState, dict]:
    def update(step: Any, state: DDPGState) -> tuple[DDPGState, dict]:
        sub = jax.random.fold_in(key, step)
        state, metrics = learner.update(state, replay, demonstrations, scaling, sub)
        return track(state, keep), metrics

    return jax.lax.fori_loop(1, updates, lambda i, carry: update(i, carry[0]), update(0, state))


def train_expert(
    task: Task,
    out: Path,
    *,
    plan: Plan | None = None,
    seed: int = 0,
    workers: int | None = None,
    resume: bool = False,
    quiet: bool = True,
) -> dict[str, Any]:
    """Train an expert for a task and return its card.

    Writes to `out`: `actor.safetensors` (the actor with the best evaluation), `card.json`,
    `curve.jsonl`, and the files needed to resume.
    """
    if plan is None:
        if task.name not in PLANS:
            raise MerlinError(f"task {task.name}: has no training plan for an expert; pass a plan.")
        plan = PLANS[task.name]
    config = {"task": task.name, "seed": seed, "plan": json.loads(json.dumps(asdict(plan)))}
    _open(out, config, resume)
    with Players(task, workers) as opened:
        about = _cycles(task, plan, seed, out, opened, quiet)
        made = _card(task, plan, seed, opened, about, out)
    write_json(out / "card.json", made)
    return made


def _open(out: Path, config: dict[str, Any], resume: bool) -> None:
    at = out / "expert.json"
    if not at.exists():
        if out.exists() and not is_empty(out):
            raise MerlinError(f"{out}: is not empty and contains no expert; choose another `out`.")
        write_json(at, config)
        return
    if not resume:
        raise MerlinError(
            f"{out}: already contains an expert; pass `resume=True` or another `out`."
        )
    refuse_links(out)
    there = read_json(at, "an expert's folder")
    if "settling" in there["plan"]:  # the name in folders of earlier versions
        there["plan"]["fine_tuning"] = there["plan"].pop("settling")
    # A run may be extended; all other settings must be the same.
    same = lambda c: {**c, "plan": {**c["plan"], "cycles": 0}}  # noqa: E731
    if same(there) != same(config):
        raise MerlinError(f"{out}: was started with other settings; choose another `out`.")
    write_json(at, config)


def _cycles(
    task: Task, plan: Plan, seed: int, out: Path, opened: Players, quiet: bool
) -> dict[str, Any]:
    learner = plan.learner
    init_key, update_key = jax.random.split(jax.random.key(seed))
    state = learner.init(init_key, task.observation_dim, task.goal_dim, task.action_dim)
    early = task.episode_steps // 4 if plan.advised else None
    seen = RunningMoments(task.observation_dim, task.goal_dim, early)
    about: dict[str, Any] = {"cycle": 0, "seconds": 0.0, "best": None, "curve": []}
    checkpoint = out / "checkpoint.safetensors"
    if checkpoint.exists():
        state, about = load_tree(checkpoint, state)
        seen.restore(about["sums"])
    # With advice, demonstrations join the replay buffer; otherwise they have their own.
    shown, ahead, controller = None, 0, None
    if plan.advised:
        ahead, controller = plan.demonstrations, CONTROLLERS[str(plan.controller)]
    filled = ahead + about["cycle"] * plan.episodes if about["cycle"] else 0
    capacity = ahead + plan.cycles * plan.episodes
    buffer = ReplayBuffer(task, capacity, out / "replay", filled, controller)
    demonstrations = None if filled and plan.advised else _demonstrations(task, plan, seed, opened)
    if demonstrations is not None and about["cycle"] == 0:
        seen.add(demonstrations)
    if demonstrations is not None and plan.advised:
        buffer.add(demonstrations)
    elif demonstrations is not None:
        kept = ReplayBuffer(task, plan.demonstrations, None)
        kept.add(demonstrations)
        shown = kept.replay
    began = time.monotonic() - about["seconds"]
    label = f"expert for {task.name}"
    with Progress(label, plan.cycles, "cycles", quiet=quiet) as bar, signals() as stopped:
        for cycle in range(about["cycle"], plan.cycles):
            uniform = 1.0 if cycle == 0 and plan.controller is None else plan.uniform
            behaviour = Expert(_actor(plan, state, seen.scaling()), plan.noise, uniform)
            begin = cycle * plan.episodes
            played = opened.play(behaviour, seed, range(begin, begin + plan.episodes))
            buffer.add(played)
            seen.add(played)
            scaling = seen.scaling()
            state, metrics = _improve(
                plan.learner_at(cycle),
                state,
                buffer.replay,
                shown,
                scaling,
                jax.random.fold_in(update_key, cycle),
                plan.updates,
                plan.keep,
            )
            about["cycle"], about["seconds"] = cycle + 1, time.monotonic() - began
            last = cycle + 1 == plan.cycles
            looked = (cycle + 1) % plan.eval_every == 0 or last
            if looked:
                row = _look(task, plan, opened, _actor(plan, state, scaling), about, metrics, out)
                note = f"success {row['success']:.2f}  return {row['return']:.2f}"
                bar.update(cycle + 1, note, force=True)
            else:
                bar.update(cycle + 1)
            if looked or stopped:
                about["sums"] = seen.to_json()
                save_tree(checkpoint, state, about)
            if stopped and not last:
                raise Interrupted(
                    f"stopped after cycle {cycle + 1} of {plan.cycles}; {_go_on(task, out)}"
                )
    if plan.fine_tuning:
        began, scaling = time.monotonic() - about["seconds"], seen.scaling()
        actor, error = fine_tune(
            learner,
            state.actor,
            buffer.replay,
            scaling,
            update_key,
            updates=plan.fine_tuning,
            label=f"{label}, fine-tuning",
            when_stopped=f"stopped during fine-tuning; {_go_on(task, out)}",
            quiet=quiet,
        )
        about["seconds"] = time.monotonic() - began
        about["best"] = None  # the fine-tuned actor is the expert
        _look(task, plan, opened, to_numpy(actor, scaling), about, {"disagreement": error}, out)
    return about


def _go_on(task: Task, out: Path) -> str:
    return f"resume with `merlin expert train {task.name} --out {shlex.quote(str(out))} --resume`."


def _actor(plan: Plan, state: DDPGState, scaling: Scaling) -> Actor:
    """The actor that plays: with advice it is the target network, whose strikes vary less."""
    return to_numpy(state.target_actor if plan.advised else state.actor, scaling)


def _look(
    task: Task,
    plan: Plan,
    opened: Players,
    actor: Actor,
    about: dict[str, Any],
    metrics: dict[str, Any],
    out: Path,
) -> dict[str, Any]:
    """Evaluate the actor, write the learning curve, and save the actor if it is the best so far.

    The best actor has the highest return. If the return of the published data is known, it is the
    actor whose data comes closest to it.
    """
    returns, success = evaluate_actor(opened, actor, plan.eval_episodes, CURVE_SEED)
    row = {
        "cycle": about["cycle"],
        "steps": about["cycle"] * plan.episodes * task.episode_steps,
        "seconds": round(about["seconds"], 1),
        "return": float(returns.mean()),
        "success": float(success.mean()),
        **{name: float(value) for name, value in metrics.items()},
    }
    row["score"] = row["return"]
    if plan.published is not None:
        row["collected_return"] = collected_return(opened, actor, plan.eval_episodes, CURVE_SEED)
        row["score"] = -abs(row["collected_return"] - plan.published)
    about["curve"].append(row)
    lines = "".join(json.dumps(entry) + "\n" for entry in about["curve"])
    write_bytes(out / "curve.jsonl", lines.encode())
    best = about["best"]
    if best is None or row["score"] > best.get("score", best["return"]):
        about["best"] = row
        actor.save(out / "actor.safetensors")
    return row


def _card(
    task: Task, plan: Plan, seed: int, opened: Players, about: dict[str, Any], out: Path
) -> dict[str, Any]:
    """The card of an expert, with scores on episodes that were not used to select it."""
    episodes = 200
    returns, success = evaluate_actor(
        opened, Actor.load(out / "actor.safetensors"), episodes, CARD_SEED
    )
    default = PLANS.get(task.name)
    longer = "" if default == plan else f" --cycles {plan.cycles}"
    return {
        "task": task.name,
        "episodes": episodes,
        "success": float(success.mean()),
        "return": float(returns.mean()),
        "collected_return": about["best"].get("collected_return"),  # with the noise of data
        "environment_steps": about["cycle"] * plan.episodes * task.episode_steps,
        "kept_from_steps": about["best"]["steps"],
        "seconds": round(about["seconds"]),
        "method": "DDPG+HER" + "".join(f", {help}" for help in plan.helped_by),
        "command": f"merlin expert train {task.name} --seed {seed}{longer} --out DIR",
        "version": merlin.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "plan": json.loads(json.dumps(asdict(plan))),
    }


def _demonstrations(task: Task, plan: Plan, seed: int, opened: Players) -> Rollout | None:
    if plan.controller is None:
        return None
    behaviour = Expert(CONTROLLERS[plan.controller], *plan.demonstration_noise)
    # A separate stream, so that they differ from the first training episodes.
    return opened.play(behaviour, seed + 500_009, range(plan.demonstrations))
