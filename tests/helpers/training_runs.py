"""Short runs, and what tells two of them apart."""

import json
import sys
from pathlib import Path

import jax
import numpy as np

import merlin
from helpers.sizes import SCHEDULE, SMALL
from merlin.learners import Merlin

FILES = {"metrics.jsonl", "policy.safetensors", "best.safetensors", "result.json"}
COMMAND = [sys.executable, "-c", "from merlin.cli import main; main()"]


def train(data, out=None, *, updates=60, **options):
    return merlin.train(Merlin(**SMALL), data, updates=updates, out=out, **SCHEDULE | options)


def leaves(policy):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(policy)]


def assert_same_policy(one, other):
    for a, b in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def policy_bytes(folder: Path, seed=0, name="policy"):
    return (folder / f"seed-{seed}" / f"{name}.safetensors").read_bytes()


def rows(folder: Path, seed=0):
    text = (folder / f"seed-{seed}" / "metrics.jsonl").read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def without_speed(logged):
    """Log rows but for the one number that may differ between two equal runs."""
    varies = ("updates_per_second", "sha256")
    return [{k: v for k, v in row.items() if k not in varies} for row in logged]
