"""Published numbers of the paper and of OGBench.

The paper reports means and standard deviations over ten seeds, after 500,000 updates. It does not
say which policy is scored. The numbers are consistent with the best of many evaluations during
training (on PointReach they exceed the mean return of an optimal policy), so they are compared with
`best`. In the paper's average ranks, ties all get the better rank; ours share their ranks.

OGBench reports means over eight seeds, after a million updates, averaged over the last three
evaluations. For 100,000 updates, another study reports the best evaluation of ten seeds.
"""

import json
from functools import cache
from importlib import resources
from typing import NamedTuple

from merlin.envs.ogbench import DOWNLOADED, REGENERATED

Numbers = dict[str, dict[str, dict[str, tuple[float, ...]]]]
"""Maps variant, task and method to the mean and, if known, the standard deviation."""


class Reference(NamedTuple):
    """The names of the published numbers in tables."""

    label: str
    words: str


PAPER = Reference("paper", "the paper")
OGBENCH = Reference("1M updates", "OGBench, after 1M updates")


def reference(grid: str) -> Reference:
    return OGBENCH if grid == "ogbench" else PAPER


@cache
def ogbench() -> dict[str, dict[str, dict[str, tuple[float, ...]]]]:
    """Success rates, keyed by 1M or 100k updates, then task, then method."""
    return json.loads(resources.files("merlin.report").joinpath("ogbench.json").read_text())


@cache
def tables() -> dict[str, Numbers]:
    """All tables, keyed by name."""
    text = resources.files("merlin.report").joinpath("paper.json").read_text()
    return json.loads(text)


def table(grid: str, *, pixels: bool, metric: str) -> Numbers:
    """The published table for a grid; empty if there is none."""
    if grid == "ogbench":
        known = ogbench()["1M"] if metric == "success" else {}
        return {DOWNLOADED: known, REGENERATED: known}
    special = {"forward-backward": "forward_vs_backward", "stitching": "stitching"}
    if grid in special:
        name = "none" if pixels else special[grid]
    else:
        name = "pixel" if pixels else "state"
    return tables().get(f"{name}_{metric}", {})
