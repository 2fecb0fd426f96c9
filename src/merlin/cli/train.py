"""merlin train"""

import dataclasses
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from merlin import DEFAULT_METHOD, METHODS
from merlin.cli.columns import NONE, ColumnOptions, LogColumns
from merlin.cli.environment import DEFAULT, OwnEnvironment
from merlin.cli.flags import with_flags
from merlin.cli.show import console, scores
from merlin.envs.names import parse
from merlin.envs.registry import NO_TASK, check_variant, choose, find, own
from merlin.errors import MerlinError
from merlin.io.extras import DISTRIBUTION, is_installed
from merlin.io.interruption import interruptible

IMAGE_METHOD = "merlin"
"""The default for images, which Merlin sees itself; Merlin-plus would need an encoder first."""
ALGO = (
    f"The method; by default {DEFAULT_METHOD}, which has nothing to tune, and {IMAGE_METHOD} for "
    "images. merlin is the paper's method, merlin-map is for goals farther away than episodes go. "
    f"All methods: {', '.join(METHODS)}."
)


@dataclass(frozen=True)
class Train:
    """Train policies on a dataset, or on a task whose data is collected first.

    For example:

      merlin train data/rooms --out runs/rooms
      merlin train PointRooms --variant random --algo merlin --updates 4000 --out runs/rooms
      merlin train PointRooms --variant random --algo merlin-np --set threshold=auto --out runs/np
      merlin train buffer.pkl --task FetchPush --variant expert --out runs/push
      merlin train PointReach --variant random --pixels --updates 2000 --out runs/pixels
      merlin train ogbench:pointmaze-medium-navigate-v0 --updates 20000 --out runs/maze
      merlin train --out runs/rooms --resume

    Methods that need a tuned hindsight ratio and horizon, such as merlin, use the values tuned for
    the task (see --tuned); override them with `--set hindsight_ratio=0.5 horizon=5`. A run stopped
    with Ctrl-C can be resumed with --resume.
    """

    data: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="DATA|TASK")] = None
    """A dataset folder, a .pkl or .npz file, minari:ID, a robot log (see docs/logs.md), or a task
    (see `merlin tasks`). Not needed with --resume."""
    out: Path | None = None
    """Run folder to write."""
    algo: Annotated[str | None, tyro.conf.arg(help=ALGO)] = None
    augment: str | None = None
    """Also train on generated trajectories, with any learner: reverse-model, reverse-stitch,
    forward-model or forward-stitch."""
    mix: float | None = None
    """Fraction of each batch drawn from generated trajectories, if the method generates any;
    by default their fraction among all trajectories."""
    task: str | None = None
    """Task to evaluate in, if the dataset does not name it; none to skip evaluation. Your own
    environment, module:EnvId, is imported only if you name it here."""
    environment: OwnEnvironment = DEFAULT
    variant: str | None = None
    """Kind of data, expert or random: which data to collect for a task, and which tuned values to
    use. For OGBench: downloaded or regenerated, by default the downloaded file if it exists."""
    tuned: str = "own"
    """Which tuned values to use: own (for data that merlin collects) or paper (the paper's)."""
    episodes: int | None = None
    """Number of episodes to collect for a task; by default as many as the paper's data has."""
    pixels: bool = False
    """Collect images instead of states, for tasks that support it (see `merlin tasks`)."""
    goal: str = "vector"
    """How goals are given to a policy that observes images: vector, or image."""
    shift: int = 0
    """Shift every image at random by up to this many pixels (data augmentation)."""
    latents: bool = False
    """Train an image encoder first, and the method on its latents. All methods but merlin,
    merlin-np, merlin-ts, gcsl, gcsl-ts, wgcsl, am and gofar always do so."""
    columns: LogColumns = NONE
    updates: int | None = None
    """Number of gradient steps; by default 5000. With --resume, the new total."""
    seeds: int = 1
    """Number of policies to train, with seeds S, S + 1, ..."""
    seed: int = 0
    """The first seed S."""
    set: tuple[str, ...] = ()
    """Hyperparameters of the method and of its augmentation, as field=value."""
    preset: str | None = None
    """A named set of hyperparameters of the method, e.g. small; --set overrides it."""
    resume: bool = False
    """Resume the run in --out; the result is the same as without the interruption."""
    eval_every: int = 2000
    """Updates between evaluations, from which `best` is selected."""
    eval_episodes: int = 100
    """New episodes per evaluation."""
    final_episodes: int | None = None
    """Fixed episodes on which the final policy is evaluated; by default 200, or 50 per goal for
    tasks with fixed goals."""
    log_every: int = 200
    """Updates between lines of metrics.jsonl."""
    checkpoint_every: int = 1000
    """Updates between checkpoints; more if saving them would take over a tenth of the time."""
    held_out: float | None = None
    """Fraction of episodes that are held out to measure how well the policy predicts their
    actions; by default 0 if there is a task to evaluate in, else 0.1, which also selects `best`."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        if self.out is None:
            raise MerlinError("--out: is missing; give the folder to write the run to.")
        with interruptible(self._farewell):
            run = self._resume(self.out) if self._only_resume() else self._train(self.out)
        curve = self._draw(self.out)
        if not self.json:
            self._print(run.result)
        return {"run": str(self.out), "curve": curve, **run.result.to_json()}

    def _draw(self, out: Path) -> str | None:
        """The learning curve in the run folder, if it can be drawn."""
        if not is_installed("matplotlib"):
            print(
                f"no learning curve is drawn: `pip install '{DISTRIBUTION}[plots]'` brings "
                "Matplotlib.",
                file=sys.stderr,
            )
            return None
        from merlin.training.curve import save_curve

        return str(save_curve(out))

    def _farewell(self) -> str:
        """The message for a run that is stopped in the middle of a long step."""
        from merlin.training.layout import is_run

        assert self.out is not None
        if not is_run(self.out):
            return f"stopped before the run in {self.out} started; run the command again."
        return f"stopped; continue with `merlin train --out {shlex.quote(str(self.out))} --resume`."

    def _only_resume(self) -> bool:
        if self.data is not None:
            return False
        if not self.resume:
            raise MerlinError("data: is missing; give a dataset folder or the name of a task.")
        free = {"out", "updates", "task", "resume", "json"}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in free and value != field.default:
                name = next(iter(value.given())) if isinstance(value, ColumnOptions) else field.name
                flag = f"--{name.replace('_', '-')}"
                raise MerlinError(
                    f"{flag}: cannot be changed on --resume; only --updates can be increased."
                )
        return True

    def _resume(self, out: Path) -> Any:
        from merlin.training.train import resume

        return resume(out, updates=self.updates, task=self.task, quiet=False)

    def _train(self, out: Path) -> Any:
        from merlin.augment.latents import take_latents
        from merlin.data.describe import how_to_evaluate
        from merlin.data.formats import with_task
        from merlin.learners.registry import configure
        from merlin.training.folder import read_config, refuse_finished
        from merlin.training.layout import is_run
        from merlin.training.plan import method_for, without_desired_goals
        from merlin.training.train import train

        refuse_finished(out, self.resume)
        if self.seeds < 1:
            raise MerlinError(f"seeds: {self.seeds} is below 1; give 1 or more.")
        if self.seed < 0:
            raise MerlinError(f"seed: {self.seed} is negative; give 0 or more.")
        settings = dict(_setting(text) for text in self.set)
        latents = take_latents(settings, asked=self.latents)
        # Report a wrong name before collecting data.
        how: dict[str, Any] = {"preset": self.preset, "augment": self.augment}
        going_on = self.resume and is_run(out)
        algo = self.algo or (read_config(out).algo if going_on else DEFAULT_METHOD)
        if configure(algo, settings, **how).augmentation is None and self.mix is not None:
            raise MerlinError(f"mix: {algo} generates no trajectories; add --augment NAME.")
        data = self._open()
        if self.algo is None and data.has_images and not going_on:
            algo = IMAGE_METHOD
        asked = self.task and self.environment.of(self.task)
        task = choose(data.task, asked)
        data = with_task(data, task) if asked and task else data
        if hint := how_to_evaluate(data):
            print(with_flags(hint, self), file=sys.stderr)
        if self.variant is not None:
            check_variant(self.variant, task)
            data = dataclasses.replace(data, variant=self.variant)
        lacking = without_desired_goals(algo, data, self.goal)
        if lacking and not lacking.keys() & settings.keys():
            lacks = "desired" if data.desired_goals is None else "images of"
            print(
                f"the data has no {lacks} goals: training with hindsight_ratio=1", file=sys.stderr
            )
        method = method_for(
            algo,
            data,
            task,
            settings={**lacking, **settings},
            encoded=latents is not None,
            tuning=self.tuned,
            **how,
        )
        optional = {"final_episodes": self.final_episodes, "held_out": self.held_out}
        given: dict[str, Any] = {k: v for k, v in optional.items() if v is not None}
        return train(
            method.learner,
            data,
            augment=method.augmentation,
            mix=self.mix,
            task=task or NO_TASK,
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
            log_every=self.log_every,
            checkpoint_every=self.checkpoint_every,
            **given,
        )

    def _open(self) -> Any:
        """The dataset at a path, or a task's dataset, collected into the cache if it is missing."""
        from merlin.collection.collect import collect_cached, default_variant
        from merlin.data import load
        from merlin.data.formats import is_data

        assert self.data is not None
        if own(self.data) is None and is_data(self.data):
            if self.pixels:
                raise MerlinError(
                    f"--pixels: {self.data} is already recorded; convert it to images with "
                    f"`merlin convert {shlex.quote(self.data)} DESTINATION --pixels`."
                )
            self.environment.of_task(self.task)
            if self.episodes is not None:
                raise MerlinError(
                    f"--episodes: is for collecting the data of a task; {self.data} is already "
                    "recorded, leave it out."
                )
            return load(self.data, **self.columns.given())
        if "/" in self.data and ":" not in self.data:
            return load(self.data)  # a missing folder: report that, not an unknown task
        for flag in self.columns.given():
            raise MerlinError(
                f"--{flag}: {self.data} is a task, whose data has its own columns; omit --{flag}."
            )
        task = find(self.environment.of(self.data))
        variant = self.variant or default_variant(task)
        if variant is None:
            raise MerlinError(
                "--variant: is missing; give the kind of data to collect, e.g. --variant random."
            )
        check_variant(variant, task)
        episodes = task.episodes if self.episodes is None else self.episodes
        how: dict[str, Any] = {"episodes": episodes, "pixels": self.pixels, "quiet": False}
        return load(collect_cached(task, variant, **how))

    def _print(self, result: Any) -> None:
        if result.final is None:
            self._print_held_out(result.held_out)
            return
        count = len(result.seeds)
        title = (
            f"{result.algo} on {result.task} ({result.variant or 'own data'}), "
            f"{result.updates} updates, {count} seed{'s' if count > 1 else ''}"
        )
        rows = [("final", result.final), ("best in training", result.best)]
        console().print(scores(title, rows))
        command = ["merlin", "eval", str(self.out), "--episodes", "1000"]
        if own(result.task) is None:  # its code runs only if the user names it
            command += ["--task", parse(result.task).base]
        print(f"{self.out}: done; `{shlex.join(command)}` evaluates it again.")

    def _print_held_out(self, held_out: dict[str, Any] | None) -> None:
        """The evaluation without a task: how well the policy predicts held-out episodes."""
        if held_out is None:
            print(
                f"{self.out}: trained; without a task and without held-out episodes, nothing was "
                "evaluated."
            )
            return
        for which in ("final", "best"):
            numbers = (f"{k.replace('_', ' ')} {v:.3f}" for k, v in held_out[which].items())
            print(f"  {which}: {', '.join(numbers)}")
        print(
            f"{self.out}: trained; no task is known, so it was evaluated on held-out episodes "
            f"(a fraction of {held_out['share']:g}, at least one). `best` is the policy with the "
            "lowest action error on them (0 is perfect, 1 is half the range of an action)."
        )
        trust = shlex.join(["merlin", "trust", str(self.out)])
        print(f"`{trust}` estimates which goals it can reach.")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise MerlinError(f"--set {text}: is not of the form field=value, e.g. --set horizon=5.")
    return name, value
