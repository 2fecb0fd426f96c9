"""Is the hazard model of Merlin-map calibrated? Stated against true probabilities.

    python benchmarks/calibration.py
    python benchmarks/calibration.py --data FetchPush-expert

For every dataset, the model is fitted to 90 % of the episodes, with Merlin-map's settings. On the
other episodes, pairs of states and goals are sorted into ten bins by the stated probability that
the goal is reached within k steps. The error of a bin is the difference between the mean stated
probability and the fraction that was reached. The rows are kept in --out, and a figure is drawn of
all of them.
"""

import argparse
import json
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

import merlin
from merlin.augment.base import find_phi
from merlin.collection.collect import collect_cached
from merlin.data.passage_times import calibration, draw_passage_times, step_weights
from merlin.data.splits import hold_out
from merlin.learners import MerlinMap
from merlin.learners.distance import fit_hazard, local_limit

DATA = (
    *("PointRooms-random", "PointRooms-expert", "SawyerReach-random"),
    *("SawyerDoor-random", "Reacher-random", "FetchReach-expert"),
)
HELD_OUT, PAIRS, LEAST = 0.1, 40_000, 200
"""The fraction of held-out episodes, pairs drawn from them, and pairs of a bin that counts."""
BAR = 0.1


def measure(name: str) -> dict:
    """Fit the model to a dataset and compare its probabilities with held-out episodes."""
    task, variant = name.split("-")
    folder = collect_cached(merlin.TASKS[task], variant, episodes=2000)
    data, held_out = hold_out(merlin.load(folder), HELD_OUT)
    tolerance = merlin.TASKS[task].tolerance
    limit = local_limit(int(data.lengths.max()) - 1, MerlinMap.max_horizon)
    model = fit_hazard(data, find_phi(data), limit=limit, tolerance=tolerance)
    pairs = draw_passage_times(held_out, PAIRS, limit=limit, tolerance=tolerance, seed=1)
    within = jax.jit(jax.vmap(model.within))
    stated = np.asarray(within(held_out.observations[pairs.row], pairs.goal))
    weights, row = step_weights(held_out, limit), {"data": name, "episodes": len(held_out)}
    for k in (limit // 5, limit // 2, limit):
        found = calibration(pairs, stated[:, k - 1], k, weights[k - 1])
        mean, largest = found.error(LEAST)
        row |= {str(k): {"mean": round(mean, 4), "largest": round(largest, 4)}}
        row[str(k)] |= {part: values.round(4).tolist() for part, values in found._asdict().items()}
    return row


def draw(rows: list[dict], path: Path) -> None:
    """One panel per dataset, one line per number of steps."""
    columns = min(3, len(rows))
    count = -(-len(rows) // columns)
    figure = Figure((3.1 * columns, 3.0 * count), layout="constrained")
    panels = np.atleast_1d(figure.subplots(count, columns, sharex=True, sharey=True)).ravel()
    for panel, row in zip(panels, rows, strict=False):
        panel.fill_between([0, 1], [-BAR, 1 - BAR], [BAR, 1 + BAR], color="0.9", lw=0)
        panel.plot([0, 1], [0, 1], color="0.6", lw=1)
        for steps in (key for key in row if key.isdigit()):
            found = {part: np.array(row[steps][part]) for part in ("stated", "true", "pairs")}
            shown = found["pairs"] >= LEAST
            panel.plot(
                found["stated"][shown], found["true"][shown], "o-", ms=3, lw=1.2, label=f"{steps}"
            )
        panel.set(title=row["data"].replace("-", " "), xlim=(0, 1), ylim=(0, 1), aspect="equal")
    panels[0].legend(title="within k steps", frameon=False, fontsize=8, title_fontsize=8)
    figure.supxlabel("stated probability")
    figure.supylabel("fraction reached, held-out episodes")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--out", type=Path, default=Path("results/calibration.jsonl"))
    parser.add_argument("--figure", type=Path, default=Path("docs/images/calibration.png"))
    given = parser.parse_args()
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    rows = {row["data"]: row for row in map(json.loads, lines)}
    for name in given.data:
        rows[name] = row = measure(name)
        given.out.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
        errors = (f"{k}: {row[k]['mean']:.3f}, {row[k]['largest']:.3f}" for k in row if k.isdigit())
        print(f"{name}: mean and largest error within k steps: {'; '.join(errors)}", flush=True)
    draw(list(rows.values()), given.figure)


if __name__ == "__main__":
    main()
