"""What to run of a grid. Needs nothing heavy, as the command line is made from it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """What to run of a grid; what is not given is left to the grid."""

    tasks: tuple[str, ...] = ()
    """Only these tasks."""
    variants: tuple[str, ...] = ()
    """Only these kinds of data: expert, random; of OGBench downloaded or regenerated."""
    methods: tuple[str, ...] = ()
    """Only these methods."""
    seeds: int | None = None
    """How many seeds; 3 on the easier tasks, 2 on the harder, 1 of diffusion methods and in
    ablations unless given."""
    updates: int | None = None
    """Gradient steps; 5000 on the easier tasks (SawyerDoor 15000), 50000 on the harder and 100000
    on OGBench's unless given."""
    preset: str | None = None
    """Named set of hyperparameters, for the methods that have it; the diffusion methods are small
    unless another is given: default has the sizes of their releases."""
    tuned: str = "own"
    """Which tuned values: own (on data that merlin collects) or paper (on the paper's)."""
    episodes: int | None = None
    """Episodes of data; as many as in the paper's but at most 10000 unless given."""
    eval_every: int | None = None
    """Updates between evaluations; a fifth of all unless given."""
    final_episodes: int | None = None
    """Episodes that score a final policy; 1000 on Point tasks, 250 on OGBench's, 200 elsewhere
    unless given."""
    seed: int = 0
    """The first seed."""
    pixels: bool = False
    """Learn from images, on the tasks that have them; batches are small then."""
    latents: bool = False
    """Of images: half of the updates train an encoder, the others the method on its latents."""
