"""Time per update and per action of Merlin-plus and the diffusion methods against Merlin.

FetchPush shapes (observation 25, action 4, goal 3) and the sizes of the releases, beside them the
`small` presets of g-DQL and BESO; each method trains with its own batch size. A call acts for 1
state or for 100 at once, compiled with the policy's weights in it, in the caller's own thread:
flattening a policy's arrays in Python and handing work to another thread take longer than a small
network does, and would hide what is measured. Rounds go from method to method, so that a noisy
neighbour slows all of them. Told are the median call and the fastest.

Decision Diffuser with 200 denoising steps takes minutes for a batch of 100 on a CPU. Its time is
measured with few steps and scaled, from the difference of two lengths, so that what does not depend
on the number of steps is not scaled with it. Prints one JSON line and draws docs/images/timing.png.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from merlin.data import Dataset
from merlin.data.spec import make_spec
from merlin.evaluation.figures import BLUE, GREY, INK, save
from merlin.learners import GDQL, Beso, DecisionDiffuser, Learner, Merlin, MerlinPlus
from merlin.training.loop import compiled_chunk
from throughput import GOAL, OBSERVATION, fetch_push_shaped

EPISODES = 200
TOLERANCE = 0.05
BATCHES = (1, 100)
SHORT = (1, 2)
"""Numbers of denoising steps from which Decision Diffuser's time is scaled."""
LONG_ENOUGH = 200.0
"""Milliseconds that each contender has in a round."""
METHODS: dict[str, Learner] = {
    "merlin": Merlin(),
    "merlin-plus": MerlinPlus(),
    "dd": DecisionDiffuser(),
    "g-dql": GDQL(),
    "beso": Beso(),
    "g-dql small": GDQL(**GDQL.presets["small"]),
    "beso small": Beso(**Beso.presets["small"]),
}
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "timing.png"


def updating(learner: Learner, data: Dataset, state: Any) -> Callable[[], None]:
    chunk, trajectories = compiled_chunk(learner, together=False), data.on_device()

    def run() -> None:
        jax.block_until_ready(chunk(state, trajectories, jax.random.key(1), 0, 1))

    return run


def acting(policy: Any, batch: int) -> Callable[[], None]:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((batch, OBSERVATION)), rng.standard_normal((batch, GOAL))
    observation, goal = (array.astype(np.float32) for array in rows)
    keys = jax.random.split(jax.random.key(0), batch)
    act = jax.jit(lambda s, g, keys: jax.vmap(policy, (0, 0, None, 0))(s, g, None, keys))
    return lambda: jax.block_until_ready(act(observation, goal, keys))


def contenders() -> dict[str, Callable[[], None]]:
    data, found = fetch_push_shaped(EPISODES), {}
    for name, learner in METHODS.items():
        spec = make_spec(data, learner.sampling, TOLERANCE)
        build = jax.jit(lambda key, learner=learner, spec=spec: learner.init(key, spec))
        state = build(jax.random.key(0))
        policy = learner.policy(state)
        found[f"{name} update"] = updating(learner, data, state)
        for batch in BATCHES:
            if name == "dd":
                for steps in SHORT:
                    short = dataclasses.replace(policy, sampling_steps=steps)
                    found[f"dd act {batch} in {steps}"] = acting(short, batch)
            else:
                found[f"{name} act {batch}"] = acting(policy, batch)
    return found


def timed(run: Callable[[], None]) -> float:
    """Milliseconds of one call."""
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1e3


def tabled(taken: dict[str, float]) -> dict[str, dict[str, float]]:
    """Milliseconds per measure and method; those of Decision Diffuser's actions are scaled."""
    whole, taken = METHODS["dd"].sampling_steps, dict(taken)
    for batch in BATCHES:
        one, two = (taken[f"dd act {batch} in {steps}"] for steps in SHORT)
        taken[f"dd act {batch}"] = one + (whole - SHORT[0]) * (two - one) / (SHORT[1] - SHORT[0])
    measures = {"update": "update", **{f"action, batch {b}": f"act {b}" for b in BATCHES}}
    return {
        title: {name: taken[f"{name} {key}"] for name in METHODS} for title, key in measures.items()
    }


def ratios(table: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {
        title: {name: round(value / row["merlin"], 2) for name, value in row.items()}
        for title, row in table.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    runs = contenders()
    for run in runs.values():
        run()
    calls = {name: [timed(run)] for name, run in runs.items()}
    for _ in range(rounds):
        for name, run in runs.items():
            # The shorter the more often: what is timed should be neither the clock nor a neighbour,
            # nor what the contender before has left in the caches.
            times = int(np.ceil(LONG_ENOUGH / np.median(calls[name])))
            calls[name] += [timed(run) for _ in range(times)]
    table = tabled({name: float(np.median(taken)) for name, taken in calls.items()})
    fastest = tabled({name: min(taken) for name, taken in calls.items()})
    draw(table)
    print(
        json.dumps(
            {
                "benchmark": "time per update and per call of the policy, FetchPush shapes",
                "milliseconds": {
                    title: {name: round(value, 3) for name, value in row.items()}
                    for title, row in table.items()
                },
                "ratio_to_merlin": ratios(table),
                "ratio_of_the_fastest_calls": ratios(fastest),
                "dd_action_scaled_from_steps": SHORT,
            }
        )
    )


def draw(table: dict[str, dict[str, float]]) -> None:
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    titles = {
        "update": "training: one update",
        "action, batch 1": "acting: one state",
        "action, batch 100": "acting: 100 states at once",
    }
    for axes, (key, row) in zip(figure.subplots(1, len(table)), table.items(), strict=True):
        released = {name: value for name, value in row.items() if "small" not in name}
        timing(axes, released, title=titles[key], baseline="merlin")
    save(figure, PICTURE)


def timing(axes: Axes, milliseconds: Mapping[str, float], *, title: str, baseline: str) -> None:
    """Bars of time per method on a logarithmic scale, each with its ratio to the baseline."""
    names = list(milliseconds)
    colours = [BLUE if name == baseline else GREY for name in names]
    bars = axes.bar(names, list(milliseconds.values()), color=colours, width=0.65)
    for name, bar in zip(names, bars, strict=True):
        ratio = milliseconds[name] / milliseconds[baseline]
        text = _duration(milliseconds[name])
        text += "" if name == baseline else f"\nx {_three_digits(ratio)}"
        axes.annotate(
            text,
            (bar.get_x() + bar.get_width() / 2, bar.get_height()),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
            color=INK,
        )
    axes.set_yscale("log")
    # Room for the labels above the highest bar.
    axes.set_ylim(min(milliseconds.values()) / 3, max(milliseconds.values()) * 12)
    axes.set_ylabel("milliseconds")
    axes.set_title(title, fontsize=10)
    axes.set_xticks(range(len(names)), [name.replace("-", "-\n") for name in names], fontsize=9)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _duration(milliseconds: float) -> str:
    return (
        f"{_three_digits(milliseconds)} ms"
        if milliseconds < 1000
        else f"{_three_digits(milliseconds / 1000)} s"
    )


def _three_digits(number: float) -> str:
    """As people write it: 25.5, 1,470, 172,000."""
    return f"{number:.3g}" if number < 1000 else f"{float(f'{number:.3g}'):,.0f}"


if __name__ == "__main__":
    main()
