"""Which part of a grid to run. Imports nothing heavy, because the command line uses it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GridOptions:
    """Which part of a grid to run; options that are not given keep the defaults of the grid."""

    tasks: tuple[str, ...] = ()
    """Only these tasks."""
    variants: tuple[str, ...] = ()
    """Only these kinds of data: expert, random; for OGBench downloaded, regenerated."""
    methods: tuple[str, ...] = ()
    """Only these methods."""
    seeds: int | None = None
    """Number of seeds; by default 3 on the easier tasks, 2 on the harder ones, 1 for diffusion
    methods and ablations."""
    updates: int | None = None
    """Number of gradient steps; by default 5000 on the easier tasks (SawyerDoor 15000 on expert
    and 40000 on random data), 50000 on the harder tasks, 100000 on OGBench."""
    preset: str | None = None
    """Named set of hyperparameters, for methods that have it. The diffusion methods use small by
    default; pass default for the sizes of their releases."""
    tuned: str = "own"
    """Which tuned values to use: own (for data that merlin collects) or paper (the paper's)."""
    episodes: int | None = None
    """Episodes of data; by default as many as the paper's data has, but at most 10000."""
    eval_every: int | None = None
    """Updates between evaluations; by default a fifth of all updates."""
    final_episodes: int | None = None
    """Episodes on which a final policy is evaluated; by default 1000 on Point tasks, 250 on
    OGBench, 200 elsewhere."""
    seed: int = 0
    """The first seed."""
    pixels: bool = False
    """Train from images, on tasks that support it, with small batches."""
    latents: bool = False
    """With images: half of the updates train an encoder, the rest the method on its latents."""
