"""merlin eval"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from merlin.cli.show import console, scores
from merlin.errors import MerlinError
from merlin.tasks.registry import find


@dataclass(frozen=True)
class Eval:
    """Score a run's policies on fixed, seeded episodes.

    For example:

      merlin eval runs/rooms --episodes 1000
      merlin eval runs/rooms --horizon 1 5 10 20 50
      merlin eval runs/rooms --video rooms.mp4 --video-episodes 9
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A run folder."""
    episodes: int = 200
    """Episodes per seed; the same ones for every policy."""
    horizon: tuple[int, ...] = ()
    """Horizon that the policy is told; several for a sweep. Its own unless given."""
    temperature: float | None = None
    """0 acts on the mean; otherwise sample with so many times the policy's deviation. Its own
    unless given: 0, but for methods that only ever sample."""
    checkpoint: str = "final"
    """Which policies: final, or best (chosen by evaluations during training)."""
    task: str | None = None
    """Another task of the same dimensions to evaluate in."""
    video: Path | None = None
    """Film the first seed's first episodes into this .mp4 or .gif."""
    video_episodes: int = 4
    """How many episodes the film shows side by side."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        from merlin.evaluation import evaluate, summarise
        from merlin.runs import load_run
        from merlin.video import check_video, save_video

        if self.video is not None:
            check_video(self.video, self.video_episodes)
            if len(self.horizon) > 1:
                raise MerlinError("--video: shows one horizon; give one --horizon, or none.")
        run = load_run(self.run, self.checkpoint)
        task = self.task or run.config["task"]
        if task is None:
            raise MerlinError(f"{self.run}: names no task; say where to evaluate with --task.")
        dimensions = run.config["dimensions"]
        seen = find(task).as_seen(dimensions[:-2], run.config.get("goal", "vector"))
        seen.check_fit(dimensions, str(self.run))
        sweep = []
        for horizon in self.horizon or (None,):
            played = [
                evaluate(
                    policy,
                    seen,
                    episodes=self.episodes,
                    horizon=horizon,
                    temperature=self.temperature,
                )
                for policy in run.policies
            ]
            told = horizon if horizon is not None else run.config["settings"].get("horizon")
            sweep.append({"horizon": told, "episodes": self.episodes, **summarise(played)})
        about = {
            "task": task,
            "algo": run.config["algo"],
            "checkpoint": self.checkpoint,
            "updates": run.config["updates"],
            "seeds": len(run.policies),
            "temperature": getattr(run.policy, "temperature", 0.0)
            if self.temperature is None
            else self.temperature,
        }
        if not self.json:
            rows = [(_told(row["horizon"]), row) for row in sweep]
            title = "{algo} on {task}, {updates} updates, {seeds} seed(s), {checkpoint} policy"
            console().print(scores(title.format(**about), rows))
        if self.video is not None:
            save_video(
                self.video,
                run.policy,
                seen,
                episodes=self.video_episodes,
                horizon=self.horizon[0] if self.horizon else None,
                temperature=self.temperature,
            )
            about["video"] = str(self.video)
            if not self.json:
                console().print(f"film: {self.video}")
        if len(sweep) == 1:
            return {**about, **sweep[0]}
        return {**about, "episodes": self.episodes, "sweep": sweep}


def _told(horizon: int | None) -> str:
    return "no horizon" if horizon is None else f"horizon {horizon}"
