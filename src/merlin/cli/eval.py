"""merlin eval"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from merlin.cli.environment import DEFAULT, OwnEnvironment
from merlin.cli.show import console, scores
from merlin.envs.registry import Task, choose
from merlin.errors import MerlinError
from merlin.training.folder import RunConfig


@dataclass(frozen=True)
class Eval:
    """Evaluate the policies of a run on fixed, seeded episodes.

    For example:

      merlin eval runs/rooms --episodes 1000
      merlin eval runs/rooms --horizon 1 5 10 20 50
      merlin eval runs/rooms --video rooms.mp4 --video-episodes 9
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A run folder."""
    episodes: int | None = None
    """Episodes per seed, the same ones for every policy; by default 200, or 50 per goal for tasks
    with fixed goals."""
    horizon: tuple[int, ...] = ()
    """Horizon to condition the policy on (several for a sweep); by default its own."""
    temperature: float | None = None
    """Factor on the policy's standard deviation when sampling actions; 0 takes the mean action;
    by default the policy's own, which is 0 except for methods that always sample."""
    checkpoint: str = "final"
    """Which policies to evaluate: final, or best (selected by evaluations during training)."""
    task: str | None = None
    """Task to evaluate in, by default the run's own: one with the same dimensions, or your own
    environment as module:EnvId, which is imported only if you name it here."""
    environment: OwnEnvironment = DEFAULT
    video: Path | None = None
    """Write a video of the first episodes of the first seed to this .mp4 or .gif file."""
    video_episodes: int = 4
    """Number of episodes shown side by side in the video."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        from merlin.evaluation.evaluate import evaluate, summarise
        from merlin.training.runs import load_run

        if self.video is not None:
            from merlin.evaluation.video import check_drawing, check_video, save_video

            check_video(self.video, self.video_episodes)
            if len(self.horizon) > 1:
                raise MerlinError("--video: shows a single horizon; give at most one --horizon.")
        run = load_run(self.run, self.checkpoint)
        seen = self._task(run.config)
        if self.video is not None:
            check_drawing(seen)
        episodes = seen.final_episodes if self.episodes is None else self.episodes
        sweep = []
        for horizon in self.horizon or (None,):
            played = [
                evaluate(
                    policy,
                    seen,
                    episodes=episodes,
                    horizon=horizon,
                    temperature=self.temperature,
                )
                for policy in run.policies
            ]
            told = run.policy.own_horizon if horizon is None else horizon
            sweep.append({"horizon": told, "episodes": episodes, **summarise(played)})
        about = {
            "task": seen.name,
            "algo": run.config.algo,
            "checkpoint": self.checkpoint,
            "updates": run.config.schedule.updates,
            "seeds": len(run.policies),
            "temperature": run.policy.temperature or 0.0
            if self.temperature is None
            else self.temperature,
        }
        if not self.json:
            rows = [(self._label(row["horizon"]), row) for row in sweep]
            seeds = "1 seed" if len(run.policies) == 1 else f"{len(run.policies)} seeds"
            title = "{algo} on {task}, {updates} updates, {each}"
            console().print(scores(title.format(**about, each=seeds), rows))
        if self.video is not None:
            save_video(
                self.video,
                run.policy,
                seen,
                episodes=self.video_episodes,
                horizon=self.horizon[0] if self.horizon else None,
                temperature=self.temperature,
                quiet=False,
            )
            about["video"] = str(self.video)
            if not self.json:
                console().print(f"video: {self.video}")
        if len(sweep) == 1:
            return {**about, **sweep[0]}
        return {**about, "episodes": episodes, "sweep": sweep}

    def _task(self, config: RunConfig) -> Task:
        """The task to evaluate in: the one the user asks for, or the run's own."""
        asked = self.environment.of_task(self.task)
        task = choose(config.task, asked)
        if task is None:
            raise MerlinError(
                f"{self.run}: does not name its task; give one to evaluate in with --task."
            )
        seen = task.as_seen(config.dimensions[:-2], config.goal)
        seen.check_fit(config.dimensions, str(self.run))
        return seen

    def _label(self, horizon: int | None) -> str:
        which = f"{self.checkpoint} policy"
        return which if horizon is None else f"{which}, horizon {horizon}"
