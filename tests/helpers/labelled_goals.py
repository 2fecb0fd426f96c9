"""Goals drawn from datasets whose rows say where they are from, and an obvious reference."""

import jax
import numpy as np

from merlin.data import Dataset, Episode, Goals, Sampling
from merlin.data.goals import hindsight
from merlin.data.offsets import Fixed, Geometric, Uniform

RATIOS = (0.0, 0.3, 1.0)
STEPS = ("pairs", "episodes", "transitions")
HINDSIGHT = [(ratio, steps) for ratio in RATIOS for steps in STEPS]
MANY = {
    "value": Goals(current=0.2, future=0.5, random=0.3, offsets=Geometric(0.6)),
    "meant": Goals(desired=0.4, future=0.3, random=0.3),
    "soon": Goals(future=1.0, offsets=Fixed(3)),
}
LIMITED = [hindsight(ratio, steps, limit=4) for ratio, steps in HINDSIGHT if ratio > 0.0]
RULES = [hindsight(*how) for how in HINDSIGHT] + LIMITED
RULES += [Sampling(MANY, steps) for steps in STEPS]
MIXED = (2, 3, 7, 12)
STATES = 24  # of every dataset that hypothesis draws: one shape, compiled once


def labelled_dataset(lengths, *, goals=True):
    """Observation (episode, step, 0), action and achieved goal (episode, step)."""
    episodes = []
    for e, states in enumerate(lengths):
        steps = np.stack([np.full(states, e), np.arange(states)], 1).astype(np.float32)
        episodes.append(
            Episode(
                observations=np.pad(steps, ((0, 0), (0, 1))),
                actions=steps[:-1],
                achieved_goals=steps,
                desired_goal=np.array([-1 - e, -1], np.float32) if goals else None,
            )
        )
    return Dataset.from_episodes(episodes, action_low=0.0, action_high=1000.0)


def chance_of(offsets, rest):
    """Probability of every offset from 1 to `rest`."""
    if isinstance(offsets, Fixed):
        return {min(offsets.steps, rest): 1.0}
    if isinstance(offsets, Uniform):
        rest = rest if offsets.limit is None else min(rest, offsets.limit)
        return dict.fromkeys(range(1, rest + 1), 1.0 / rest)
    table = {k: (1 - offsets.discount) * offsets.discount ** (k - 1) for k in range(1, rest)}
    return {**table, rest: offsets.discount ** (rest - 1)}


def places(lengths, steps, limit=None):
    """Probability of every (episode, t), by enumeration."""
    for e, states in enumerate(lengths):
        for t in range(states - 1):
            if steps == "pairs" and (limit is None or states - 1 <= limit):
                chance = (states - 1 - t) / (states * (states - 1) / 2) / len(lengths)
            elif steps != "transitions":
                chance = 1.0 / (states - 1) / len(lengths)
            else:
                chance = 1.0 / (sum(lengths) - len(lengths))
            yield e, t, chance


def reference(lengths, rule, name="policy"):
    """Probability of every (episode, t, goal), a goal being where it stands in `labelled_dataset`.

    So it is (episode, step), or (-1 - episode, -1) for a desired goal.
    """
    goals, table = rule.goals[name], {}
    everywhere = [(e, i) for e, states in enumerate(lengths) for i in range(states)]
    first = next(iter(rule.goals.values())).offsets
    limit = first.limit if isinstance(first, Uniform) else None
    for e, t, chance in places(lengths, rule.steps, limit):
        given = [((e, t), goals.current), ((-1 - e, -1), goals.desired)]
        given += [(place, goals.random / len(everywhere)) for place in everywhere]
        for k, p in chance_of(goals.offsets, lengths[e] - 1 - t).items():
            given.append(((e, t + k), goals.future * p))
        for goal, p in given:
            table[e, t, *goal] = table.get((e, t, *goal), 0.0) + chance * p
    return {place: p for place, p in table.items() if p > 0.0}


COMPILED = {}


def compiled(rule, n):
    """One program per rule for the tests to share."""
    function = jax.jit(lambda data, key: rule.draw(data, key, n))
    return COMPILED.setdefault((repr(rule), n), function)


def draw(data, rule, n, seed=0):
    batch = compiled(rule, n)(data.on_device(), jax.random.key(seed))
    return jax.tree.map(np.asarray, batch)


def read_off(batch, lengths, goals, name):
    """Where each row and its goal are from, after checking that its parts agree."""
    episode, t = batch.observation[:, 0].astype(int), batch.observation[:, 1].astype(int)
    length = np.asarray(lengths)[episode]
    at, then = np.stack([episode, t], 1), np.stack([episode, t + 1], 1)
    assert (t < length - 1).all(), "the last state has no action"
    np.testing.assert_array_equal(batch.action, at)
    np.testing.assert_array_equal(batch.achieved_goal, at)
    np.testing.assert_array_equal(batch.next_observation[:, :2], then)
    np.testing.assert_array_equal(batch.next_achieved_goal, then)

    np.testing.assert_array_equal(batch.first_observation[:, 0], episode)
    np.testing.assert_array_equal(batch.first_observation[:, 1], 0)

    drawn = batch.goals[name]
    goal = drawn.goal.astype(int)
    achieved = goal[:, 0] >= 0
    np.testing.assert_array_equal(drawn.observation[achieved, :2], drawn.goal[achieved])
    np.testing.assert_array_equal(drawn.reached, (goal == at).all(1))
    own = drawn.relabelled
    assert (goal[own, 0] == episode[own]).all()
    assert ((t < goal[:, 1]) & (goal[:, 1] < length))[own].all()
    np.testing.assert_array_equal(drawn.horizon[own], (goal[:, 1] - t)[own])
    if goals.random == 0.0:
        np.testing.assert_array_equal(own, achieved & ~drawn.reached)
        assert (goal[~achieved, 0] == -1 - episode[~achieved]).all()
    np.testing.assert_array_equal(drawn.horizon[~achieved], (length - t)[~achieved])
    return np.concatenate([at, goal], 1)
