"""Ablations of Merlin-map: one trained executor with other maps and other ways to act.

    python results/ablate_map.py PointRooms-random --runs runs/map-ablations

The executor does not depend on the map, so it is trained once per dataset. The episodes are not
those of final scores. Rows are added to results/map-ablations.jsonl.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

import merlin
from merlin.augment.base import find_phi
from merlin.collection.collect import collect_cached
from merlin.data import map as maps
from merlin.data.kinetic import kinetic_map
from merlin.envs.registry import find
from merlin.evaluation.evaluate import evaluate
from merlin.learners.distance import local_limit
from merlin.training.plan import method_for, without_desired_goals

SEED = 700_000
"""Of the first episode."""
LIKELY = 0.5
"""Inferred passages have at least this stated probability."""


def inferred(policy, lags):
    """Passages between places wherever the hazard model calls one likely, instead of recorded."""
    within, centres = jax.jit(jax.vmap(policy.hazard.within)), policy.map.centres
    found = np.zeros((len(centres), len(centres)), np.int64)
    for row, state in enumerate(policy.map.states):
        said = np.asarray(within(jnp.broadcast_to(state, (len(centres), len(state))), centres))
        for lag in sorted(lags, reverse=True):
            found[row, said[:, lag - 1] >= LIKELY] = lag
    np.fill_diagonal(found, 0)
    return found, np.where(found > 0, 3, 0)


def variants(policy, data, learner):
    """Names and policies, all with the same executor."""
    how = {"lags": learner.lags, "passages": learner.passages, "hops": learner.hops}
    how |= {"reach": learner.max_horizon, "places": learner.places}
    limit = local_limit(int(data.lengths.max()) - 1, learner.max_horizon)
    slow = kinetic_map(data.achieved_goals, data.starts, limit)
    spaces = {"kinetic": slow, "coordinates": None}
    own = learner.distances(data.goal_dim)
    (other,) = spaces.keys() - {own}
    how |= {"projection": spaces[own]}

    def mapped(**other):
        found = maps.build_map(data, find_phi(data), **how | other)
        return replace(policy, map=jax.tree.map(jnp.asarray, found))

    yield "default", policy
    yield f"distances in {other} space", mapped(projection=spaces[other])
    none = jnp.full_like(policy.map.ahead, maps.THE_GOAL)
    yield "without the map", replace(policy, map=policy.map._replace(ahead=none))
    with patch.object(maps, "passage_lags", lambda *_: inferred(policy, learner.lags)):
        yield "inferred passages", mapped()
    # The density decides, which is the densest component without a horizon.
    calm = replace(policy.executor, caution=1e9)
    yield "without the critic's choice", replace(policy, executor=calm)
    yield "without noise", policy.with_temperature(0.0)
    for count in (200, 1600):
        yield f"{count} places", mapped(places=count)
    yield "one passage per waypoint", mapped(hops=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="task and variant, for example PointRooms-random")
    parser.add_argument("--updates", type=int, default=5000)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--recorded", type=int, help="episodes of data, by default all")
    parser.add_argument("--only", nargs="*", help="names of variants, by default all")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/map-ablations.jsonl"))
    given = parser.parse_args()
    name, variant = given.data.rsplit("-", 1)
    task = find(name)
    count = given.recorded or min(task.episodes, 10_000)
    data = merlin.load(collect_cached(task, variant, episodes=count, quiet=False))
    settings = without_desired_goals("merlin-map", data, "vector")
    learner = method_for("merlin-map", data, task, settings=settings).learner
    run = merlin.train(
        learner, data, task=task.name, updates=given.updates, out=given.runs / given.data
    )
    for what, policy in variants(run.policy, data, learner):
        if given.only and what not in given.only:
            continue
        score = evaluate(policy, task, episodes=given.episodes, seed=SEED)
        row = {"data": given.data, "fingerprint": data.fingerprint(), "recorded": len(data)}
        row |= {"variant": what, "updates": given.updates, "seed": 0}
        row |= {"episodes": given.episodes, "return": round(float(score.returns.mean()), 2)}
        row |= {"success": round(float(score.success.mean()), 4)}
        print(json.dumps(row), flush=True)
        with given.out.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
