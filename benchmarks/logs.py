"""Load a LeRobot v3 log of 2 million steps, against what pyarrow needs to read its columns.

The log is written to the temporary folder: 2,000 episodes of 1,000 steps, 14 numbers of state and
14 of action, a row group per episode, as LeRobot writes them. Both take turns; of each the fastest
round counts. Then the log is loaded in a process of its own, which tells its largest memory.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from merlin.data import load

STEPS, WIDTH, PER_FILE = 1000, 14, 500
MOST_RATIO, MOST_BYTES = 1.5, 2 << 30


def write(folder: Path, episodes: int) -> None:
    """A log of random walks."""
    rng = np.random.default_rng(0)
    vector = pa.list_(pa.float32(), WIDTH)
    (folder / "meta").mkdir(parents=True)
    chunk = folder / "data" / "chunk-000"
    chunk.mkdir(parents=True)
    for first in range(0, episodes, PER_FILE):
        writer = None
        for episode in range(first, min(first + PER_FILE, episodes)):
            states = rng.normal(size=(STEPS, WIDTH)).astype(np.float32).cumsum(0)
            rows = np.arange(STEPS)
            columns = {
                "observation.state": _vectors(states, vector),
                "action": _vectors(states + np.float32(0.1), vector),
                "timestamp": pa.array((rows / 30).astype(np.float32)),
                "frame_index": pa.array(rows),
                "episode_index": pa.array(np.full(STEPS, episode)),
                "index": pa.array(rows + episode * STEPS),
                "task_index": pa.array(np.zeros(STEPS, np.int64)),
            }
            table = pa.table(columns)
            if writer is None:
                file = chunk / f"file-{first // PER_FILE:03d}.parquet"
                writer = pq.ParquetWriter(file, table.schema)
            writer.write_table(table)
        writer.close()
    info = {
        "codebase_version": "v3.0",
        "total_episodes": episodes,
        "total_frames": episodes * STEPS,
        "fps": 30,
        "features": {},
    }
    (folder / "meta" / "info.json").write_text(json.dumps(info))


def _vectors(rows: np.ndarray, kind: pa.DataType) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), type=kind)


def read_columns(folder: Path) -> None:
    """What pyarrow needs: every column of every file, as tables."""
    for file in sorted(folder.glob("data/*/*.parquet")):
        pq.read_table(file)


def seconds(call, *arguments) -> float:
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--load", type=Path, help="only load a log, and print the largest memory")
    given = parser.parse_args()
    if given.load:
        data = load(given.load)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"bytes": most, "states": len(data.observations)}))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "log"
        write(folder, given.episodes)
        size = sum(file.stat().st_size for file in folder.rglob("*.parquet"))
        print(f"{given.episodes * STEPS:,} steps, {size / 2**20:.0f} MB in parquet")
        times = {"pyarrow reads the columns": [], "merlin.load": []}
        for _ in range(given.rounds):
            times["pyarrow reads the columns"].append(seconds(read_columns, folder))
            times["merlin.load"].append(seconds(load, folder))
        for name, taken in times.items():
            print(f"{name}: {min(taken):.2f} s (all: {', '.join(f'{t:.2f}' for t in taken)})")
        ratio = min(times["merlin.load"]) / min(times["pyarrow reads the columns"])
        command = [sys.executable, __file__, "--load", str(folder)]
        told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        print(f"ratio {ratio:.2f} (at most {MOST_RATIO}); {told['bytes'] / 2**20:.0f} MB at most")
        if ratio > MOST_RATIO or told["bytes"] > MOST_BYTES:
            raise SystemExit("too slow or too large")


if __name__ == "__main__":
    main()
