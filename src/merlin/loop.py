"""The training loop: blind to the method, exact when resumed."""

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from merlin.augment.encoder import Encoder
from merlin.checkpoint import load_tree, save_tree
from merlin.data.images import Images
from merlin.data.relabel import sample_mixture
from merlin.errors import MerlinError
from merlin.evaluation import evaluate
from merlin.files import write_json
from merlin.latents import seeing
from merlin.learners import Learner, Policy
from merlin.progress import Progress
from merlin.runs import SeedLog, save_policy
from merlin.signals import Interrupted, signals
from merlin.streaming import streamed_chunk
from merlin.tasks.batch import Batch
from merlin.tasks.registry import Task
from merlin.types import PRNGKeyArray, Spec, State


@dataclass(frozen=True)
class Schedule:
    """How long to train and how often to look."""

    updates: int
    eval_every: int = 2000
    eval_episodes: int = 100
    final_episodes: int = 200
    log_every: int = 200
    checkpoint_every: int = 1000

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise MerlinError(f"--{name.replace('_', '-')}: {value} is not 1 or more.")

    def stops(self, after: int) -> Iterator[int]:
        """The updates at which the loop comes up for air; the same ones after a resume."""
        step = after
        while step < self.updates:
            step = min(
                self.updates,
                *(
                    (step // every + 1) * every
                    for every in (self.log_every, self.eval_every, self.checkpoint_every)
                ),
            )
            yield step


Sources = Any
"""Trajectories, or a pair of them: recorded and augmented."""


@dataclass
class Progression:
    """What is known of one seed so far, beside its state."""

    best: dict[str, Any] | None = None
    evaluations: list[dict[str, Any]] = field(default_factory=list)


def mixed_sizes(learner: Learner, mix: float) -> tuple[int, int]:
    """How many examples of a batch are recorded and how many are from augmented data."""
    added = round(mix * learner.batch_size)
    return learner.batch_size - added, added


def make_chunk(
    learner: Learner, sizes: tuple[int, int] | None = None
) -> Callable[..., tuple[State, dict]]:
    """The jitted inner loop: updates `start` to `stop`, sampling included, metrics averaged.

    With `sizes` the trajectories are a pair, and every batch has so many examples of each.

    The bounds are arguments of the compiled loop, so pieces of any length are one program, and
    every update's randomness is folded in from its number: how a run is cut up leaves no trace.
    """

    def chunk(
        state: State, trajectories: Sources, key: PRNGKeyArray, start: int, stop: int
    ) -> tuple[State, dict]:
        def update(step: Any, state: State) -> tuple[State, dict]:
            sample_key, update_key = jax.random.split(jax.random.fold_in(key, step))
            if sizes is None:
                batch = learner.relabel.sample(trajectories, sample_key, learner.batch_size)
            else:
                batch = sample_mixture(learner.relabel, trajectories, sample_key, sizes)
            return learner.update(state, batch, update_key)

        def body(step: Any, carry: tuple[State, dict]) -> tuple[State, dict]:
            state, metrics = update(step, carry[0])
            return state, jax.tree.map(jnp.add, carry[1], metrics)

        shapes = jax.eval_shape(update, start, state)[1]
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        state, total = jax.lax.fori_loop(start, stop, body, (state, zeros))
        return state, jax.tree.map(lambda x: x / jnp.float32(stop - start), total)

    return chunk


@functools.cache
def compiled_chunk(
    learner: Learner, together: bool, sizes: tuple[int, int] | None = None
) -> Callable[..., tuple[State, dict]]:
    """`make_chunk`, compiled once for all the seeds that train one after the other.

    The state is not donated: that would save a megabyte or two, and on a CPU it was never faster.
    """
    chunk = make_chunk(learner, sizes)
    if together:
        chunk = jax.vmap(chunk, in_axes=(0, None, 0, None, None))
    return jax.jit(chunk)


class Group:
    """Seeds that train together: one on a CPU, all of them on an accelerator."""

    def __init__(
        self,
        learner: Learner,
        spec: Spec,
        trajectories: Sources,
        task: Task | None,
        plan: Schedule,
        seeds: tuple[int, ...],
        folder: Path | None,
        config: dict[str, Any],
        batch: Batch | None,
        sizes: tuple[int, int] | None = None,
        images: Images | None = None,
        encoder: Encoder | None = None,
    ):
        self.learner, self.spec, self.trajectories = learner, spec, trajectories
        self.task, self.plan, self.seeds, self.folder = task, plan, seeds, folder
        self.batch = batch  # the task's environments, opened once for all evaluations
        self.encoder = encoder  # of images, if the data is its latents
        self.about = {key: config[key] for key in ("algo", "task", "variant")}
        keys = [jax.random.split(jax.random.key(seed)) for seed in seeds]
        self.init_keys = jnp.stack([k[0] for k in keys])
        self.update_keys = jnp.stack([k[1] for k in keys])
        self.chunk = (
            compiled_chunk(learner, len(seeds) > 1, sizes)
            if images is None
            else streamed_chunk(learner, images, sizes, config["shift"])
        )
        if len(seeds) == 1:
            self.update_keys = self.update_keys[0]

    def run(self, quiet: bool) -> tuple[list[Policy], list[dict[str, Any]]]:
        step, state, known = self._start()
        logs = [SeedLog(self.folder / f"seed-{seed}", step) for seed in self.seeds if self.folder]
        label = f"seed {', '.join(map(str, self.seeds))}"
        try:
            with Progress(label, self.plan.updates, "updates", quiet=quiet) as bar:
                state = self._loop(step, state, known, logs, bar)
        finally:
            for log in logs:
                log.close()
        return self._finish(state, known)

    def _start(self) -> tuple[int, State, list[Progression]]:
        init = lambda key: self.learner.init(key, self.spec)  # noqa: E731
        if len(self.seeds) == 1:
            build, key = init, self.init_keys[0]
        else:
            build, key = jax.vmap(init), self.init_keys
        at = self._checkpoint_path
        if at is None or not at.exists():
            return 0, self._place(build(key)), [Progression() for _ in self.seeds]
        state, about = load_tree(at, jax.eval_shape(build, key))
        return about["step"], self._place(state), [Progression(**p) for p in about["known"]]

    def _place(self, state: State) -> State:
        """Spread seeds over the devices, as many as divide their number."""
        if len(self.seeds) == 1 or jax.device_count() == 1:
            return state
        used = max(d for d in range(1, jax.device_count() + 1) if len(self.seeds) % d == 0)
        mesh = Mesh(np.array(jax.devices()[:used]), ("seed",))
        spread = NamedSharding(mesh, PartitionSpec("seed"))
        whole = NamedSharding(mesh, PartitionSpec())
        self.trajectories = jax.device_put(self.trajectories, whole)
        self.update_keys = jax.device_put(self.update_keys, spread)
        return jax.device_put(state, spread)

    def _loop(
        self,
        step: int,
        state: State,
        known: list[Progression],
        logs: list[SeedLog],
        bar: Progress,
    ) -> State:
        note = ""
        began, since = time.monotonic(), step
        with signals() as stopped:
            for stop in self.plan.stops(step):
                state, metrics = self.chunk(state, self.trajectories, self.update_keys, step, stop)
                step = stop
                values = {name: np.atleast_1d(value) for name, value in metrics.items()}
                if step % self.plan.log_every == 0 or step == self.plan.updates:
                    rate = (step - since) / (time.monotonic() - began)
                    for index, log in enumerate(logs):
                        row = {name: float(value[index]) for name, value in values.items()}
                        log.write(step, {**row, "updates_per_second": rate})
                    began, since = time.monotonic(), step
                scored = self.task and (
                    step % self.plan.eval_every == 0 or step == self.plan.updates
                )
                if scored:
                    note = self._evaluate(step, state, known, logs)
                    began, since = time.monotonic(), step
                bar.update(step, note, force=bool(scored))
                if stopped or step % self.plan.checkpoint_every == 0 or step == self.plan.updates:
                    self._save(step, state, known)
                if stopped and step < self.plan.updates:
                    raise Interrupted(self._farewell(step))
        return state

    def _policy(self, state: State, index: int) -> Policy:
        if len(self.seeds) > 1:
            state = jax.tree.map(lambda leaf: leaf[index], state)
        policy = self.learner.policy(state)
        return policy if self.encoder is None else seeing(self.encoder, policy)

    def _evaluate(
        self, step: int, state: State, known: list[Progression], logs: list[SeedLog]
    ) -> str:
        """Score every seed on fresh episodes; keep the best policy, as the paper does."""
        assert self.task is not None
        for index, seed in enumerate(self.seeds):
            policy = self._policy(state, index)
            # Other episodes at each look, and never those of the final score.
            first = int(np.random.SeedSequence((seed, step)).generate_state(1)[0]) // 4
            scores = evaluate(
                policy,
                self.task,
                episodes=self.plan.eval_episodes,
                seed=first,
                batch=self.batch,
            )
            row = {
                "step": step,
                "return": float(scores.returns.mean()),
                "success": float(scores.success.mean()),
            }
            known[index].evaluations.append(row)
            if logs:
                logs[index].write(
                    step, {"eval/return": row["return"], "eval/success": row["success"]}
                )
            best = known[index].best
            if best is None or row["return"] > best["return"]:
                known[index].best = row
                self._save_policy(seed, "best", policy, step)
        last = [k.evaluations[-1] for k in known]
        mean = {key: float(np.mean([row[key] for row in last])) for key in ("return", "success")}
        return f"return {mean['return']:.2f}  success {mean['success']:.2f}"

    @property
    def _checkpoint_path(self) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"checkpoint-{'-'.join(map(str, self.seeds))}.safetensors"

    def _save(self, step: int, state: State, known: list[Progression]) -> None:
        if self._checkpoint_path is not None:
            about = {"step": step, "known": [asdict(k) for k in known]}
            save_tree(self._checkpoint_path, state, about)

    def _save_policy(self, seed: int, name: str, policy: Policy, step: int) -> None:
        if self.folder is not None:
            path = self.folder / f"seed-{seed}" / f"{name}.safetensors"
            about = {**self.about, "seed": seed, "step": step}
            save_policy(path, policy, self.learner, self.spec, about)

    def _finish(
        self, state: State, known: list[Progression]
    ) -> tuple[list[Policy], list[dict[str, Any]]]:
        policies, rows = [], []
        for index, seed in enumerate(self.seeds):
            policy = self._policy(state, index)
            self._save_policy(seed, "policy", policy, self.plan.updates)
            row: dict[str, Any] = {"seed": seed, "best": known[index].best, "final": None}
            if self.task is not None:
                final = evaluate(
                    policy, self.task, episodes=self.plan.final_episodes, batch=self.batch
                )
                row["final"] = {k: v.tolist() for k, v in vars(final).items()}
            if self.folder is not None:
                write_json(self.folder / f"seed-{seed}" / "result.json", row)
            policies.append(policy)
            rows.append(row)
        return policies, rows

    def _farewell(self, step: int) -> str:
        if self.folder is None:
            return f"stopped at update {step}; without --out nothing was kept."
        return (
            f"stopped at update {step} of {self.plan.updates} (seed {self.seeds[0]}); go on with "
            f"`merlin train --out {self.folder} --resume`."
        )
