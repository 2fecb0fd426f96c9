"""A world with a wall: two corridors side by side, joined at one end only."""

import numpy as np

from merlin.data import Dataset, Episode

LENGTH = 10
CELLS = np.array(
    [(x, 0) for x in range(LENGTH + 1)] + [(x, 1) for x in range(LENGTH, -1, -1)], np.float32
)
"""In the order of the way: the first and the last cell are neighbours across the wall."""
WALK = 8


def corridor(*, both_ways: bool = True, repeats: int = 5) -> Dataset:
    """Walks of a few cells, so that no episode goes the whole way.

    States have a third number. Actions are noisy, or their density would have no bound.
    """
    rng, episodes = np.random.default_rng(0), []
    for step in (1, -1) if both_ways else (1,):
        cells = CELLS[::step]
        for start in range(len(cells) - WALK):
            walk = cells[start : start + WALK + 1]
            states = np.column_stack([np.full(len(walk), 7.0, np.float32), walk])
            for _ in range(repeats):
                actions = np.diff(walk, axis=0) + rng.normal(0, 0.1, (WALK, 2))
                episodes.append(Episode(states, actions, walk))
    return Dataset.from_episodes(episodes, action_low=-1.5, action_high=1.5)
