"""The named grids: the cells behind each table and figure of the paper.

A cell is one task, kind of data, method, seed and setting. Methods come from the registry, so a
newly registered method is included automatically.
"""

import dataclasses
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from merlin.bench.grid_options import GridOptions
from merlin.bench.rows import IMAGE_SETTINGS
from merlin.collection.collect import default_variant
from merlin.envs.ogbench import DOWNLOADED, REGENERATED
from merlin.envs.registry import (
    OGBENCH,
    TASKS,
    TUNINGS,
    VARIANTS,
    Task,
    check_variant,
    find,
)
from merlin.errors import MerlinError
from merlin.io.settings import instead
from merlin.learners.registry import configure, field_names, method_names, preset_names

TWINS = ("merlin-mb", "merlin-ts", "gcsl-ts")
"""Methods of the paper's side experiments, which are not in its main table."""
RELEASED = "gofar-release"
"""Preset that reproduces a baseline as the paper ran it, where our default is stronger."""
DIFFUSION = ("dd", "g-dql", "beso")
"""Methods that denoise at every step. At release size, a CPU needs days to train them."""
SMALL, DEFAULT = "small", "default"
"""Preset of the diffusion methods in the grids, and the name that selects no preset."""
MOST_EPISODES = 10_000
OGBENCH_OWN = ("gcbc", "gcivl", "gciql", "qrl", "crl", "hiql")
OGBENCH_METHODS = (*OGBENCH_OWN, "merlin", "merlin-plus", "merlin-map")
RATIOS = ("0", "0.2", "0.5", "0.8", "1")
HORIZONS = (1, 5, 10, 20, 50)


@dataclass(frozen=True)
class Cell:
    """One run of the benchmark, and how it is scored."""

    grid: str  # the table or figure it is for
    task: str
    variant: str
    algo: str
    seed: int
    updates: int
    settings: tuple[tuple[str, str], ...] = ()  # over the task's tuned values
    preset: str | None = None
    tuned: str = "own"  # which tuned values: on our data or the paper's
    episodes: int | None = None  # of the data; as many as in the paper's unless given
    eval_every: int = 1000
    eval_episodes: int = 100
    final_episodes: int = 200
    horizons: tuple[int, ...] = ()  # the trained policy is scored at these as well
    timed: bool = False  # measure the time per update and per action instead of training
    pixels: bool = False  # observations are images

    @property
    def name(self) -> str:
        """A name that does not depend on the grid, so that cells shared by grids run once."""
        parts = [self.task, self.variant, self.algo]
        parts += [self.preset] if self.preset else []
        parts += [f"tuned={self.tuned}"] if self.tuned != "own" else []
        parts += [f"{key}={value}" for key, value in self.settings]
        parts += ["horizons"] if self.horizons else []
        parts += ["timed"] if self.timed else []
        parts += ["pixels"] if self.pixels else []
        return "-".join([*parts, f"s{self.seed}"]).replace("/", "_").replace(":", "_")

    @property
    def data_episodes(self) -> int:
        return find(self.task).episodes if self.episodes is None else self.episodes

    @property
    def command(self) -> str:
        """A command that trains the same policy; on one core, since threads change the rounding."""
        words = ["merlin", "train", self.task, "--variant", self.variant, "--algo", self.algo]
        words += ["--updates", str(self.updates), "--seed", str(self.seed)]
        words += ["--eval-every", str(self.eval_every), "--eval-episodes", str(self.eval_episodes)]
        words += ["--final-episodes", str(self.final_episodes)]
        if self.pixels:
            words += ["--pixels"]
        if self.episodes is not None:
            words += ["--episodes", str(self.episodes)]
        if self.preset is not None:
            words += ["--preset", self.preset]
        if self.tuned != "own":
            words += ["--tuned", self.tuned]
        if self.settings:
            words += ["--set", *(f"{key}={value}" for key, value in self.settings)]
        return f"NPROC=1 {shlex.join(words)} --out RUN"

    def describe(self) -> dict[str, Any]:
        """Everything that determines the result, as JSON; defaults are omitted."""
        asked = {**dataclasses.asdict(self), "settings": dict(self.settings)}
        del asked["grid"]
        if not self.pixels:
            del asked["pixels"]
        if self.tuned == "own":
            del asked["tuned"]
        return {**asked, "horizons": list(self.horizons)}


def _check(options: GridOptions) -> None:
    for name in options.tasks:
        task = find(name)
        if options.pixels:
            task.from_pixels()  # says so if it has no images
    for variant in options.variants:
        known = (*VARIANTS, DOWNLOADED, REGENERATED)
        if variant not in known:
            raise MerlinError(f"variants: {variant!r} is unknown; {instead(variant, known)}")
    for method in options.methods:
        configure(method)  # complains of a name that nobody registered
    if options.tuned not in TUNINGS:
        raise MerlinError(f"tuned: {options.tuned!r} is not {' or '.join(TUNINGS)}.")
    for name in ("seeds", "updates", "episodes", "eval_every", "final_episodes"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise MerlinError(f"{name}: {value} is not 1 or more.")
    if options.latents and not options.pixels:
        raise MerlinError("latents: are made of images; give `pixels` as well.")
    if options.latents and options.updates == 1:
        raise MerlinError("latents: one update cannot be shared; give 2 or more.")
    if options.seed < 0:
        raise MerlinError(f"seed: {options.seed} is negative; give 0 or more.")


def default_updates(task: Task, variant: str, pixels: bool) -> int:
    """The number at which Merlin's learning curve is flat; for images, what a laptop can run."""
    if task.name == "SawyerDoor" and not pixels:
        return 40_000 if variant == "random" else 15_000  # the door rarely moves in random data
    return 50_000 if is_harder(task) else 5_000


def default_episodes(task: Task) -> int | None:
    """As many as in the paper's data, limited to what can be collected in minutes."""
    return MOST_EPISODES if task.episodes > MOST_EPISODES and not task.goal_count else None


def is_harder(task: Task) -> bool:
    """Whether it is one of the paper's harder tasks, which have large datasets."""
    return task.episodes > 2_000


def default_seeds(task: Task, method: str) -> int:
    """As many as a laptop can run: fewer where updates are slow or numerous."""
    if method in DIFFUSION:
        return 1
    return 2 if is_harder(task) else 3


def default_final_episodes(task: Task) -> int:
    """More episodes for tasks in which they are cheap."""
    return 1_000 if task.vector_entry_point else task.final_episodes


def _cells(
    grid: str,
    options: GridOptions,
    *,
    methods: Sequence[str],
    tasks: Sequence[str] = tuple(TASKS),
    variants: Sequence[str] = VARIANTS,
    seeds: int | None = None,
    settings: Sequence[tuple[tuple[str, str], ...]] = ((),),
    **values: Any,
) -> Iterator[Cell]:
    """Tasks x variants x methods x settings x seeds, as chosen; OGBench tasks have one variant."""
    for name in options.tasks or tasks:
        task = find(name)
        if options.pixels and not task.pixels:
            continue
        usual = None if options.variants else default_variant(task)
        for variant in options.variants or ((usual,) if usual else variants):
            check_variant(variant, task)
            updates = (
                options.updates
                or values.get("updates")
                or default_updates(task, variant, options.pixels)
            )
            encoding = updates // 2 if options.latents else 0
            updates -= encoding
            made = {
                "episodes": options.episodes or default_episodes(task),
                "tuned": options.tuned,
                "eval_every": options.eval_every or max(updates // 5, 1),
                "final_episodes": options.final_episodes or default_final_episodes(task),
                **values,
                "updates": updates,
                "pixels": options.pixels,
            }
            for method in options.methods or methods:
                preset = _preset(options, method)
                count = options.seeds or seeds or default_seeds(task, method)
                seeing = _image_settings(method, task, encoding) if options.pixels else ()
                for setting in settings:
                    for offset in range(count):
                        yield Cell(
                            grid=grid,
                            task=task.name,
                            variant=variant,
                            algo=method,
                            seed=options.seed + offset,
                            settings=(*setting, *seeing),
                            preset=preset,
                            **made,
                        )


def _preset(options: GridOptions, method: str) -> str | None:
    """The requested preset, if the method has it."""
    asked = options.preset or (SMALL if method in DIFFUSION else None)
    return asked if asked in preset_names(method) else None


def _image_settings(method: str, task: Task, encoding: int) -> tuple[tuple[str, str], ...]:
    """Settings for images, or for latents that are trained for a number of updates first."""
    if encoding:
        goal_is_all = task.observation_dim == task.goal_dim
        units = (("latent_units", "false"),) if goal_is_all else ()
        return (("latent_updates", str(encoding)), *units)
    fields = field_names(method)
    return tuple((key, value) for key, value in IMAGE_SETTINGS.items() if key in fields)


def _main_methods() -> tuple[str, ...]:
    return tuple(name for name in method_names() if name not in (*TWINS, *OGBENCH_OWN))


def _paper(options: GridOptions) -> Iterator[Cell]:
    """The paper's table; our baselines are run next to the ones the paper ran."""
    yield from _cells("paper", options, methods=_main_methods())
    asked = options.methods or _main_methods()
    released = tuple(name for name in asked if RELEASED in preset_names(name))
    if options.preset is None and released:
        as_released = dataclasses.replace(options, methods=released, preset=RELEASED)
        yield from _cells("paper", as_released, methods=released)


def _forward_backward(options: GridOptions) -> Iterator[Cell]:
    names = ("merlin", "merlin-p", "merlin-mb", "merlin-np", "merlin-ts")
    return _cells("forward-backward", options, methods=names)


def _stitching(options: GridOptions) -> Iterator[Cell]:
    return _cells("stitching", options, methods=("merlin", "merlin-np", "gcsl", "gcsl-ts"))


def _hindsight(options: GridOptions) -> Iterator[Cell]:
    settings = tuple((("hindsight_ratio", ratio),) for ratio in RATIOS)
    return _cells("hindsight", options, methods=("merlin",), seeds=1, settings=settings)


def _horizon(options: GridOptions) -> Iterator[Cell]:
    """One policy per dataset, scored at every horizon, and one without a horizon."""
    told_none = ((("horizon", "none"),),)
    yield from _cells("horizon", options, methods=("merlin",), seeds=1, horizons=HORIZONS)
    yield from _cells("horizon", options, methods=("merlin",), seeds=1, settings=told_none)


def _timing(options: GridOptions) -> Iterator[Cell]:
    """The timing grid; it has the diffusion methods at both sizes, small and as released."""
    how: dict[str, Any] = {
        "tasks": ("SawyerReach",) if options.pixels else ("FetchReach",),
        "variants": ("random",),
        "seeds": 1,
        "timed": True,
    }
    yield from _cells("timing", options, methods=_main_methods(), updates=100, **how)
    asked = options.methods or _main_methods()
    large = tuple(name for name in asked if name in DIFFUSION)
    if options.preset is None and large:
        released = dataclasses.replace(options, methods=large, preset=DEFAULT)
        yield from _cells("timing", released, methods=large, updates=2, **how)


def _ogbench(options: GridOptions) -> Iterator[Cell]:
    """OGBench's protocol: final policies are scored on 50 episodes for each of the five goals."""
    yield from _cells(
        "ogbench",
        options,
        tasks=tuple(name for name in OGBENCH if "pointmaze" in name),
        methods=[name for name in OGBENCH_METHODS if name in method_names()],
        seeds=2,
        updates=100_000,
        eval_episodes=50,
    )


def _smoke(options: GridOptions) -> Iterator[Cell]:
    """A small version of every grid, which runs in minutes."""
    short = dataclasses.replace(
        options,
        tasks=options.tasks or ("PointReach",),
        variants=options.variants or ("random",),
        seeds=options.seeds or 1,
        updates=options.updates or 300,
        final_episodes=options.final_episodes or 100,
        episodes=options.episodes or 500,
        preset=options.preset or "small",
    )
    yield from _paper(dataclasses.replace(short, seeds=options.seeds or 2))
    yield from _forward_backward(short)
    yield from _stitching(short)
    plain = dataclasses.replace(short, methods=())
    yield from _hindsight(plain)
    yield from _horizon(plain)
    yield from _timing(dataclasses.replace(short, updates=options.updates or 20))


GRIDS: dict[str, Callable[[GridOptions], Iterator[Cell]]] = {
    "paper": _paper,
    "forward-backward": _forward_backward,
    "stitching": _stitching,
    "hindsight": _hindsight,
    "horizon": _horizon,
    "timing": _timing,
    "ogbench": _ogbench,
    "smoke": _smoke,
}
STATES_ONLY = ("ogbench", "smoke")


def make_grid(name: str, options: GridOptions) -> list[Cell]:
    """The cells of a named grid."""
    if name not in GRIDS:
        raise MerlinError(f"grid: {name!r} is unknown; {instead(name, GRIDS)}")
    _check(options)
    if options.pixels and name in STATES_ONLY:
        raise MerlinError(f"pixels: the grid {name} has none; leave it out.")
    cells = list(GRIDS[name](options))
    if not cells:
        raise MerlinError(f"grid {name}: the selection is empty; choose other tasks or methods.")
    if options.preset not in (None, DEFAULT) and not any(cell.preset for cell in cells):
        raise MerlinError(f"preset: no method of the grid has a preset {options.preset!r}.")
    return cells
