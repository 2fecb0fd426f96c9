"""The paper's numbers: mean and deviation over ten seeds, after 500,000 updates.

The paper does not say which policy they score. They fit the best of many evaluations during
training (on PointReach they exceed what an optimal policy returns on average), so `best` is the
number of ours to compare them with. In its average ranks equal scores all get the better rank;
ours share their ranks.
"""

import json
from functools import cache
from importlib import resources

HIGHEST_RETURN = sum(0.98**t for t in range(50))
"""At the goal in all of 50 steps with a discount of 0.98: 31.79, in every task."""

Numbers = dict[str, dict[str, dict[str, tuple[float, float]]]]
"""Variant, task, method to mean and deviation."""


@cache
def tables() -> dict[str, Numbers]:
    """All tables by name."""
    text = resources.files("merlin.report").joinpath("paper.json").read_text()
    return json.loads(text)


def table(grid: str, *, pixels: bool, metric: str) -> Numbers:
    """The table that a grid repeats; empty where the paper has none."""
    special = {"forward-backward": "forward_vs_backward", "stitching": "stitching"}
    if grid in special:
        name = "none" if pixels else special[grid]
    else:
        name = "pixel" if pixels else "state"
    return tables().get(f"{name}_{metric}", {})
