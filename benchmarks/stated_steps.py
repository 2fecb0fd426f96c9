"""Who states the steps to a goal best, on held-out episodes?

    python benchmarks/stated_steps.py
    python benchmarks/stated_steps.py --data Reacher-random --runs runs

A tenth of 2,000 episodes is held out. Goals are of the same episode, of any episode, and anywhere;
the true number of steps is that until the goal is first reached within the task's tolerance, and
one more than the model looks ahead if it is not reached until then. Compared are the hazard model
of `merlin trust`, the median over the five nearest recorded pairs of state and goal, and, over
goals that are reached, the path of Merlin-map and the expected steps of Merlin-plus's classifier
(of runs/PointRooms-random and so on, trained with --held-out 0.1 --set distance=classes). Printed
are the mean absolute error in steps and Spearman's rank correlation.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import cKDTree
from scipy.stats import spearmanr

import merlin
from merlin.augment.base import find_phi
from merlin.collection.collect import collect_cached
from merlin.data.map import build_map
from merlin.data.nearness import nearness
from merlin.data.passage_times import draw_passage_times
from merlin.data.splits import hold_out
from merlin.evaluation.stated_steps import fit_steps, stated_steps
from merlin.learners import MerlinMap
from merlin.learners.distance import PAIRS
from merlin.policies.judge import bin_horizons

DATA = (
    *("PointRooms-expert", "PointRooms-random", "Reacher-expert", "Reacher-random"),
    *("SawyerReach-random", "SawyerDoor-expert"),
)
HELD_OUT, ASKED, NEIGHBOURS = 0.1, 8_000, 5


def pairs_of(data, count, limit, tolerance, seed):
    """States, goals and true numbers of steps, for states with enough steps left to know them."""
    pairs = draw_passage_times(data, count, limit=limit, tolerance=tolerance, seed=seed)
    true = np.where(pairs.reached, pairs.steps, limit + 1)
    known = pairs.seen == limit
    return pairs.row[known], pairs.goal[known], true[known]


def nearest(data, recorded, state, goal):
    """The median over the nearest recorded pairs, each dimension divided by its deviation."""
    row, goals, steps = recorded
    stds = [x.std(0) for x in (data.observations, data.achieved_goals)]
    stds = [np.where(std > 1e-6, std, 1.0) for std in stds]
    tree = cKDTree(np.concatenate([data.observations[row] / stds[0], goals / stds[1]], axis=1))
    found = tree.query(np.concatenate([state / stds[0], goal / stds[1]], axis=1), NEIGHBOURS)[1]
    return np.median(steps[found], axis=1)


def path(data, state, goal, tolerance):
    """Steps of the shortest path over recorded passages; infinite if there is none."""
    plan, phi = MerlinMap(), find_phi(data)
    known = build_map(
        data,
        phi,
        places=plan.places,
        lags=plan.lags,
        passages=plan.passages,
        hops=plan.hops,
        reach=plan.max_horizon,
        tolerance=tolerance,
    )
    place = cKDTree(np.asarray(known.centres))
    steps = np.asarray(known.steps)[place.query(state[:, phi])[1], place.query(goal)[1]]
    return np.where(steps < 0, np.inf, steps)


def classifier(policy, state, goal):
    """Expected steps by Merlin-plus's classifier, given that the goal is of the same episode."""
    judge = policy.judge
    assert not judge.hazards, "train with --set distance=classes"

    def expected(state, goal):
        x = jnp.concatenate([policy.observation_normaliser(state), policy.goal_normaliser(goal)])
        return jax.nn.softmax(judge.distance(x)[:-1]) @ bin_horizons(judge.bins, judge.width)

    return np.asarray(jax.jit(jax.vmap(expected))(state, goal))


def scores(stated, true, limit):
    """Mean absolute error and rank correlation; more steps than the limit count as one more."""
    stated = np.minimum(stated, limit + 1)
    return [
        round(float(np.abs(stated - true).mean()), 2),
        round(float(spearmanr(stated, true).statistic), 3),
    ]


def measure(name, runs):
    task, variant = name.split("-")
    data = merlin.load(collect_cached(merlin.TASKS[task], variant, episodes=2000))
    data, held_out = hold_out(data, HELD_OUT)
    tolerance = merlin.TASKS[task].tolerance
    model = fit_steps(data, held_out, nearness(data, tolerance))
    row, goal, true = pairs_of(held_out, ASKED, model.limit, tolerance, seed=1)
    state, achieved = held_out.observations[row], held_out.achieved_goals[row]
    recorded = pairs_of(data, PAIRS, model.limit, tolerance, seed=0)
    stated = {
        "model": stated_steps(model.within(state, achieved, goal)),
        "nearest": nearest(data, recorded, state, goal),
    }
    reached = true <= model.limit
    found = {"all": {by: scores(steps, true, model.limit) for by, steps in stated.items()}}
    if data.goal_dim <= 3:
        stated["path"] = path(data, state, goal, tolerance)
    if runs is not None and (runs / name).exists():
        stated["classifier"] = classifier(merlin.load_run(runs / name).policy, state, goal)
    found["reached"] = {
        by: scores(steps[reached], true[reached], model.limit) for by, steps in stated.items()
    }
    counts = {"pairs": len(true), "reached pairs": int(reached.sum()), "limit": model.limit}
    return {"data": name, **counts, **found}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--runs", type=Path)
    given = parser.parse_args()
    for name in given.data:
        print(json.dumps(measure(name, given.runs)), flush=True)


if __name__ == "__main__":
    main()
