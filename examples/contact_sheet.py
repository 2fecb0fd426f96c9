"""Draw every task into one picture: docs/images/tasks.png."""

from pathlib import Path

import gymnasium
import numpy as np
from matplotlib.figure import Figure

import merlin
from merlin.evaluation import figures


def main() -> None:
    figure = Figure(figsize=(15, 6.4))
    for axes, task in zip(figure.subplots(2, 5).flat, merlin.TASKS.values(), strict=True):
        env = gymnasium.make(task.env_id, render_mode="rgb_array")
        env.reset(seed=3)
        actions = np.random.default_rng(0).uniform(-0.3, 0.3, (10, task.action_dim))
        for action in actions.astype(np.float32):
            env.step(action)
        axes.imshow(env.render())
        axes.set_title(task.name)
        axes.set_xticks([])
        axes.set_yticks([])
        env.close()
    print(figures.save(figure, Path("docs/images/tasks.png")))


if __name__ == "__main__":
    main()
