"""merlin train"""

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from merlin.cli.show import console, scores
from merlin.errors import MerlinError
from merlin.tasks.registry import TASKS, VARIANTS, find


@dataclass(frozen=True)
class Train:
    """Train policies from a dataset, or from a task whose data is collected on the way.

    For example:

      merlin train data/rooms --algo merlin --updates 4000 --out runs/rooms
      merlin train PointRooms --variant random --updates 4000 --seeds 2 --out runs/rooms
      merlin train PointRooms --variant random --algo merlin-np --set threshold=auto --out runs/np
      merlin train buffer.pkl --task FetchPush --variant expert --out runs/push
      merlin train PointReach --variant random --pixels --updates 2000 --out runs/pixels
      merlin train --out runs/rooms --resume

    The hindsight ratio and the horizon are those tuned for the task, unless set:
    `--set hindsight_ratio=0.5 horizon=5`. Ctrl-C leaves a run that --resume continues.
    """

    data: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="DATA|TASK")] = None
    """A dataset folder, a .pkl or .npz file, minari:ID, or a task (see `merlin tasks`); not
    needed with --resume."""
    out: Path | None = None
    """Run folder to write."""
    algo: str = "merlin"
    """The method: merlin, merlin-p, merlin-np, merlin-mb, merlin-ts, or another learner."""
    augment: str | None = None
    """Train on made trajectories too: reverse-model, reverse-stitch, forward-model or
    forward-stitch, with any learner."""
    mix: float = 0.5
    """Share of every batch that is from made trajectories, if the method makes any."""
    task: str | None = None
    """Task to evaluate in, if the dataset does not name it; also module:EnvId of your own."""
    variant: str | None = None
    """Kind of data, expert or random: what to collect for a task, and which tuned values."""
    episodes: int | None = None
    """How many episodes to collect for a task; as many as in the paper's data unless given."""
    pixels: bool = False
    """Collect images for a task instead of states (see `merlin tasks` for those that have them)."""
    goal: str = "vector"
    """How goals are told where observations are images: vector, or image."""
    shift: int = 0
    """Move every image at random by up to so many pixels (data augmentation)."""
    latents: bool = False
    """Train an encoder of images first, and the method on its latents; what takes only vectors
    (dd, g-dql, beso, merlin-p, merlin-mb) does so by itself."""
    phi: str | None = None
    """Part of a state that is its goal, as 0:2 or 0,1,5, if achieved goals are not recorded."""
    updates: int | None = None
    """Gradient steps; 5000 unless given. With --resume: train on to so many."""
    seeds: int = 1
    """How many policies to train, with the seeds S, S + 1, ..."""
    seed: int = 0
    """The first seed S."""
    set: tuple[str, ...] = ()
    """Hyperparameters of the method and of its augmentation, as field=value."""
    preset: str | None = None
    """A named set of hyperparameters of the method, e.g. small; --set goes over it."""
    resume: bool = False
    """Continue the run at --out; it ends as if it had never been stopped."""
    eval_every: int = 2000
    """Updates between evaluations (what `best` chooses from)."""
    eval_episodes: int = 100
    """Fresh episodes per evaluation."""
    final_episodes: int = 200
    """Fixed episodes that score the final policy."""
    log_every: int = 200
    """Updates between lines of metrics.jsonl."""
    checkpoint_every: int = 1000
    """Updates between checkpoints."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        if self.out is None:
            raise MerlinError("--out: is missing; name the folder that the run is written to.")
        from merlin.loop import Interrupted

        try:
            run = self._resume(self.out) if self._only_resume() else self._train(self.out)
        except Interrupted as stop:
            print(f"merlin: {stop}", file=sys.stderr)
            sys.exit(130)
        if not self.json:
            self._print(run.result)
        return {"run": str(self.out), **run.result}

    def _only_resume(self) -> bool:
        if self.data is not None:
            return False
        if not self.resume:
            raise MerlinError("data: is missing; give a dataset folder or the name of a task.")
        free = {"out", "updates", "resume", "json"}
        for field in dataclasses.fields(self):
            if field.name not in free and getattr(self, field.name) != field.default:
                flag = f"--{field.name.replace('_', '-')}"
                raise MerlinError(
                    f"{flag}: a run is resumed as it was started; only --updates may be more."
                )
        return True

    def _resume(self, out: Path) -> Any:
        from merlin.training import resume

        return resume(out, updates=self.updates, quiet=False)

    def _train(self, out: Path) -> Any:
        from merlin.data.formats import with_task
        from merlin.latents import take_latents
        from merlin.methods import configure, image_values
        from merlin.training import refuse_finished, train

        refuse_finished(out, self.resume)
        if self.seeds < 1:
            raise MerlinError(f"--seeds: {self.seeds} is not 1 or more.")
        settings = dict(_setting(text) for text in self.set)
        latents = take_latents(settings, asked=self.latents)
        # Complain of a wrong name before collecting data.
        how: dict[str, Any] = {"preset": self.preset, "augment": self.augment}
        method = configure(self.algo, settings, **how)
        if method.augmentation is None and self.mix != 0.5:
            raise MerlinError(f"--mix: {self.algo} makes no trajectories; name an --augment.")
        if self.variant not in (None, *VARIANTS):
            raise MerlinError(f"--variant: {self.variant!r} is not {' or '.join(VARIANTS)}.")
        data = self._open()
        task = find(self.task or data.task) if self.task or data.task else None
        data = with_task(data, task) if self.task and task else data
        variant = self.variant or data.variant
        tuned = task.tuned.get(variant) if task and variant else None
        chosen = "hindsight_ratio" in settings or not hasattr(method.learner, "hindsight_ratio")
        unseen = self.goal == "image" and data.has_images
        if (data.desired_goals is None or unseen) and not chosen:
            settings["hindsight_ratio"] = "1"
            lacks = "images of" if unseen else "desired"
            print(
                f"the data has no {lacks} goals: training with hindsight_ratio=1", file=sys.stderr
            )
        values = tuned.values() if tuned else {}
        values |= image_values(method, data, encoded=latents is not None)
        method = configure(self.algo, settings, values, **how)
        return train(
            method.learner,
            dataclasses.replace(data, variant=variant),
            augment=method.augmentation,
            mix=self.mix,
            task=task,
            goal=self.goal,
            shift=self.shift,
            latents=latents,
            updates=5000 if self.updates is None else self.updates,
            seeds=range(self.seed, self.seed + self.seeds),
            out=out,
            resume=self.resume,
            quiet=False,
            eval_every=self.eval_every,
            eval_episodes=self.eval_episodes,
            final_episodes=self.final_episodes,
            log_every=self.log_every,
            checkpoint_every=self.checkpoint_every,
        )

    def _open(self) -> Any:
        """The dataset at a path, or a task's own, collected into the cache when it is missing."""
        from merlin.data import load
        from merlin.data.formats import is_data
        from merlin.experts.collect import cached_path, collect_cached

        assert self.data is not None
        if self.data not in TASKS and is_data(self.data):
            if self.pixels:
                raise MerlinError(
                    f"--pixels: {self.data} is recorded already; make images of it with "
                    f"`merlin convert {self.data} DESTINATION --pixels`."
                )
            return load(self.data, phi=self.phi)
        if "/" in self.data and ":" not in self.data:
            return load(self.data)  # a folder that is not there: say so, not 'no such task'
        if self.phi is not None:
            raise MerlinError(f"--phi: {self.data} records its goals itself; leave --phi out.")
        task = find(self.data)
        if self.variant is None:
            raise MerlinError("--variant: is missing; say which data to collect, e.g. random.")
        episodes = task.episodes if self.episodes is None else self.episodes
        path = cached_path(task, self.variant, episodes=episodes, pixels=self.pixels)
        if not path.exists():
            print(f"collecting {episodes} episodes into {path}", file=sys.stderr)
        how: dict[str, Any] = {"episodes": episodes, "pixels": self.pixels, "quiet": False}
        return load(collect_cached(task, self.variant, **how))

    def _print(self, result: dict[str, Any]) -> None:
        if "final" not in result:
            print(f"{self.out}: trained; no task is known, so nothing was evaluated.")
            return
        count = len(result["seeds"])
        title = (
            f"{result['algo']} on {result['task']} ({result['variant'] or 'own data'}), "
            f"{result['updates']} updates, {count} seed{'s' if count > 1 else ''}"
        )
        rows = [("final", result["final"]), ("best (the paper's protocol)", result["best"])]
        console().print(scores(title, rows))
        print(f"{self.out}: done; `merlin eval {self.out} --episodes 1000` measures it again.")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise MerlinError(f"--set {text}: is not field=value, e.g. --set horizon=5.")
    return name, value
