"""What checksums cost: updates per second, time to first action, and loading 2 GB of data.

    python benchmarks/hardening.py --megabytes 2000 --against PATH_TO_OTHER_CHECKOUT/src

Prints the least processor time of each, which other work on the machine hardly changes: from the
start of a process to its first action, 20,000 actions, loading, and 100,000 updates. With
--against, the same is measured with another checkout of merlin, in turns with this one, and the
ratio is printed: 1.03 is 3 % slower.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FIRST = """
import json, sys, time
from pathlib import Path
import numpy as np
numpy = time.process_time()  # since the process began
import merlin.runtime
policy = merlin.runtime.load(Path(sys.argv[1]) / "run")
policy({"observation": np.zeros(2), "desired_goal": np.zeros(2)})
print(json.dumps({"numpy": numpy, "first_action": time.process_time() - numpy}))
"""

MEASURE = """
import json, sys, time
from pathlib import Path
import numpy as np
work = Path(sys.argv[1])
import merlin.runtime
policy = merlin.runtime.load(work / "run")
began = time.process_time()
for _ in range(20_000):
    policy({"observation": np.zeros(2), "desired_goal": np.zeros(2)})
actions = time.process_time() - began
import merlin
began = time.process_time()
merlin.load(work / "large")
loading = time.process_time() - began
data = merlin.load(work / "small")
few = dict(eval_every=10**6, eval_episodes=1, final_episodes=1)
learner = merlin.LEARNERS["gcsl"](hidden=(64, 64), batch_size=64)  # its update never changed


def train(updates):
    began = time.process_time()
    merlin.train(learner, data, updates=updates, out=work / f"run-{time.time_ns()}", **few)
    return time.process_time() - began


train(1000)  # imports and compilation, which are not throughput
training = train(100_000)
names = ("actions", "loading", "training")
print(json.dumps({name: globals()[name] for name in names}))
"""


STARTS = 5
"""Processes per round: the time to start one varies more than the rest."""

PREPARE = """
import sys
from pathlib import Path
import numpy as np
import merlin
from merlin.data.dataset import Dataset, Episode
work = Path(sys.argv[1])
data = merlin.collect("PointReach", "random", episodes=50)
merlin.save(data, work / "small")
few = dict(eval_every=10**6, eval_episodes=1, final_episodes=1)
merlin.train(merlin.Merlin(hidden=(256, 256)), data, updates=10, out=work / "run", **few)
states = max(2, int(sys.argv[2]) * 1_000_000 // (4 * 100))
episode = Episode(
    observations=np.random.default_rng(0).normal(size=(states, 94)).astype(np.float32),
    actions=np.zeros((states - 1, 4), np.float32),
    achieved_goals=np.zeros((states, 2), np.float32),
)
merlin.save(Dataset.from_episodes([episode]), work / "large")
"""


def environment(source: Path) -> dict[str, str]:
    """Import merlin from a checkout, and cache its bytecode as an installation does."""
    return {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": ""}


def prepare(source: Path, work: Path, megabytes: int) -> None:
    """A run, and a dataset of so many megabytes, as that checkout writes them."""
    work.mkdir()
    command = [sys.executable, "-c", PREPARE, str(work), str(megabytes)]
    subprocess.run(command, env=environment(source), check=True)


def measure(script: str, source: Path, work: Path) -> dict[str, float]:
    """The seconds of processor time of each, in a process of its own."""
    command = [sys.executable, "-c", script, str(work)]
    how = {"env": environment(source), "stdout": subprocess.PIPE, "text": True, "check": True}
    ended = subprocess.run(command, **how)
    return json.loads(ended.stdout.splitlines()[-1])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--megabytes", type=int, default=2000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--against", type=Path)
    asked = options.parse_args()
    here = Path(__file__).resolve().parents[1] / "src"
    sources = [here] if asked.against is None else [here, asked.against]
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / str(i) for i in range(len(sources))]
        for source, place in zip(sources, places, strict=True):
            prepare(source, place, asked.megabytes)
        found: list[dict[str, list[float]]] = [{} for _ in sources]
        for number in range(asked.rounds):
            for script in (*[FIRST] * STARTS, MEASURE):
                order = range(len(sources)) if number % 2 == 0 else reversed(range(len(sources)))
                for i in order:
                    for name, seconds in measure(script, sources[i], places[i]).items():
                        found[i].setdefault(name, []).append(seconds)
    # Importing NumPy is the same for all, and varies more than what comes after it.
    common = min(min(one.pop("numpy")) for one in found)
    for name in found[0]:
        least = [min(one[name]) + common * (name == "first_action") for one in found]
        ratio = f"  ratio {least[0] / least[1]:.3f}" if len(least) == 2 else ""
        print(f"{name:>13}: {'  '.join(f'{seconds:8.3f} s' for seconds in least)}{ratio}")


if __name__ == "__main__":
    main()
