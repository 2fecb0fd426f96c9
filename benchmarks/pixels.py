"""What images cost: frames per second, memory on data larger than it, and the price of the disk.

frames    of either renderer in one process, per second of the clock and per second of processor
          time: on a busy machine only the latter says what one core can do.
memory    a dataset of Point frames as large as asked (8 GB) is written, trained on in a process of
          its own, and deleted; its peak resident memory counts the pages of the memory map, too.
speed     updates per second from that memory map, against the same learner on the first gigabyte
          of the same data in memory, in turns, by processor time and by the clock: once gathered by
          the same code, once held on the device, where sampling and update are one program. (Not
          `loop.make_chunk`, which nobody uses with images: XLA convolves slowly inside a loop.)

    python benchmarks/pixels.py [--gigabytes 8] [--folder DIR] [--only frames]

Prints one JSON line.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import merlin
from merlin.data import Dataset
from merlin.data.images import Images, Selection
from merlin.data.rendering import with_images
from merlin.data.spec import make_spec
from merlin.envs import raster
from merlin.envs.batch import make_single
from merlin.envs.point import ROOMS
from merlin.envs.registry import find
from merlin.learners import Merlin

BATCH, UPDATES, ROUNDS = 128, 20, 3
LEARNER = Merlin(hidden=(256,), batch_size=BATCH)


def rates(call: Callable[[], Any], count: int) -> dict[str, float]:
    """How many of `count` things per second, by the clock and by the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    call()
    return {
        "per_second": round(count / (time.perf_counter() - clock), 1),
        "per_cpu_second": round(count / (time.process_time() - processor), 1),
    }


def frames() -> dict[str, Any]:
    points = np.random.default_rng(0).uniform(-5, 5, (5000, 2))
    found = {}
    for name, walls in (("PointReach", ()), ("PointRooms", ROOMS.walls)):
        raster.draw(points[:100], None, walls)
        found[name] = rates(lambda w=walls: raster.draw(points, None, w), len(points))
    for name in ("SawyerReach", "SawyerDoor"):
        task = find(name).from_pixels()
        env = make_single(task, **task.image_arguments()).unwrapped
        env.reset(seed=0)
        env.render()
        found[name] = rates(lambda e=env: [e.render() for _ in range(200)], 200)
        env.close()
    return found


def tiled(gigabytes: float, path: Path) -> Dataset:
    """Random PointReach episodes, over and over, until their frames are so large."""
    episodes = 200
    states = merlin.collect("PointReach", "random", episodes=episodes)
    times = max(1, int(gigabytes * 1e9 / (episodes * 50 * 48 * 48 * 3)))
    frames = with_images(states, find("PointReach")).observations.whole()
    data = replace(
        states,
        observations=Selection(frames, np.tile(np.arange(len(frames)), times)),
        actions=np.tile(states.actions, (times, 1)),
        achieved_goals=np.tile(states.achieved_goals, (times, 1)),
        desired_goals=np.tile(states.desired_goals, (times, 1)),
        starts=np.arange(times * episodes + 1, dtype=np.int64) * 50,
    )
    merlin.save(data, path)
    return data


def train_alone(path: Path) -> None:
    """In a process of its own: load and train, then tell the peak of resident memory."""
    merlin.train(LEARNER, merlin.load(path), updates=400, eval_episodes=10, final_episodes=10)
    print(json.dumps({"peak_gigabytes": round(peak_bytes() / 1e9, 2)}))


def peak_bytes() -> int:
    """The most that this program had in memory at once.

    Not `ru_maxrss`, which begins with the memory of the process that started this one.
    """
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None, "the system does not tell the peak of resident memory"
    return int(found[1]) * 1024


def speed(path: Path) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from merlin.training.image_updates import streamed_chunk

    data = merlin.load(path)
    rows = data.on_device()
    key = jax.random.key(0)
    state = LEARNER.init(key, make_spec(data, LEARNER.sampling))
    episodes = min(len(data), int(1e9 / (50 * 48 * 48 * 3)))
    some = np.array(data.observations[: 50 * episodes])
    fewer = rows._replace(starts=rows.starts[: episodes + 1])
    whole = fewer._replace(observations=jnp.asarray(some))

    @jax.jit
    def update(state: Any, trajectories: Any, key: Any, step: Any) -> Any:
        sample_key, update_key = jax.random.split(jax.random.fold_in(key, step))
        batch = LEARNER.sampling.draw(trajectories, sample_key, BATCH)
        return LEARNER.update(state, batch, update_key)

    def on_device(state: Any, trajectories: Any, key: Any, start: int, stop: int) -> Any:
        for step in range(start, stop):
            state, metrics = update(state, trajectories, key, step)
        return state, metrics

    contenders = {
        "map": (streamed_chunk(LEARNER, Images([data.observations])), rows),
        "memory": (streamed_chunk(LEARNER, Images([some])), fewer),
        "device": (on_device, whole),
    }

    def run(name: str, start: int) -> None:
        chunk, source = contenders[name]
        jax.block_until_ready(chunk(state, source, key, start, start + UPDATES))

    for name in contenders:
        run(name, 0)
    found: dict[str, Any] = {name: [] for name in contenders}
    for turn in range(ROUNDS):
        for name in contenders:
            found[name].append(rates(lambda n=name, t=turn: run(n, t * UPDATES), UPDATES))
    best = {
        name: {kind: max(r[kind] for r in rounds) for kind in rounds[0]}
        for name, rounds in found.items()
    }
    ratio = {
        f"map_to_{peer}_{kind}": round(best["map"][kind] / value, 3)
        for peer in ("memory", "device")
        for kind, value in best[peer].items()
    }
    return {**best, **ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "pixels")
    parser.add_argument("--only", choices=("frames", "data"))
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.train:
        train_alone(asked.train)
        return
    found: dict[str, Any] = {} if asked.only == "data" else {"frames": frames()}
    if asked.only != "frames":
        path = asked.folder / f"benchmark-{asked.gigabytes:g}"
        try:
            tiled(asked.gigabytes, path)
            size = (path / "observations.npy").stat().st_size
            alone = [sys.executable, __file__, "--train", str(path)]
            done = subprocess.run(alone, capture_output=True, text=True, check=True)
            found["memory"] = {
                "dataset_gigabytes": round(size / 1e9, 2),
                **json.loads(done.stdout.splitlines()[-1]),
            }
            found["updates"] = {"batch": BATCH, **speed(path)}
        finally:
            shutil.rmtree(path, ignore_errors=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
