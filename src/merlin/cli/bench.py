"""merlin bench"""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from merlin.cli.show import console
from merlin.errors import MerlinError


@dataclass(frozen=True)
class Bench:
    """Run a grid of trainings and keep one row of results for each.

    Grids: paper (the main tables), forward-backward, stitching, hindsight and horizon (the
    ablations), timing, and smoke (a little of everything, in minutes). Started again, only what
    is missing runs. For example:

      merlin bench smoke --out runs/smoke && merlin report runs/smoke
      merlin bench paper --tasks PointReach FetchReach --seeds 2 --out runs/paper
      merlin bench paper --dry-run
    """

    grid: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="GRID")]
    """Name of the grid."""
    out: Path | None = None
    """Folder of the rows; several grids may share one."""
    tasks: tuple[str, ...] = ()
    """Only these tasks."""
    variants: tuple[str, ...] = ()
    """Only these kinds of data: expert, random."""
    methods: tuple[str, ...] = ()
    """Only these methods."""
    seeds: int | None = None
    """How many seeds; the grid's own number unless given."""
    seed: int = 0
    """The first seed."""
    updates: int | None = None
    """Gradient steps; 5000 on the easier tasks and 100000 on the harder unless given."""
    preset: str | None = None
    """Named set of hyperparameters, for the methods that have it, e.g. small."""
    episodes: int | None = None
    """Episodes of data; as many as in the paper's unless given."""
    eval_every: int | None = None
    """Updates between evaluations; a fifth of all unless given."""
    final_episodes: int | None = None
    """Episodes that score a final policy; 1000 on Point tasks, 200 elsewhere unless given."""
    pixels: bool = False
    """Learn from images, on the tasks that have them; batches are small then."""
    latents: bool = False
    """Of images: half of the updates train an encoder, the others the method on its latents."""
    engine: str = "local"
    """Where cells run: local (one process per core) or ray."""
    workers: int | None = None
    """Cells at a time; one per core unless given."""
    address: str | None = None
    """Of a running Ray cluster; one is started here unless given."""
    retry_failed: bool = False
    """Run cells again that failed before."""
    dry_run: bool = False
    """Print the cells and about how long they take, and run nothing."""
    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def __call__(self) -> dict[str, Any]:
        from merlin.bench.board import Board
        from merlin.bench.estimate import Speeds, in_words, total_seconds
        from merlin.bench.grids import Choice, make_grid
        from merlin.tasks.batch import default_workers

        choice = Choice(
            tasks=self.tasks or None,
            variants=self.variants or None,
            methods=self.methods or None,
            seeds=self.seeds,
            first_seed=self.seed,
            updates=self.updates,
            preset=self.preset,
            episodes=self.episodes,
            eval_every=self.eval_every,
            final_episodes=self.final_episodes,
            pixels=self.pixels,
            latents=self.latents,
        )
        cells = make_grid(self.grid, choice)
        board = None
        if self.out is not None:
            board = Board(self.out)
            for cell in cells:
                board.check(cell)
        left = board.missing(cells, retry_failed=self.retry_failed) if board else cells
        speeds = Speeds(board.rows.values() if board else ())
        workers = self.workers or default_workers()
        seconds = total_seconds(left, speeds, workers)
        plan = f"{len(cells)} cells, {len(left)} to run, about {in_words(seconds)}"
        if self.dry_run:
            if not self.json:
                self._print(cells, {cell.name for cell in left}, speeds)
                print(plan)
            names = [cell.name for cell in cells]
            return {"cells": names, "missing": len(left), "seconds": round(seconds)}
        if self.out is None:
            raise MerlinError("--out: is missing; name the folder that the rows are written to.")
        print(plan, file=sys.stderr)
        return self._run(cells)

    def _run(self, cells: list[Any]) -> dict[str, Any]:
        from merlin.bench.runner import run_bench

        assert self.out is not None
        try:
            board = run_bench(
                self.grid,
                cells,
                self.out,
                command=self._command(),
                engine=self.engine,
                workers=self.workers,
                address=self.address,
                retry_failed=self.retry_failed,
                quiet=False,
            )
        except KeyboardInterrupt:
            print("merlin: stopped; the same command goes on where this was.", file=sys.stderr)
            sys.exit(130)
        rows = [board.rows[cell.name] for cell in cells]
        failed = sorted({row["cell"] for row in rows if row["status"] == "failed"})
        if not self.json:
            print(
                f"{self.out}: {len(rows) - len(failed)} cells done, {len(failed)} failed;", end=""
            )
            print(f" `merlin report {self.out}` shows them.")
        return {"out": str(self.out), "cells": len(rows), "failed": failed}

    def _command(self) -> str:
        """As it was given, but for what does not change the rows."""
        words = ["merlin", "bench", self.grid]
        for flag in ("tasks", "variants", "methods"):
            if values := getattr(self, flag):
                words += [f"--{flag}", *values]
        singles = ("seeds", "updates", "preset", "episodes", "eval_every", "final_episodes")
        for flag in singles:
            if (value := getattr(self, flag)) is not None:
                words += [f"--{flag.replace('_', '-')}", str(value)]
        if self.seed:
            words += ["--seed", str(self.seed)]
        words += [f"--{flag}" for flag in ("pixels", "latents") if getattr(self, flag)]
        return shlex.join([*words, "--out", self.out.name if self.out else "DIR"])

    def _print(self, cells: list[Any], missing: set[str], speeds: Any) -> None:
        from merlin.bench.estimate import in_words

        table = Table("grid", "cell", "updates", "about")
        for cell in cells:
            about = in_words(speeds.seconds(cell)) if cell.name in missing else "done"
            table.add_row(cell.grid, cell.name, str(cell.updates), about)
        console().print(table)
