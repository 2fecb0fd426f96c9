"""Published numbers: the paper's, and those of OGBench.

The paper's are mean and deviation over ten seeds, after 500,000 updates.

The paper does not say which policy they score. They fit the best of many evaluations during
training (on PointReach they exceed what an optimal policy returns on average), so `best` is the
number of ours to compare them with. In its average ranks equal scores all get the better rank;
ours share their ranks.

OGBench's are means over eight seeds, after a million updates, of the last three evaluations. For
100,000 updates there are numbers of another study, the best evaluation of ten seeds.
"""

import json
from functools import cache
from importlib import resources
from typing import NamedTuple

from merlin.envs.ogbench import DOWNLOADED, REGENERATED

Numbers = dict[str, dict[str, dict[str, tuple[float, ...]]]]
"""Variant, task, method to mean and, where it is known, deviation."""


class Reference(NamedTuple):
    """What tables call the published numbers."""

    label: str
    words: str


PAPER = Reference("paper", "the paper")
OGBENCH = Reference("1M updates", "OGBench, after 1M updates")


def reference(grid: str) -> Reference:
    return OGBENCH if grid == "ogbench" else PAPER


@cache
def ogbench() -> dict[str, dict[str, dict[str, tuple[float, ...]]]]:
    """Success rates: 1M or 100k updates, then task, then method."""
    return json.loads(resources.files("merlin.report").joinpath("ogbench.json").read_text())


@cache
def tables() -> dict[str, Numbers]:
    """All tables by name."""
    text = resources.files("merlin.report").joinpath("paper.json").read_text()
    return json.loads(text)


def table(grid: str, *, pixels: bool, metric: str) -> Numbers:
    """The table that a grid repeats; empty where there is none."""
    if grid == "ogbench":
        known = ogbench()["1M"] if metric == "success" else {}
        return {DOWNLOADED: known, REGENERATED: known}
    special = {"forward-backward": "forward_vs_backward", "stitching": "stitching"}
    if grid in special:
        name = "none" if pixels else special[grid]
    else:
        name = "pixel" if pixels else "state"
    return tables().get(f"{name}_{metric}", {})
