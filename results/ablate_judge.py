"""Merlin-plus's classifier against hazard models of the first passage to the goal.

These scores led to the hazards of today. The runs must have the classifier:

    merlin train Reacher --variant expert --episodes 2000 --algo merlin-plus --updates 5000 \
      --set distance=classes --eval-every 5000 --held-out 0.1 --out runs/Reacher-expert
    python results/ablate_judge.py runs/Reacher-expert --episodes 200

Policy, forward model and guide do not depend on the distance (gradients are clipped per network),
so one run serves all distances:

    classifier  the run's own: odds of a visit after h steps against goals of other episodes;
    visits      hazards on the run's kind of minibatches: a goal of the same episode is an event at
                its step, a goal of another episode is censored where the episode ends;
    passages    the same, but events are first passages within the task's tolerance;
    fitted      the hazard model of Merlin-map with hidden layers of 128, fitted to the data.

The distance of the last three is log sum_k discount^k P(T = k) / log discount. The judge's error is
measured anew. The episodes are not those of final scores. Rows are added to
results/judge-ablations.jsonl.
"""

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import merlin
from merlin.augment.base import find_phi
from merlin.data.splits import hold_out
from merlin.evaluation.evaluate import evaluate
from merlin.learners import MerlinMap, distance
from merlin.nets.hazard import Hazard
from merlin.nets.layers import MLP, clip_by_norm, descend
from merlin.policies.judge import LOG_ODDS, Judge
from merlin.training.runs import restore_learner

SEED = 200_000
"""Of the first episode."""
HIDDEN, ROWS = (128, 128), 8192
AT_ONCE = 500


def log_first(logits):
    """log P(T = k) for k = 1, 2, ..., and log P(T > k) for k = 0, 1, ..."""
    beyond = jnp.concatenate([jnp.zeros(1), -jnp.cumsum(jax.nn.softplus(logits))])
    return logits - jax.nn.softplus(logits) + beyond[:-1], beyond


class HazardJudge(eqx.Module):
    """A judge with hazards as its distance."""

    judge: Judge
    net: MLP | Hazard
    policy: eqx.Module  # for its normalisers
    square_error: jax.Array

    def logits(self, state_goal):
        if isinstance(self.net, MLP):
            return self.net(state_goal)
        state, goal = self.policy.observation_normaliser, self.policy.goal_normaliser
        x, y = jnp.split(state_goal, [len(state.mean)])
        return self.net.logits(x / state.scale + state.mean, y / goal.scale + goal.mean)

    def steps(self, state_goal, discount):
        first, _ = log_first(self.logits(state_goal))
        k = jnp.arange(1, len(first) + 1)
        arrives = jax.nn.logsumexp(first + k * math.log(discount))
        return jnp.maximum(arrives, -LOG_ODDS) / math.log(discount)

    def next_state(self, state, unit):
        return self.judge.next_state(state, unit)

    def walk_end(self, state, goal):
        return self.judge.walk_end(state, goal)


def passage(ahead, valid, goal, tolerance):
    """Steps to the first state within the tolerance, or those seen without one."""
    there = (jnp.sum((ahead[1:] - goal) ** 2, axis=1) <= tolerance**2) & valid[1:]
    seen = jnp.sum(valid[1:])
    return jnp.where(there.any(), 1 + jnp.argmax(there), seen), there.any()


def log_likelihood(logits, steps, reached):
    first, beyond = log_first(logits)
    steps = steps.astype(jnp.int32)
    return jnp.where(reached, first[jnp.maximum(steps - 1, 0)], beyond[steps])


def train(policy, learner, data, tolerance, updates):
    """The networks of `visits` and `passages`, trained on the same minibatches."""
    phi, longest = np.array(find_phi(data)), int(data.lengths.max()) - 1
    sampling = replace(learner.sampling.for_data(data.desired_goals is not None), ahead=longest + 1)
    key, optimiser = jax.random.key(77), optax.adam(learner.learning_rate)
    inputs = len(policy.observation_normaliser.mean) + len(policy.goal_normaliser.mean)
    nets = tuple(MLP(inputs, HIDDEN, longest, key=jax.random.fold_in(key, i)) for i in range(2))
    states = tuple(map(optimiser.init, nets))

    def update(step, carry, trajectories):
        batch = sampling.draw(trajectories, jax.random.fold_in(key, step), learner.batch_size)
        goals, ahead, valid = batch.goals["policy"], batch.ahead.observations, batch.ahead.valid
        other = jnp.roll(goals.goal, 1, axis=0)
        state = jax.vmap(policy.observation_normaliser)(batch.observation)
        find = jax.vmap(passage, (0, 0, 0, None))
        yes = jnp.ones(len(state), bool)
        events = (
            ((goals.horizon, yes), (jnp.sum(valid[:, 1:], axis=1), ~yes)),
            tuple(find(ahead[:, :, phi], valid, goal, tolerance) for goal in (goals.goal, other)),
        )

        def loss(net, found):
            total = jnp.float32(0.0)
            for goal, event in zip((goals.goal, other), found, strict=True):
                x = jnp.concatenate([state, jax.vmap(policy.goal_normaliser)(goal)], axis=1)
                total -= jnp.mean(jax.vmap(log_likelihood)(jax.vmap(net)(x), *event))
            return total

        moved = []
        for net, state_of, found in zip(*carry, events, strict=True):
            gradient, _ = clip_by_norm(jax.grad(loss)(net, found), learner.max_gradient_norm)
            moved.append(descend(optimiser, net, gradient, state_of))
        return tuple(zip(*moved, strict=True))

    @jax.jit
    def advance(carry, trajectories, begin):
        body = lambda step, carry: update(step, carry, trajectories)  # noqa: E731
        return jax.lax.fori_loop(begin, begin + AT_ONCE, body, carry)

    carry, trajectories = (nets, states), data.on_device()
    for begin in range(0, updates, AT_ONCE):
        carry = advance(carry, trajectories, begin)
    return carry[0]


def with_judge(policy, judge):
    return eqx.tree_at(lambda p: p.judge, policy, judge, is_leaf=lambda x: x is policy.judge)


def measured(policy, learner, judge, data):
    """The judge with its error on recorded transitions."""
    sampling = learner.sampling.for_data(data.desired_goals is not None)
    batch = sampling.draw(data.on_device(), jax.random.key(5), ROWS)
    state, after = (
        jax.vmap(policy.observation_normaliser)(x)
        for x in (batch.observation, batch.next_observation)
    )
    goal = jax.vmap(policy.goal_normaliser)(batch.goals["policy"].goal)
    guess = jax.vmap(judge.next_state)(state, policy.in_units(batch.action))
    steps = jax.vmap(lambda s, g: judge.steps(jnp.concatenate([s, g]), policy.discount))
    error = jnp.mean((steps(guess, goal) - steps(after, goal)) ** 2)
    return eqx.tree_at(lambda j: j.square_error, judge, error)


def variants(run, data, tolerance):
    """Names and judges, for the same policy."""
    policy, config = run.policy, run.config
    learner = restore_learner(config.algo, config.settings, run.folder)
    assert not policy.judge.hazards, "train with --set distance=classes"
    yield "classifier", policy.judge
    visits, passages = train(policy, learner, data, tolerance, config.schedule.updates)
    limit = distance.local_limit(int(data.lengths.max()) - 1, MerlinMap.max_horizon)
    with patch.object(distance, "HIDDEN", HIDDEN):
        fitted = distance.fit_hazard(data, find_phi(data), limit=limit, tolerance=tolerance)
    for name, net in (("visits", visits), ("passages", passages), ("fitted", fitted)):
        judge = HazardJudge(policy.judge, net, policy, policy.judge.square_error)
        yield name, measured(policy, learner, judge, data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("results/judge-ablations.jsonl"))
    given = parser.parse_args()
    for folder in given.runs:
        run = merlin.load_run(folder)
        config, task = run.config, merlin.TASKS[run.config.task]
        data, _ = hold_out(merlin.load(config.data.path), config.held_out or 0.0)
        for name, judge in variants(run, data, task.tolerance):
            policy = with_judge(run.policy, judge)
            score = evaluate(policy, task, episodes=given.episodes, seed=SEED)
            error = len(score.returns) ** -0.5 * float(score.returns.std())
            row = {"run": folder.name, "distance": name, "seed": config.seeds[0]}
            row |= {"return": round(float(score.returns.mean()), 2), "se": round(error, 2)}
            row |= {"success": round(float(score.success.mean()), 3), "episodes": given.episodes}
            row |= {"judge_error": round(float(judge.square_error) ** 0.5, 2)}
            print(json.dumps(row), flush=True)
            with given.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
