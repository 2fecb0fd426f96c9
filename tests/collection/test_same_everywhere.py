"""Collected data is the same file on every processor.

fingerprints.json has the fingerprint of a few episodes of each task and variant, made by

    python tests/collection/test_same_everywhere.py
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import merlin
from merlin.envs.registry import VARIANTS

HOME = Path(__file__).parent / "fingerprints.json"
EPISODES = 6
QUICK = ("PointReach", "PointRooms", "Reacher", "FetchReach")
OTHER_PROCESSOR = {
    "OPENBLAS_CORETYPE": "Prescott",
    "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3",
    "XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2",
    "OPENBLAS_NUM_THREADS": "1",
}


def fingerprint(task: str, variant: str) -> str:
    return merlin.collect(task, variant, episodes=EPISODES, workers=1).fingerprint()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "task", [t if t in QUICK else pytest.param(t, marks=pytest.mark.more) for t in merlin.TASKS]
)
def test_the_data_is_that_of_the_machine_it_was_first_collected_on(task, variant):
    assert fingerprint(task, variant) == json.loads(HOME.read_text())[f"{task} {variant}"]


@pytest.mark.more
@pytest.mark.parametrize("task", ["Reacher", "FetchPush"])
def test_instruction_sets_and_threads_do_not_matter(task):
    code = f"import merlin; print(merlin.collect({task!r}, 'expert', episodes=20).fingerprint())"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **features},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for features in ({}, OTHER_PROCESSOR)
    }
    assert len(found) == 1


if __name__ == "__main__":
    made = {f"{task} {v}": fingerprint(task, v) for task in merlin.TASKS for v in VARIANTS}
    HOME.write_text(json.dumps(made, indent=1) + "\n")
