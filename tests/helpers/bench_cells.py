"""The smallest cell that a benchmark can run."""

from merlin.bench import timing
from merlin.bench.cells import run_cell
from merlin.bench.grids import Cell

SMALL = (("hidden", "16"), ("batch_size", "32"))
TINY = Cell(
    grid="paper",
    task="PointReach",
    variant="random",
    algo="merlin",
    seed=0,
    updates=20,
    settings=SMALL,
    episodes=20,
    eval_every=10,
    eval_episodes=5,
    final_episodes=10,
)


def briefly_timed(memory, *arguments):
    """Run a cell in a worker process, measuring each time for a tenth of a second."""
    timing.TIMED_SECONDS = 0.1
    return run_cell(memory, *arguments)


WHEN = ("seconds", "finished", "timing")
"""What two runs of the same cell may differ in."""


def content(rows):
    return [{k: v for k, v in row.to_json().items() if k not in WHEN} for row in rows]
