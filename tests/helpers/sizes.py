"""Sizes that make a training run short."""

SMALL = {"hidden": (32, 32), "batch_size": 64}
SCHEDULE = {
    "eval_every": 30,
    "eval_episodes": 10,
    "final_episodes": 20,
    "log_every": 10,
    "checkpoint_every": 20,
}
"""Looks often enough that sixty updates pass every branch of the loop."""
