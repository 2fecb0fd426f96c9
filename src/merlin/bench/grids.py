"""The named grids: which cells there are to run for each table and figure of the paper.

A cell is one task, kind of data, method, seed and setting. Methods are taken from the registry, so
one that is registered later is in the grids by itself.
"""

import dataclasses
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from merlin.errors import MerlinError
from merlin.methods import configure, field_names, method_names, preset_names
from merlin.tasks.registry import IMAGE_SETTINGS, TASKS, VARIANTS, Task, find

EASY = ("PointReach", "PointRooms", "Reacher", "SawyerReach", "SawyerDoor", "FetchReach")
TWINS = ("merlin-mb", "merlin-ts", "gcsl-ts")
"""Methods of the paper's side experiments, which its main table leaves out."""
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
    episodes: int | None = None  # of the data; as many as in the paper's unless given
    eval_every: int = 1000
    eval_episodes: int = 100
    final_episodes: int = 200
    horizons: tuple[int, ...] = ()  # the trained policy is scored at these as well
    timed: bool = False  # measure the time per update and per action instead of training
    pixels: bool = False  # observations are images

    @property
    def name(self) -> str:
        """What it is called, whichever grid asks for it: what two grids share runs once."""
        parts = [self.task, self.variant, self.algo]
        parts += [self.preset] if self.preset else []
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
        """What trains the same policy by itself; one core, as threads change the rounding."""
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
        if self.settings:
            words += ["--set", *(f"{key}={value}" for key, value in self.settings)]
        return f"NPROC=1 {shlex.join(words)} --out RUN"

    def describe(self) -> dict[str, Any]:
        """All that decides the result, as JSON. Images are named only where there are any."""
        asked = {**dataclasses.asdict(self), "settings": dict(self.settings)}
        del asked["grid"]
        if not self.pixels:
            del asked["pixels"]
        return {**asked, "horizons": list(self.horizons)}


@dataclass(frozen=True)
class Choice:
    """What to run of a grid; None leaves it to the grid."""

    tasks: tuple[str, ...] | None = None
    variants: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    seeds: int | None = None
    first_seed: int = 0
    updates: int | None = None
    preset: str | None = None
    episodes: int | None = None
    eval_every: int | None = None
    final_episodes: int | None = None
    pixels: bool = False
    latents: bool = False  # half of the updates are an encoder's, the others learn from its latents

    def __post_init__(self) -> None:
        for name in self.tasks or ():
            task = find(name)
            if self.pixels:
                task.from_pixels()  # says so if it has no images
        for variant in self.variants or ():
            if variant not in VARIANTS:
                raise MerlinError(f"--variants: {variant!r} is not {' or '.join(VARIANTS)}.")
        for method in self.methods or ():
            configure(method)  # complains of a name that nobody registered
        for name in ("seeds", "updates", "episodes", "eval_every", "final_episodes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise MerlinError(f"--{name.replace('_', '-')}: {value} is not 1 or more.")
        if self.latents and not self.pixels:
            raise MerlinError("--latents: are made of images; give --pixels as well.")
        if self.latents and self.updates == 1:
            raise MerlinError("--latents: one update cannot be shared; give 2 or more.")
        if self.first_seed < 0:
            raise MerlinError(f"--seed: {self.first_seed} is negative; give 0 or more.")


def default_updates(task: Task) -> int:
    """Enough for Merlin to stop improving: measured on the easier tasks, the data asks for more
    on the four that have twenty times as much of it."""
    return 5_000 if task.episodes <= 2_000 else 100_000


def default_final_episodes(task: Task) -> int:
    """More where they cost nothing."""
    return 1_000 if task.vector_entry_point else 200


def _cells(
    grid: str,
    choice: Choice,
    *,
    tasks: Sequence[str],
    methods: Sequence[str],
    variants: Sequence[str] = VARIANTS,
    seeds: int = 5,
    settings: Sequence[tuple[tuple[str, str], ...]] = ((),),
    **values: Any,
) -> Iterator[Cell]:
    """Tasks x variants x methods x settings x seeds, as chosen."""
    first = choice.first_seed
    for name in choice.tasks or tasks:
        task = find(name)
        if choice.pixels and not task.pixels:
            continue
        updates = choice.updates or values.get("updates") or default_updates(task)
        encoding = updates // 2 if choice.latents else 0
        updates -= encoding
        made = {
            "episodes": choice.episodes,
            "eval_every": choice.eval_every or max(updates // 5, 1),
            "final_episodes": choice.final_episodes or default_final_episodes(task),
            **values,
            "updates": updates,
            "pixels": choice.pixels,
        }
        for variant in choice.variants or variants:
            for method in choice.methods or methods:
                preset = choice.preset if choice.preset in preset_names(method) else None
                seeing = _image_settings(method, task, encoding) if choice.pixels else ()
                for setting in settings:
                    for seed in range(first, first + (choice.seeds or seeds)):
                        yield Cell(
                            grid=grid,
                            task=task.name,
                            variant=variant,
                            algo=method,
                            seed=seed,
                            settings=(*setting, *seeing),
                            preset=preset,
                            **made,
                        )


def _image_settings(method: str, task: Task, encoding: int) -> tuple[tuple[str, str], ...]:
    """What a bench sets for images, or for latents that come after so many updates."""
    if encoding:
        goal_is_all = task.observation_dim == task.goal_dim
        units = (("latent_units", "false"),) if goal_is_all else ()
        return (("latent_updates", str(encoding)), *units)
    fields = field_names(method)
    return tuple((key, value) for key, value in IMAGE_SETTINGS.items() if key in fields)


def _registered(*names: str) -> tuple[str, ...]:
    return tuple(name for name in names if name in method_names())


def _main_methods() -> tuple[str, ...]:
    return tuple(name for name in method_names() if name not in TWINS)


def _paper(choice: Choice) -> Iterator[Cell]:
    yield from _cells("paper", choice, tasks=tuple(TASKS), methods=_main_methods())


def _forward_backward(choice: Choice) -> Iterator[Cell]:
    names = _registered("merlin", "merlin-p", "merlin-mb", "merlin-np", "merlin-ts")
    yield from _cells("forward-backward", choice, tasks=tuple(TASKS), methods=names)


def _stitching(choice: Choice) -> Iterator[Cell]:
    names = _registered("merlin", "merlin-np", "gcsl", "gcsl-ts")
    yield from _cells("stitching", choice, tasks=tuple(TASKS), methods=names)


def _hindsight(choice: Choice) -> Iterator[Cell]:
    settings = tuple((("hindsight_ratio", ratio),) for ratio in RATIOS)
    yield from _cells(
        "hindsight", choice, tasks=tuple(TASKS), methods=("merlin",), seeds=1, settings=settings
    )


def _horizon(choice: Choice) -> Iterator[Cell]:
    """One policy per dataset, scored at every horizon, and one that is told none."""
    plain: dict[str, Any] = {"tasks": tuple(TASKS), "methods": ("merlin",), "seeds": 1}
    yield from _cells("horizon", choice, **plain, horizons=HORIZONS)
    yield from _cells("horizon", choice, **plain, settings=((("horizon", "none"),),))


def _timing(choice: Choice) -> Iterator[Cell]:
    yield from _cells(
        "timing",
        choice,
        tasks=("FetchReach",),
        variants=("random",),
        methods=_main_methods(),
        seeds=1,
        updates=100,
        timed=True,
    )


def _smoke(choice: Choice) -> Iterator[Cell]:
    """A little of everything, in minutes."""
    short = dataclasses.replace(
        choice,
        tasks=choice.tasks or ("PointReach",),
        variants=choice.variants or ("random",),
        seeds=choice.seeds or 1,
        updates=choice.updates or 300,
        final_episodes=choice.final_episodes or 100,
        episodes=choice.episodes or 500,
        preset=choice.preset or "small",
    )
    yield from _paper(dataclasses.replace(short, seeds=choice.seeds or 2))
    for grid in (_forward_backward, _stitching):
        yield from grid(short)
    plain = dataclasses.replace(short, methods=None)
    yield from _hindsight(plain)
    yield from _horizon(plain)
    yield from _timing(dataclasses.replace(short, updates=choice.updates or 20))


GRIDS: dict[str, Callable[[Choice], Iterator[Cell]]] = {
    "paper": _paper,
    "forward-backward": _forward_backward,
    "stitching": _stitching,
    "hindsight": _hindsight,
    "horizon": _horizon,
    "timing": _timing,
    "smoke": _smoke,
}
STATES_ONLY = ("timing", "smoke")


def make_grid(name: str, choice: Choice) -> list[Cell]:
    """The cells of a named grid."""
    if name not in GRIDS:
        raise MerlinError(f"grid: {name!r} is none of {', '.join(GRIDS)}.")
    if choice.pixels and name in STATES_ONLY:
        raise MerlinError(f"--pixels: the grid {name} has none; leave it out.")
    cells = list(GRIDS[name](choice))
    if not cells:
        raise MerlinError(f"grid {name}: nothing is left of it; choose other tasks or methods.")
    if choice.preset is not None and not any(cell.preset for cell in cells):
        raise MerlinError(f"--preset: no method of the grid has a preset {choice.preset!r}.")
    return cells
