"""Goal sampling: from trajectories to minibatches of transitions and their goals.

A learner declares a `Sampling`: how the transition (s, a, s') of a row is drawn, which segments
around it are needed, and one or more named goal distributions. All goals of a row belong to the
same transition. A method with a value function might use

    Sampling(
        steps="transitions",
        goals={
            "value": Goals(current=0.2, future=0.5, random=0.3, offsets=Geometric(0.99)),
            "actor": Goals(future=1.0, subgoal=25),
        },
    )

The rule of "Learning to Reach Goals via Diffusion" is `hindsight(ratio, "pairs")`: draw an episode
uniformly, then a pair of its states t < i uniformly. With probability `ratio` the goal is the one
achieved at i and the horizon is i - t. Otherwise it is the episode's desired goal, and the horizon
is the number of states from t to the end of the episode, including t.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, Integer, UInt32

from merlin.data.offsets import UNIFORM, Offsets, Uniform, uniform_below
from merlin.errors import MerlinError
from merlin.types import Batch, DrawnGoals, PRNGKeyArray, Segment, Trajectories

Steps = Literal["pairs", "episodes", "transitions"]
"""How the step t of a row is drawn.

pairs        An episode uniformly, then two of its states uniformly; t is the earlier one. Step t of
             an episode of T states has probability (T - 1 - t) / (T (T - 1) / 2). If the horizon
             of goals is limited and the episode is longer, t is uniform over its actions.
episodes     An episode uniformly, then one of its actions uniformly.
transitions  Uniform over all actions: long episodes are drawn more often than short ones.

If a dataset limits the steps that are drawn (`drawn_steps`), an episode is drawn uniformly, then
one of its first steps uniformly, whatever the rule.
"""


class Place(NamedTuple):
    """The positions in the data of the rows of a minibatch."""

    episode: Int32[Array, " n"]
    begin: Int32[Array, " n"]  # index of the episode's first state
    length: Int32[Array, " n"]  # the episode's number of states
    t: Int32[Array, " n"]  # from 0 to length - 2: the last state has no action


@dataclass(frozen=True)
class Goals:
    """A distribution of goals for the state at step t of an episode."""

    future: float = 0.0  # fraction of goals achieved later in the same episode
    desired: float = 0.0  # fraction that is the episode's desired goal
    random: float = 0.0  # fraction achieved by a random state of the dataset
    current: float = 0.0  # fraction already achieved at t
    offsets: Offsets = UNIFORM  # of the future goals
    subgoal: int = 0  # if above 0: also draw a subgoal this many steps ahead, capped at the goal

    def __post_init__(self) -> None:
        shares = (self.future, self.desired, self.random, self.current)
        if not (min(shares) >= 0.0 and math.isclose(sum(shares), 1.0, abs_tol=1e-6)):
            raise MerlinError(
                "future, desired, random, current: must be non-negative and sum to 1, "
                f"not {shares}."
            )
        if self.subgoal < 0:
            raise MerlinError(f"subgoal: {self.subgoal} is not a non-negative number of steps.")

    def draw(
        self,
        data: Trajectories,
        place: Place,
        later: Int32[Array, " n"],
        row: Int32[Array, " n"],
        word: UInt32[Array, " n"],
    ) -> DrawnGoals:
        """Goals for a place: `later` is the step of a future goal, `row` the state of a random one.

        The random word selects future, random, desired or current goals.
        """
        kinds = self._kinds(word)
        now, last, left = place.begin + place.t, place.length - 1, place.length - place.t
        future = place.begin + later
        state = _choose(kinds, future=future, desired=future, random=row, current=now)
        steps = _choose(
            kinds, future=later - place.t, desired=left, random=left, current=jnp.zeros_like(left)
        )
        goal = data.achieved_goals[state]
        if self.desired > 0.0:
            assert data.desired_goals is not None, "make_spec refuses this"
            meant = data.desired_goals[place.episode]
            goal = jnp.where(kinds["desired"][:, None], meant, goal)
        drawn = DrawnGoals(
            goal=goal,
            observation=data.observations[state],
            horizon=steps.astype(jnp.float32),
            reached=state == now,
            relabelled=kinds.get("future", jnp.zeros(word.shape, bool)),
        )
        if self.subgoal == 0:
            return drawn
        end = _choose(kinds, future=later, desired=last, random=last, current=place.t)
        on_the_way = place.begin + jnp.minimum(place.t + self.subgoal, end)
        return drawn._replace(
            subgoal=data.achieved_goals[on_the_way],
            subgoal_observation=data.observations[on_the_way],
        )

    def _kinds(self, word: UInt32[Array, " n"]) -> dict[str, Bool[Array, " n"]]:
        """A mask of the rows for each kind of goal with a nonzero fraction."""
        shares = {"future": self.future, "desired": self.desired}
        shares |= {"random": self.random, "current": self.current}
        *others, last = (name for name, share in shares.items() if share > 0.0)
        left, below, found = jnp.ones(word.shape, bool), 0.0, {}
        for name in others:
            below += shares[name]
            found[name] = left & (word < np.uint32(min(below * 2**32, 2**32 - 1)))
            left &= ~found[name]
        return {**found, last: left}


def _choose(
    kinds: dict[str, Bool[Array, " n"]], **values: Int32[Array, " n"]
) -> Int32[Array, " n"]:
    """Select for each row the value of its own kind."""
    *others, last = kinds
    chosen = values[last]
    for name in others:
        chosen = jnp.where(kinds[name], values[name], chosen)
    return chosen


@dataclass(frozen=True)
class Sampling:
    """The transitions, segments and goals that a learner samples."""

    goals: Mapping[str, Goals]
    steps: Steps = "transitions"
    ahead: int = 0  # length of the segment that starts at t
    behind: int = 0  # length of the segment that ends at t

    def __post_init__(self) -> None:
        if not self.goals:
            raise MerlinError("goals: there are none; name at least one distribution.")
        if self.ahead < 0 or self.behind < 0:
            raise MerlinError("ahead, behind: the length of a segment must not be negative.")

    @property
    def desired(self) -> float:
        """The largest fraction of desired goals in any distribution."""
        return max(goals.desired for goals in self.goals.values())

    def for_data(self, has_desired_goals: bool) -> "Sampling":
        """Replace desired goals by future ones if the trajectories have no desired goals."""
        if has_desired_goals or self.desired == 0.0:
            return self
        goals = {
            name: replace(each, future=each.future + each.desired, desired=0.0)
            for name, each in self.goals.items()
        }
        return replace(self, goals=goals)

    def draw(self, data: Trajectories, key: PRNGKeyArray, n: int) -> Batch:
        """Draw `n` examples. Pure: the same key gives the same minibatch.

        Given the transition, the goal distributions are independent of each other.
        """
        first = next(iter(self.goals.values()))
        # The pair of states that gives t also gives a uniform later step, and a fourth word is
        # unused. The first distribution draws more words only if it needs them.
        covered = first.random == 0.0 and isinstance(first.offsets, Uniform)
        more = len(self.goals) - covered
        words = jax.random.bits(key, (4 + 3 * more, n), jnp.uint32)
        uniform = first.offsets if isinstance(first.offsets, Uniform) else Uniform()
        place, later = self._place(data, words[:3], uniform)
        own = iter(words[4:].reshape(more, 3, n))
        goals = {}
        for index, (name, wanted) in enumerate(self.goals.items()):
            if index == 0 and covered:
                goals[name] = wanted.draw(data, place, later, place.begin, words[3])
                continue
            kind, offset, row = next(own)
            goals[name] = wanted.draw(
                data,
                place,
                place.t + wanted.offsets.draw(offset, place.length - 1 - place.t),
                uniform_below(row, len(data.achieved_goals)),
                kind,
            )
        now = place.begin + place.t
        return Batch(
            observation=data.observations[now],
            action=data.actions[now - place.episode],
            next_observation=data.observations[now + 1],
            achieved_goal=data.achieved_goals[now],
            next_achieved_goal=data.achieved_goals[now + 1],
            first_observation=data.observations[place.begin],
            goals=goals,
            ahead=_segment(data, place, place.t, self.ahead),
            behind=_segment(data, place, place.t - self.behind + 1, self.behind),
        )

    def _place(
        self, data: Trajectories, words: UInt32[Array, "3 n"], offsets: Uniform
    ) -> tuple[Place, Int32[Array, " n"]]:
        """The positions of the rows, and for each a uniformly drawn later step of its episode."""
        if data.drawn_steps is not None:
            return self._first_steps(data, words, offsets)
        if self.steps == "transitions":
            # Episodes have one action fewer than states.
            first_actions = data.starts - jnp.arange(len(data.starts))
            action = uniform_below(words[0], len(data.actions))
            episode = jnp.searchsorted(first_actions, action, side="right").astype(jnp.int32) - 1
        else:
            episode = uniform_below(words[0], len(data.starts) - 1)
        begin = data.starts[episode]
        length = data.starts[episode + 1] - begin
        if self.steps == "pairs":
            # Two distinct states, ordered: uniform over pairs for any length.
            one = uniform_below(words[1], length)
            other = uniform_below(words[2], length - 1)
            other = other + (other >= one).astype(jnp.int32)
            t, later = jnp.minimum(one, other), jnp.maximum(one, other)
            if offsets.limit is not None:
                step, cut = uniform_below(words[1], length - 1), offsets.cuts(length)
                near = step + offsets.draw(words[2], length - 1 - step)
                t, later = jnp.where(cut, step, t), jnp.where(cut, near, later)
            return Place(episode, begin, length, t), later
        if self.steps == "episodes":
            t = uniform_below(words[1], length - 1)
        else:
            t = action - (begin - episode)
        return Place(episode, begin, length, t), t + offsets.draw(words[2], length - 1 - t)

    @staticmethod
    def _first_steps(
        data: Trajectories, words: UInt32[Array, "3 n"], offsets: Uniform
    ) -> tuple[Place, Int32[Array, " n"]]:
        """The same for data that limits the steps that are drawn."""
        assert data.drawn_steps is not None
        episode = uniform_below(words[0], len(data.starts) - 1)
        begin = data.starts[episode]
        length = data.starts[episode + 1] - begin
        t = uniform_below(words[1], jnp.minimum(length - 1, data.drawn_steps))
        return Place(episode, begin, length, t), t + offsets.draw(words[2], length - 1 - t)

    def step_shares(
        self, length: int, drawn_steps: int | None = None
    ) -> Float[np.ndarray, " length"]:
        """Probability of each step of an episode with this many states as t."""
        step = np.arange(length)
        if drawn_steps is not None:
            drawn = min(length - 1, drawn_steps)
            return (step < drawn) / float(drawn)
        first = next(iter(self.goals.values())).offsets
        cut = isinstance(first, Uniform) and first.cuts(length)
        if self.steps == "pairs" and not cut:
            return (length - 1 - step) / (length * (length - 1) / 2)
        return (step < length - 1) / (length - 1.0)

    def episode_shares(
        self, lengths: Integer[np.ndarray, " episodes"], drawn_steps: int | None = None
    ) -> Float[np.ndarray, " episodes"]:
        """Probability of each episode, given their numbers of states."""
        if self.steps == "transitions" and drawn_steps is None:
            return (lengths - 1.0) / (lengths - 1.0).sum()
        return np.full(len(lengths), 1.0 / len(lengths))


def hindsight(
    ratio: float, steps: Steps, *, limit: int | None = None, ahead: int = 0, behind: int = 0
) -> Sampling:
    """A single distribution: a fraction of uniform future goals, otherwise desired goals.

    With `limit`, future goals are at most that many steps ahead.
    """
    if not 0.0 <= ratio <= 1.0:
        raise MerlinError(
            f"hindsight_ratio: {ratio} is not between 0 and 1; "
            "it is the fraction of goals taken from the future of the same episode."
        )
    goals = {"policy": Goals(future=ratio, desired=1.0 - ratio, offsets=Uniform(limit))}
    return Sampling(goals, steps, ahead=ahead, behind=behind)


def _segment(
    data: Trajectories, place: Place, first: Int32[Array, " n"], steps: int
) -> Segment | None:
    """A fixed number of steps of the episode from `first` on, padded at its edges."""
    if steps == 0:
        return None
    wanted = first[:, None] + jnp.arange(steps)
    state = jnp.clip(wanted, 0, place.length[:, None] - 1)
    action = jnp.clip(wanted, 0, place.length[:, None] - 2)
    return Segment(
        observations=data.observations[place.begin[:, None] + state],
        actions=data.actions[(place.begin - place.episode)[:, None] + action],
        valid=wanted == state,
    )


def draw_mixture(
    sampling: Sampling,
    parts: tuple[Trajectories, Trajectories],
    key: PRNGKeyArray,
    sizes: tuple[int, int],
) -> Batch:
    """A minibatch with given numbers of recorded and of synthetic examples, by the same rule.

    Random goals come from the same dataset as their transition.
    """
    rules = sampling, sampling.for_data(parts[1].desired_goals is not None)
    keys = jax.random.split(key)
    drawn = [
        rule.draw(data, k, n) for rule, data, k, n in zip(rules, parts, keys, sizes, strict=True)
    ]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *drawn)
