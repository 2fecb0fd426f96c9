"""Updates per second against the machine's matrix-product limit, both measured in one run.

FetchPush shapes: observation 25, action 4, goal 3, batch 512, three hidden layers of 256. The
limit is the time of the update's matrix products alone (forward, and backward to weights and to
inputs), by XLA or by NumPy's BLAS, whichever is faster here. Rounds alternate between the two, so
that a noisy neighbour slows both. Prints one JSON line.
"""

import itertools
import json
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from merlin.data import Dataset
from merlin.data.spec import make_spec
from merlin.learners import Learner, Merlin
from merlin.training.loop import compiled_chunk

OBSERVATION, ACTION, GOAL, BATCH = 25, 4, 3, 512
WIDTHS = (OBSERVATION + GOAL + 32, 256, 256, 256, 2 * ACTION)
EPISODES, STATES = 4000, 50
UPDATES, ROUNDS = 100, 12


def fetch_push_shaped(episodes: int = EPISODES) -> Dataset:
    """Random numbers with the shapes of FetchPush's data."""
    rng = np.random.default_rng(0)
    states = rng.standard_normal((episodes * STATES, OBSERVATION)).astype(np.float32)
    return Dataset(
        observations=states,
        actions=rng.uniform(-1, 1, (episodes * (STATES - 1), ACTION)).astype(np.float32),
        achieved_goals=states[:, 3:6],
        desired_goals=rng.standard_normal((episodes, GOAL)).astype(np.float32),
        starts=np.arange(episodes + 1) * STATES,
        action_low=np.full(ACTION, -1.0, np.float32),
        action_high=np.full(ACTION, 1.0, np.float32),
    )


def training(learner: Learner, data: Dataset, updates: int) -> Callable[[], None]:
    """So many updates of the real loop, sampling included."""
    state = learner.init(jax.random.key(0), make_spec(data, learner.sampling, tolerance=0.05))
    trajectories, key = data.on_device(), jax.random.key(1)
    chunk = compiled_chunk(learner, together=False)

    def run() -> None:
        nonlocal state
        state, metrics = chunk(state, trajectories, key, 0, updates)
        jax.block_until_ready(metrics)

    return run


def layers() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Inputs, weight and output gradient of each layer."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    return [(draw(BATCH, i), draw(i, o), draw(BATCH, o)) for i, o in itertools.pairwise(WIDTHS)]


def numpy_products() -> Callable[[], None]:
    shapes = layers()

    def run() -> None:
        for _ in range(UPDATES):
            for index, (x, w, g) in enumerate(shapes):
                x @ w
                x.T @ g
                if index:  # the first layer's inputs need no gradient
                    g @ w.T

    return run


def xla_products() -> Callable[[], None]:
    shapes = [tuple(map(jnp.asarray, layer)) for layer in layers()]

    def products(_: int, carry: tuple) -> tuple:
        # Every operand depends on the carry, or the compiler would lift it out of the loop.
        out = []
        for (x, w, g), (y, dw, dx) in zip(shapes, carry, strict=True):
            x, g = x.at[0, 0].set(dw[0, 0]), g.at[0, 0].set(y[0, 0])
            out.append((x @ w, x.T @ g, g @ w.T if dx.size else dx))
        return tuple(out)

    zeros = tuple(
        (jnp.zeros_like(g), jnp.zeros_like(w), jnp.zeros_like(x) if i else jnp.zeros(0))
        for i, (x, w, g) in enumerate(shapes)
    )
    loop = jax.jit(lambda: jax.lax.fori_loop(0, UPDATES, products, zeros))
    return lambda: jax.block_until_ready(loop())


def main() -> None:
    learner = Merlin(hindsight_ratio=0.5, horizon=20, batch_size=BATCH)
    update = training(learner, fetch_push_shaped(), UPDATES)
    contenders = {"update": update, "xla": xla_products(), "numpy": numpy_products()}
    for run in contenders.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            run()  # untimed: whoever follows NumPy finds its BLAS threads still awake
            begin = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - begin) / UPDATES * 1e3)
    best = {name: min(values) for name, values in times.items()}
    limit = min(("xla", "numpy"), key=best.__getitem__)
    ratios = [b / a for a, b in zip(times["update"], times[limit], strict=True)]
    print(
        json.dumps(
            {
                "benchmark": "training throughput, FetchPush shapes, batch 512",
                "updates_per_second": round(1e3 / best["update"], 1),
                "update_ms": round(best["update"], 3),
                "limit_ms": round(best[limit], 3),
                "limit_by": limit,
                "xla_products_ms": round(best["xla"], 3),
                "fraction_of_limit": round(best[limit] / best["update"], 3),
                "fraction_median_of_rounds": round(statistics.median(ratios), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
