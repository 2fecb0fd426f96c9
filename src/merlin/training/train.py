"""Train and score policies, in memory or in a run folder."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from merlin.data import Dataset
from merlin.envs.batch import EnvBatch, make_batch
from merlin.envs.registry import Task
from merlin.errors import MerlinError
from merlin.io.files import write_json
from merlin.learners import Learner
from merlin.policies.base import Policy
from merlin.training.asked import Asked, read_option
from merlin.training.checkpoints import steps_done
from merlin.training.folder import opened, read_config, refuse_finished, write_config
from merlin.training.layout import is_run
from merlin.training.log import read_metrics
from merlin.training.loop import Group
from merlin.training.plan import Plan, about_augmentation
from merlin.training.prepare import prepare
from merlin.training.results import SeedResult, aggregate
from merlin.training.runs import (
    Run,
    restore_augmentation,
    restore_learner,
    settings_of,
)


def train(
    method: str | Learner,
    data: Dataset | str | Path,
    *,
    out: str | Path | None = None,
    shared: str | Path | None = None,
    resume: bool = False,
    quiet: bool = True,
    **asked: Unpack[Asked],
) -> Run:
    """Train one policy per seed and score it.

    `method` is a learner, or the name of a method on the command line, which then uses the values
    tuned for the task. `data` is a dataset or its path. `task` defaults to the dataset's own;
    without a task, or with "none", no episodes are played. A fraction `held_out` of the episodes is
    excluded from training, to measure how well the policy predicts them. It defaults to 0 with a
    task and to 0.1 without one; in the latter case it also selects the best policy. `Run.trust`
    uses these episodes.

    With `out`, everything is stored in that folder, and `resume` continues an interrupted run there
    with an identical result, byte for byte. `updates` and `seeds` set the amount of training.
    `eval_every`, `eval_episodes`, `final_episodes`, `log_every` and `checkpoint_every` set the
    schedule; a checkpoint is skipped if it would take over a tenth of the time. `augment` makes
    synthetic trajectories for each seed, and a fraction `mix` of every minibatch comes from them.
    `phi` gives the columns of a state that are its goal, if neither the data nor the task does.
    With images, `goal` selects goals as "vector" or "image", and `shift` is the maximum random
    shift of an image in pixels. `latents` trains an encoder first and the method on its latents,
    which is the default for methods that need vectors.

    With `shared`, latents and synthetic trajectories are stored in that folder, so that runs with
    the same data, settings and seed make them only once.
    """
    folder, common = read_option("out", out), read_option("shared", shared)
    if resume and folder is None:
        raise MerlinError("resume: needs the folder of the run; pass it as `out`.")
    if folder is not None:
        refuse_finished(folder, resume)
    return _run(Plan.make(method, data, asked), folder, resume, quiet, common)


def resume(
    out: str | Path,
    *,
    updates: int | None = None,
    task: str | None = None,
    quiet: bool = True,
) -> Run:
    """Continue the run in `out`, optionally to more `updates`.

    Pass `task` if the run uses a custom environment.
    """
    folder = Path(out)
    return _run(Plan.again(folder, read_config(folder), updates, task), folder, True, quiet)


def _run(
    plan: Plan, folder: Path | None, resume: bool, quiet: bool, shared: Path | None = None
) -> Run:
    if folder is None:
        return _train_all(plan, None, quiet, shared)
    with opened(folder, resume):
        plan = _agreed(plan, folder)
        write_config(folder, plan.config)
        return _train_all(plan, folder, quiet, shared)


def _train_all(plan: Plan, folder: Path | None, quiet: bool, shared: Path | None) -> Run:
    policies: list[Policy] = []
    rows: list[SeedResult] = []
    with _environments(plan.task) as batch:
        recorded = plan.data.on_device()
        for seeds in plan.groups:
            made = prepare(plan, recorded, seeds[0], folder, quiet, shared)
            for policy, row in Group(plan, made, seeds, folder, batch).run(quiet):
                policies.append(policy)
                rows.append(replace(row, **made.report))
    result = aggregate(plan.config, rows)
    if folder is not None:
        write_json(folder / "result.json", result.to_json())
    return Run(plan.config, tuple(policies), result, folder, tuple(rows))


@contextmanager
def _environments(task: Task | None) -> Iterator[EnvBatch | None]:
    """Open a task's environments once for all evaluations."""
    if task is None:
        yield None
        return
    with closing(make_batch(task, task.environments)) as batch:
        yield batch


def _agreed(plan: Plan, folder: Path) -> Plan:
    """The plan for a folder, after checking that an existing run there has the same settings."""
    if not is_run(folder):
        return plan
    config, there = plan.config, read_config(folder)
    # Settings added after the run was started have their defaults.
    where = folder / "run.json"
    learner = restore_learner(there.algo, there.settings, where)
    augment = restore_augmentation(there.augment, where)
    there = replace(there, settings=settings_of(learner), augment=about_augmentation(augment))
    if config.mix is None:  # earlier versions stored the share that they worked out
        config = replace(config, mix=there.mix)
    if name := there.difference(config):
        was, now = (c.to_json().get(name) for c in (there, config))
        raise MerlinError(
            f"{folder}: was started with {name}={was}, not {now}; "
            "resume it with the same, or choose another folder."
        )
    if there.data.fingerprint != config.data.fingerprint:
        raise MerlinError(
            f"{folder}: was started on other data ({there.data.path}); "
            "resume it on the same, or choose another folder."
        )
    for log in folder.glob("seed-*/metrics.jsonl"):
        for _ in read_metrics(log):
            pass  # a damaged line is refused before anything is written
    done = max(steps_done(folder), default=0)
    if done > config.schedule.updates:
        raise MerlinError(
            f"{folder}: has already done {done} updates, more than the {config.schedule.updates} "
            "requested; request at least as many."
        )
    # Whether seeds train in parallel was decided by the machine that started the run.
    return replace(plan, config=replace(config, together=there.together))
