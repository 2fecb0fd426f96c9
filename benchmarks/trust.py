"""Is what `merlin trust` says true? Its words and its confidence beside success in an environment.

    python benchmarks/trust.py runs/rooms runs/reach --out trust-rows

For every run, whose task must be known and which must have held episodes out: goals spread over the
data, goals in gaps of the data (within its range, but no recorded state is near), and goals outside
its range; the word for each, and how many seeded episodes reach it. Goals outside the range are
easy to tell, so every figure is also given without them. The rows of a run are kept in --out and
not measured again.
"""

import argparse
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from scipy.spatial import cKDTree
from scipy.stats import spearmanr

import merlin
from merlin.data import load
from merlin.data.splits import hold_out
from merlin.envs.registry import find
from merlin.evaluation.evaluate import play
from merlin.evaluation.support import spread
from merlin.evaluation.trust import CARE, NOT, READY
from merlin.policies.base import Policy


class Towards(Policy):
    """A policy that goes to one goal, whatever the environment says."""

    policy: Policy
    goal: jnp.ndarray

    def act(self, observation, goal, horizon=None, key=None):
        return self.policy.act(observation, self.goal, horizon, key)


def success(policy, task, goal, episodes, tolerance):
    """The shares of episodes that come near a goal, and that are there at the end."""
    steered = Towards(policy, jnp.asarray(goal, jnp.float32))
    played = play(steered, task, episodes=episodes)
    near = np.linalg.norm(played.achieved_goals - np.asarray(goal), axis=2) <= tolerance
    return float(near.any(1).mean()), float(near[:, -1].mean())


def outside(goals, count, seed=0):
    """Goals beyond the range of the data, by a fifth to a whole of it, to one side at least."""
    rng = np.random.default_rng(seed)
    low, high = goals.min(0), goals.max(0)
    made = rng.uniform(low, high, (count, len(low)))
    dims, sides = rng.integers(len(low), size=count), rng.integers(2, size=count)
    beyond = rng.uniform(0.2, 1.0, count) * (high - low)[dims]
    edge = np.where(sides == 1, high[dims] + beyond, low[dims] - beyond)
    made[np.arange(count), dims] = edge
    return made.astype(np.float32)


def gaps(goals, count, tolerance, seed=0):
    """Goals within the range of the data that no recorded state is near, as far apart as possible.

    There may be fewer than `count`, or none.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.uniform(goals.min(0), goals.max(0), (20_000, goals.shape[1])).astype(np.float32)
    empty = drawn[cKDTree(goals).query(drawn)[0] > tolerance]
    return spread(empty, count, np.ones(goals.shape[1])) if len(empty) else empty


def measure(folder, episodes, inside_goals, gap_goals, outside_goals):
    run = merlin.load_run(folder)
    task = find(run.config.task)
    data = load(run.config.data.path)
    _, kept = hold_out(data, run.config.held_out)
    some = np.random.default_rng(0).permutation(len(kept.achieved_goals))[:5000]
    tolerance = task.success_tolerance or task.tolerance
    asked = {
        "inside": spread(kept.achieved_goals[np.sort(some)], inside_goals, np.ones(data.goal_dim)),
        "gap": gaps(data.achieved_goals, gap_goals, tolerance),
        "outside": outside(data.achieved_goals, outside_goals),
    }
    found = run.trust(np.concatenate(list(asked.values())))
    places = [place for place, goals in asked.items() for _ in goals]
    rows = []
    for index, judged in enumerate(found.goals):
        ever, last = success(run.policy, task, judged.goal, episodes, tolerance)
        kept_fields = ("goal", "word", "confidence", "support", "steps")
        row = {name: vars(judged)[name] for name in kept_fields}
        rows.append({**row, "place": places[index], "ever": ever, "end": last})
    return {"run": Path(folder).name, "useful": found.useful, "episodes": episodes, "rows": rows}


def summary(rows):
    """Success by word, with counts, and the rank correlation of confidence and success."""
    words = {}
    for word in (READY, CARE, NOT):
        some = [row for row in rows if row["word"] == word]
        shares = {
            k: round(float(np.mean([r[k] for r in some])), 3) for k in ("ever", "end") if some
        }
        words[word] = {"goals": len(some), **shares}
    return {**words, "rank_correlation": {k: correlation(rows, k) for k in ("ever", "end")}}


def correlation(rows, outcome):
    """Spearman's, of confidence and a measured share of episodes; None if either is constant."""
    columns = [[row[k] for row in rows] for k in ("confidence", outcome)]
    varies = all(len(set(column)) > 1 for column in columns)
    return round(float(spearmanr(*columns).statistic), 3) if varies else None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--inside", type=int, default=24)
    parser.add_argument("--gaps", type=int, default=6)
    parser.add_argument("--outside", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("trust-rows"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = []
    for run in given.runs:
        file = given.out / f"{Path(run).name}.json"
        if not file.exists():
            measured = measure(run, given.episodes, given.inside, given.gaps, given.outside)
            file.write_text(json.dumps(measured, indent=1))
        found.append(json.loads(file.read_text()))
        tell(Path(run).name, found[-1]["rows"])
    tell("all", [row for one in found for row in one["rows"]])


def tell(name, rows):
    print(name, json.dumps(summary(rows)), flush=True)
    for places in (("inside", "gap"), ("inside",), ("gap",)):
        some = [row for row in rows if row["place"] in places]
        print("  goals of", " and ".join(places), json.dumps(summary(some)), flush=True)


if __name__ == "__main__":
    main()
