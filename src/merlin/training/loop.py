"""The training loop: independent of the method, and exact when resumed."""

import functools
import shlex
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from merlin.data.goals import draw_mixture
from merlin.envs.batch import EnvBatch
from merlin.envs.names import parse
from merlin.errors import MerlinError
from merlin.evaluation.evaluate import Evaluation, evaluate
from merlin.evaluation.held_out import predict
from merlin.io.files import write_json
from merlin.io.interruption import Interrupted, rescued_by
from merlin.io.progress import Progress
from merlin.learners import Learner
from merlin.policies.base import Policy
from merlin.policies.images import SeeingPolicy
from merlin.training.checkpoints import Checkpoints, Evaluations, Position
from merlin.training.image_updates import streamed_chunk
from merlin.training.log import SeedLog
from merlin.training.plan import Plan
from merlin.training.prepare import Prepared, Sources
from merlin.training.results import Score, SeedResult
from merlin.training.runs import save_policy
from merlin.types import PRNGKeyArray, State

PIECE_SECONDS = 2.0
"""Seconds that the compiled loop runs before it returns to show progress."""
SAVE_SECONDS = 60.0
"""Maximum seconds between checkpoints, which limits the loss if a slow run is killed."""


class Pace:
    """Chooses the number of updates per call of the compiled loop."""

    def __init__(self) -> None:
        self.updates = 1

    def measure(self, updates: int, seconds: float) -> None:
        """Set the next number from the last call, which may have been too short to time well."""
        fit = int(PIECE_SECONDS * updates / max(seconds, 1e-9))
        self.updates = max(1, min(fit, 10 * self.updates))


def make_chunk(
    learner: Learner, sizes: tuple[int, int] | None = None
) -> Callable[..., tuple[State, dict]]:
    """The inner loop: updates `start` to `stop`, including sampling, with metrics added to `sums`.

    With `sizes`, the trajectories are a pair and every minibatch has that many examples of each.

    The bounds are arguments of the compiled loop, so one program serves all lengths. The randomness
    of each update is folded in from its number, so splitting a run does not change its result.
    """

    def update(
        step: Any, state: State, trajectories: Sources, key: PRNGKeyArray
    ) -> tuple[State, dict]:
        sample_key, update_key = jax.random.split(jax.random.fold_in(key, step))
        if sizes is None:
            batch = learner.sampling.draw(trajectories, sample_key, learner.batch_size)
        else:
            batch = draw_mixture(learner.sampling, trajectories, sample_key, sizes)
        return learner.update(state, batch, update_key)

    traced = jax.jit(update, inline=True)  # traced once, even where only its shapes are needed

    def chunk(
        state: State,
        trajectories: Sources,
        key: PRNGKeyArray,
        start: int,
        stop: int,
        sums: dict | None = None,
    ) -> tuple[State, dict]:
        def body(step: Any, carry: tuple[State, dict]) -> tuple[State, dict]:
            state, metrics = traced(step, carry[0], trajectories, key)
            return state, jax.tree.map(jnp.add, carry[1], metrics)

        if sums is None:
            sums = zeros(jax.eval_shape(traced, start, state, trajectories, key)[1])
        return jax.lax.fori_loop(start, stop, body, (state, sums))

    return chunk


def zeros(metrics: Any) -> Any:
    """Zeros with the shapes of the metrics."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), metrics)


@functools.cache
def compiled_chunk(
    learner: Learner, together: bool, sizes: tuple[int, int] | None = None
) -> Callable[..., tuple[State, dict]]:
    """`make_chunk`, compiled once for all seeds that train one after another.

    The state is not donated: it would save one or two megabytes, and on a CPU it was never faster.
    """
    alone = make_chunk(learner, sizes)
    axes = (0, None, 0, None, None, 0)

    def chunk(*arguments: Any) -> tuple[State, dict]:
        if not together:
            return alone(*arguments)
        return jax.vmap(alone, in_axes=axes[: len(arguments)])(*arguments)

    compiled = jax.jit(chunk)

    blank: dict[Any, dict] = {}

    def run(*arguments: Any, sums: dict | None = None) -> tuple[State, dict]:
        if sums is None:  # the program is the same with and without previous sums
            seeds = arguments[2].shape
            if seeds not in blank:
                blank[seeds] = zeros(jax.eval_shape(chunk, *arguments)[1])
            sums = blank[seeds]
        return compiled(*arguments, sums)

    return run


def _held_out(known: Evaluations) -> dict[str, Any] | None:
    """A seed's prediction of held-out steps in its last evaluation and in its best."""
    best = known.best_prediction
    if best is None:
        return None
    return {"final": asdict(known.predictions[-1]), "best": asdict(best)}


class Group:
    """Seeds that train in parallel: one on a CPU, all of them on an accelerator."""

    def __init__(
        self,
        plan: Plan,
        made: Prepared,
        seeds: tuple[int, ...],
        folder: Path | None,
        batch: EnvBatch | None,
    ):
        self.plan, self.made, self.seeds, self.folder, self.batch = plan, made, seeds, folder, batch
        self.schedule, self.sources = plan.config.schedule, made.sources
        self.saves = None if folder is None else Checkpoints(folder, seeds)
        self.saving = threading.Lock()  # a signal may have another thread save
        keys = [jax.random.split(jax.random.key(seed)) for seed in seeds]
        self.init_keys = jnp.stack([k[0] for k in keys])
        self.update_keys = jnp.stack([k[1] for k in keys])
        self.chunk = (
            compiled_chunk(plan.learner, len(seeds) > 1, made.sizes)
            if made.images is None
            else streamed_chunk(plan.learner, made.images, made.sizes, plan.config.shift)
        )
        if len(seeds) == 1:
            self.update_keys = self.update_keys[0]

    def run(self, quiet: bool) -> list[tuple[Policy, SeedResult]]:
        """Train; return the policy and the result of each seed."""
        label = f"seed {', '.join(map(str, self.seeds))}"
        with Progress(label, self.schedule.updates, "updates", quiet=quiet) as bar:
            bar.begin("initialising")
            self.at, self.known = self._start()
            self._saved = self._mark()  # nothing to save at the start
            with rescued_by(self._rescue):  # also while this thread saves by itself
                try:
                    self._loop(bar)
                    return self._finish()
                except Interrupted:
                    raise Interrupted(self._rescue()) from None

    def _start(self) -> tuple[Position, list[Evaluations]]:
        init = lambda key: self.plan.learner.init(key, self.made.spec)  # noqa: E731
        if len(self.seeds) == 1:
            build, key = init, self.init_keys[0]
        else:
            build, key = jax.vmap(init), self.init_keys
        found = None if self.saves is None else self.saves.load(jax.eval_shape(build, key))
        at, known = found or (Position(0, build(key)), [Evaluations() for _ in self.seeds])
        state, sums = self._place(at.state, at.sums)
        return replace(at, state=state, sums=sums), known

    def _place(self, state: State, sums: dict | None) -> tuple[State, dict | None]:
        """Distribute the seeds over as many devices as divide their number."""
        if len(self.seeds) == 1 or jax.device_count() == 1:
            return state, sums
        used = max(d for d in range(1, jax.device_count() + 1) if len(self.seeds) % d == 0)
        mesh = Mesh(np.array(jax.devices()[:used]), ("seed",))
        spread = NamedSharding(mesh, PartitionSpec("seed"))
        whole = NamedSharding(mesh, PartitionSpec())
        self.sources = jax.device_put(self.sources, whole)
        self.update_keys = jax.device_put(self.update_keys, spread)
        return jax.device_put((state, sums), spread)

    def _loop(self, bar: Progress) -> None:
        with ExitStack() as opened:
            logs = [
                opened.enter_context(
                    SeedLog(self.folder / f"seed-{seed}", self.at.logged, known.step)
                )
                for seed, known in zip(self.seeds, self.known, strict=True)
                if self.folder
            ]
            self._train(logs, bar)

    def _train(self, logs: list[SeedLog], bar: Progress) -> None:
        plan, pace = self.schedule, Pace()
        began, since = time.monotonic(), self.at.step
        saved, save_seconds = began, 0.0
        if self.at.step < plan.updates:
            bar.begin("compiling", self.at.step)
        while True:
            step = self.at.step
            if step > self.at.logged and plan.due(plan.log_every, step):
                self._log(logs, (step - since) / (time.monotonic() - began))
                began, since = time.monotonic(), step
            judged = self.plan.task is not None or self.plan.held_out is not None
            scored = judged and plan.due(plan.eval_every, step)
            if scored:
                self._evaluate(logs)
                began, since = time.monotonic(), step
                bar.measured(step, self._last_scores())
            elif step > 0:
                bar.update(step)
            late = time.monotonic() - saved > max(SAVE_SECONDS, 10 * save_seconds)
            if late or plan.due(plan.checkpoint_every, step):
                save_seconds = self._save()
                saved = time.monotonic()
            if step == plan.updates:
                return
            self._advance(min(plan.next_stop(step), step + pace.updates), pace)

    def _advance(self, stop: int, pace: Pace) -> None:
        """Run the updates up to `stop`."""
        at, began = self.at, time.monotonic()
        state, sums = self.chunk(
            at.state, self.sources, self.update_keys, at.step, stop, sums=at.sums
        )
        jax.block_until_ready((state, sums))
        self._refuse_odd(sums, np.isfinite, "loss is")
        pace.measure(stop - at.step, time.monotonic() - began)
        # A single assignment: a signal sees the position before the piece or after it.
        self.at = replace(at, step=stop, state=state, sums=sums)

    def _refuse_odd(self, tree: Any, sound: Callable[[Any], Any], what: str) -> None:
        """Stop before non-finite values are logged, scored or saved."""
        if not all(np.all(sound(np.asarray(leaf))) for leaf in jax.tree.leaves(tree)):
            kept = f"{self.folder} keeps the last checkpoint before" if self.folder else "it ends"
            raise MerlinError(
                f"seed {self.seeds[0]}: the {what} no longer finite after update {self.at.step}; "
                f"{kept}, train again with a lower learning_rate."
            )

    def _log(self, logs: list[SeedLog], rate: float) -> None:
        """Write the means of the metrics since the last full interval."""
        at = self.at
        assert at.sums is not None
        count = np.float32(at.step - at.since)
        means = {name: np.atleast_1d(value) / count for name, value in at.sums.items()}
        for index, log in enumerate(logs):
            row = {name: float(value[index]) for name, value in means.items()}
            log.write(at.step, {**row, "updates_per_second": rate})
        if at.step % self.schedule.log_every == 0:
            self.at = replace(at, sums=zeros(at.sums), since=at.step, logged=at.step)
        else:  # the end, within an interval: a longer run continues with these sums
            self.at = replace(at, logged=at.step)

    def _policy(self, index: int) -> Policy:
        state = self.at.state
        if len(self.seeds) > 1:
            state = jax.tree.map(lambda leaf: leaf[index], state)
        policy = self.plan.learner.policy(state)
        return policy if self.made.encoder is None else SeeingPolicy(self.made.encoder, policy)

    def _evaluate(self, logs: list[SeedLog]) -> None:
        """Score every seed on new episodes, held-out ones, or both; keep the best policy."""
        step = self.at.step
        for index, (seed, known) in enumerate(zip(self.seeds, self.known, strict=True)):
            if known.step == step:
                continue  # already evaluated before the run was interrupted
            policy = self._policy(index)
            row: dict[str, float] = {}
            after, better = known, False
            if self.plan.held_out is not None:
                image = self.plan.config.goal == "image"
                found = predict(policy, self.plan.held_out, step, image)
                after = replace(after, predictions=(*known.predictions, found))
                better = after.best_prediction is found
                told = {"action_error": found.action_error, "log_likelihood": found.log_likelihood}
                row |= {f"held_out/{k}": v for k, v in told.items() if v is not None}
            if self.plan.task is not None:  # the paper's protocol: the best return
                score = self._score(policy, seed)
                better = known.best is None or self._value(score) > self._value(known.best)
                best = score if better else known.best
                after = replace(after, best=best, scores=(*known.scores, score))
                row |= {"eval/return": score.mean_return, "eval/success": score.success}
            if better:
                self._save_policy(seed, "best", policy)
            if logs:
                logs[index].write(step, row)
            self.known[index] = after

    def _score(self, policy: Policy, seed: int) -> Score:
        # Different episodes in each evaluation, and never those of the final score.
        step = self.at.step
        first = int(np.random.SeedSequence((seed, step)).generate_state(1)[0]) // 4
        return Score.of(self._play(policy, self.schedule.eval_episodes, seed=first), step)

    def _last_scores(self) -> dict[str, float]:
        """The last evaluation, for the progress bar: means over seeds."""
        if self.plan.task is None:
            errors = [known.predictions[-1].action_error for known in self.known]
            return {"held-out action error": float(np.mean(errors))}
        last = [known.scores[-1] for known in self.known]
        return {
            "return": float(np.mean([score.mean_return for score in last])),
            "success": float(np.mean([score.success for score in last])),
        }

    def _value(self, score: Score) -> float:
        """The criterion for the best policy: return, or success if goals end an episode."""
        assert self.plan.task is not None
        return score.success if self.plan.task.goal_count else score.mean_return

    def _play(self, policy: Policy, episodes: int, **where: int) -> Evaluation:
        assert self.plan.task is not None
        return evaluate(policy, self.plan.task, episodes=episodes, batch=self.batch, **where)

    def _save(self) -> float:
        """Save the position to the run folder, unless saved already; return the seconds it took."""
        began = time.monotonic()
        with self.saving:
            mark = self._mark()
            if self.saves is not None and mark != self._saved:
                # Infinity is allowed: WGCSL fills its queue of advantages with it.
                self._refuse_odd(self.at.state, lambda leaf: ~np.isnan(leaf), "parameters are")
                self.saves.save(self.at, self.known)
                self._saved = mark
        return time.monotonic() - began

    def _rescue(self) -> str:
        """Save before the command ends; return the message that says how to continue."""
        self._save()
        return self._farewell()

    def _mark(self) -> tuple[int, ...]:
        """Identifies a checkpoint within a run."""
        return self.at.step, self.at.logged, *(known.step for known in self.known)

    def _save_policy(self, seed: int, name: str, policy: Policy) -> None:
        if self.folder is not None:
            config = self.plan.config
            about = {
                **{"algo": config.algo, "task": config.task, "variant": config.variant},
                **{"seed": seed, "step": self.at.step},
            }
            path = self.folder / f"seed-{seed}" / f"{name}.safetensors"
            save_policy(path, policy, self.plan.learner, self.made.spec, about)

    def _finish(self) -> list[tuple[Policy, SeedResult]]:
        finished = []
        for index, seed in enumerate(self.seeds):
            policy, final = self._policy(index), None
            self._save_policy(seed, "policy", policy)
            if self.plan.task is not None:
                final = self._play(policy, self.schedule.final_episodes)
            known = self.known[index]
            row = SeedResult(seed, known.best, final, _held_out(known))
            if self.folder is not None:
                write_json(self.folder / f"seed-{seed}" / "result.json", row.to_json())
            finished.append((policy, row))
        return finished

    def _farewell(self) -> str:
        step = self.at.step
        if self.folder is None:
            return f"stopped at update {step}; nothing was saved, since there is no run folder."
        command = ["merlin", "train", "--out", str(self.folder), "--resume"]
        if self.plan.task is not None and self.plan.task.module is not None:
            command += ["--task", parse(self.plan.task.name).base]
        return (
            f"stopped at update {step} of {self.schedule.updates} (seed {self.seeds[0]}); continue "
            f"with `{shlex.join(command)}`."
        )
