"""From a learner and a dataset to scored policies, in memory or in a run folder."""

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
from merlin.training.checkpoints import steps_done
from merlin.training.folder import is_run, opened, read_config, refuse_finished, write_config
from merlin.training.log import read_metrics
from merlin.training.loop import Group
from merlin.training.plan import Asked, Plan, about_augmentation
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
    resume: bool = False,
    quiet: bool = True,
    **asked: Unpack[Asked],
) -> Run:
    """Train one policy per seed and score it.

    The method is a learner, or a name that the command line knows; then values that were tuned for
    the task are used. The data is a dataset or its path. The task is the dataset's own unless
    `task` is given; without one, or with "none", no episode is played. A share `held_out` of the
    episodes is kept aside and not trained on, to measure how well the policy predicts them: 0 with
    a task, else 0.1, and then they choose the best policy. `Run.trust` asks more of them.

    With `out` everything is kept in that folder, and `resume` continues a run that was stopped
    there: the result is the same to the byte. `updates` and `seeds` say how much to train,
    `eval_every`, `eval_episodes`, `final_episodes`, `log_every` and `checkpoint_every` how often
    to do what. With an `augment` a share `mix` of every batch comes from trajectories that it
    makes, anew for each seed; `phi` says which part of a state is its goal, if neither data nor
    task does. From images, `goal` says whether goals are told as "vector" or "image", and `shift`
    by how many pixels each image is moved at random; `latents` trains an encoder first, and the
    method on its latents, as is done for methods that take only vectors.
    """
    folder = None if out is None else Path(out)
    if folder is not None:
        refuse_finished(folder, resume)
    return _run(Plan.make(method, data, asked), folder, resume, quiet)


def resume(
    out: str | Path,
    *,
    updates: int | None = None,
    task: str | None = None,
    quiet: bool = True,
) -> Run:
    """Continue the run in `out` as it was started, or to more `updates`.

    Name its environment as `task` if that is not one of merlin's own.
    """
    folder = Path(out)
    return _run(Plan.again(folder, read_config(folder), updates, task), folder, True, quiet)


def _run(plan: Plan, folder: Path | None, resume: bool, quiet: bool) -> Run:
    if folder is None:
        return _train_all(plan, None, quiet)
    with opened(folder, resume):
        plan = _agreed(plan, folder)
        write_config(folder, plan.config)
        return _train_all(plan, folder, quiet)


def _train_all(plan: Plan, folder: Path | None, quiet: bool) -> Run:
    policies: list[Policy] = []
    rows: list[SeedResult] = []
    with _environments(plan.task) as batch:
        recorded = plan.data.on_device()
        for seeds in plan.groups:
            made = prepare(plan, recorded, seeds[0], folder, quiet)
            for policy, row in Group(plan, made, seeds, folder, batch).run(quiet):
                policies.append(policy)
                rows.append(replace(row, **made.report))
    result = aggregate(plan.config, rows)
    if folder is not None:
        write_json(folder / "result.json", result.to_json())
    return Run(plan.config, tuple(policies), result, folder, tuple(rows))


@contextmanager
def _environments(task: Task | None) -> Iterator[EnvBatch | None]:
    """A task's environments, opened once for all evaluations."""
    if task is None:
        yield None
        return
    with closing(make_batch(task, task.environments)) as batch:
        yield batch


def _agreed(plan: Plan, folder: Path) -> Plan:
    """The plan for a folder, after checking that a run that is there is the one asked for."""
    if not is_run(folder):
        return plan
    config, there = plan.config, read_config(folder)
    # Settings that are newer than the run have their default there.
    where = folder / "run.json"
    learner = restore_learner(there.algo, there.settings, where)
    augment = restore_augmentation(there.augment, where)
    there = replace(there, settings=settings_of(learner), augment=about_augmentation(augment))
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
        read_metrics(log)
    done = max(steps_done(folder), default=0)
    if done > config.schedule.updates:
        raise MerlinError(
            f"{folder}: has {done} updates already, more than the {config.schedule.updates} "
            "asked for; ask for at least as many."
        )
    # Whether seeds train together was up to the machine that started the run.
    return replace(plan, config=replace(config, together=there.together))
