"""What a policy sees: frames of one random episode of every task that has images.

Writes docs/images/pixels.png: one row per task, with frames enlarged without smoothing, and the
goal image of `--goal image` at the end of the row.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from merlin.envs.batch import LocalBatch
from merlin.envs.registry import TASKS
from merlin.evaluation import figures

STEPS = (0, 2, 5, 10, 20, 40)
SEED = 3
KEPT = 6
"""Number of steps for which a preferred direction lasts."""


def main(out: Path = Path("docs/images/pixels.png")) -> None:
    tasks = [task for task in TASKS.values() if task.pixels]
    figure = Figure(figsize=(2 * (len(STEPS) + 1), 2.15 * len(tasks)))
    axes = figure.subplots(len(tasks), len(STEPS) + 1)
    for row, task in zip(axes, tasks, strict=True):
        batch = LocalBatch(task.from_pixels(goal="image"), 1)
        seen = batch.reset([SEED])
        frames, rng = [seen["observation"][0]], np.random.default_rng(SEED)
        for step in range(max(STEPS)):
            if step % KEPT == 0:  # otherwise little would move
                push = rng.uniform(-1, 1, (1, task.action_dim))
            action = np.clip(push + rng.uniform(-1, 1, push.shape), -1, 1)
            frames.append(batch.step(action.astype(np.float32)).observation["observation"][0])
        batch.close()
        for ax, step in zip(row, STEPS, strict=False):
            ax.imshow(frames[step], interpolation="nearest")
            ax.set_title(f"step {step}", fontsize=8)
        row[-1].imshow(seen["desired_goal"][0], interpolation="nearest")
        row[-1].set_title("goal image", fontsize=8)
        row[0].set_ylabel(f"{task.name}\n{task.image_size}x{task.image_size}", fontsize=9)
        for ax in row:
            ax.set_xticks([])
            ax.set_yticks([])
    print(figures.save(figure, out))


if __name__ == "__main__":
    main()
