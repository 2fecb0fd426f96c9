"""Judge which goals a policy can reach, from recorded episodes alone.

The policy was not trained on the episodes that judge it: prediction errors are measured on held-out
episodes, and rehearsals start from held-out states. The thresholds were chosen on PointReach and
PointRooms (see docs/trust.md).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import cKDTree

from merlin.data import Dataset
from merlin.data.nearness import nearness
from merlin.errors import MerlinError
from merlin.evaluation.held_out import (
    PAIRS,
    Pairs,
    action_error,
    ask,
    draw_pairs,
    longest_horizon,
)
from merlin.evaluation.rehearsal import rehearse, transitions
from merlin.evaluation.stated_steps import StatedSteps, check_steps, fit_steps
from merlin.evaluation.statistics import bootstrap_interval, mean_over_episodes
from merlin.evaluation.support import in_words, lacks, passing, spread
from merlin.io.progress import Progress
from merlin.policies.base import Policy

READY, CARE, NOT = "ready", "try with care", "not supported"
READY_EPISODES, READY_CONFIDENCE = 5, 0.85
"""A goal is ready if at least this many training episodes pass near it, with this confidence."""
LEAST_EPISODES, LEAST_CONFIDENCE = 2, 0.2
"""A goal with fewer training episodes or less confidence is not supported."""
GOALS, STARTS, MOST_STEPS = 24, 128, 200
"""Default number of goals, number of rehearsals per goal, and maximum steps of a rehearsal."""
FEW_EPISODES, FEW_STARTS = 10, 32
"""With fewer held-out episodes than this, that many rehearsals start anywhere in them."""
ROWS = 768
"""Number of rehearsals that run at once, which limits memory use."""
BINS = ((1, 5), (6, 20), (21, 100))
"""Ranges of steps to the goal for which errors are reported separately."""
HELPFUL = 3
"""The number of goals listed as those that need recordings most."""


@dataclass(frozen=True)
class GoalTrust:
    """The verdict on one goal, and what it rests on."""

    goal: list[float]
    word: str
    confidence: float
    ci95: list[float] | None
    support: int  # training episodes that pass near it
    recorded_steps: float | None  # median over those episodes, from their first state
    recorded_within: float  # probability that recorded behaviour gets near it (see `StatedSteps`)
    reached: int  # rehearsals that arrive, and stay if staying counts
    rehearsals: int  # each starts from a different held-out state
    steps: float | None  # median over the rehearsals that arrive
    start_low: list[float] | None  # range of the achieved goals they start from
    start_high: list[float] | None


@dataclass(frozen=True)
class Trust:
    """The report of `merlin trust`."""

    training_episodes: int
    held_out_episodes: int
    radius: float  # a goal is near within this distance, after division by the scale
    scale: list[float]  # of each dimension of a goal
    near: str  # where the radius comes from
    stay: bool  # whether a rehearsal counts only if it is near the goal at its end
    useful: bool  # whether the right goal improves the prediction of the next steps
    prediction: list[dict[str, Any]]
    log_likelihood: dict[str, Any] | None
    steps: dict[str, Any]
    goals: list[GoalTrust]
    lacks: list[str]
    recordings: list[list[float]]  # goals that need recordings most

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def trust(
    policy: Policy,
    data: Dataset,
    held_out: Dataset,
    *,
    goals: Float[np.ndarray, "n goal"] | None = None,
    tolerance: float | None = None,
    stay: bool = False,
    seed: int = 0,
    quiet: bool = True,
) -> Trust:
    """Assess a policy that was trained on `data`, using `held_out` episodes.

    Without `goals`, goals are spread over the held-out episodes. `tolerance` is the distance at
    which a goal counts as reached; with `stay`, the policy must still be there at the end.
    """
    check_vectors(data)
    close = nearness(data, tolerance)
    limit = longest_horizon(policy)
    pairs, recorded = draw_pairs(held_out, PAIRS, limit, seed), draw_pairs(data, 30_000, limit)
    actions, likely = ask(policy, held_out, pairs)
    # Shifted by half, most pairs get a goal of another episode.
    wrong = np.roll(pairs.goal, len(pairs.goal) // 2)
    misled, unlikely = ask(policy, held_out, pairs, goal=wrong)
    nearest_state, nearest_both = _neighbours(data, recorded, held_out, pairs)
    guesses = {
        "policy": actions,
        "other_goal": misled,
        "nearest_state": data.actions[nearest_state],
        "nearest_state_and_goal": data.actions[nearest_both],
        "mean_action": np.broadcast_to(data.actions.mean(0), actions.shape),
    }
    errors = {name: action_error(held_out, pairs, guess) for name, guess in guesses.items()}
    # Of random behaviour only the likelihood tells; if it is overconfident, only the error does.
    gains = [errors["other_goal"] - errors["policy"]]
    gains += [] if likely is None else [likely - unlikely]
    useful = any(_useful(gain, pairs) for gain in gains)
    if goals is None:
        some = np.random.default_rng(seed).permutation(len(held_out.achieved_goals))[:5000]
        goals = spread(held_out.achieved_goals[np.sort(some)], GOALS, close.scale)
    asked = np.asarray(goals, np.float32)
    stated = fit_steps(data, held_out, close, quiet=quiet)
    judged = _judge_goals(policy, data, held_out, asked, stated, useful, stay, quiet)
    weakest = sorted(
        (g for g in judged if g.word != READY), key=lambda g: (g.support, g.confidence)
    )
    return Trust(
        training_episodes=len(data),
        held_out_episodes=len(held_out),
        radius=close.radius,
        scale=close.scale.tolist(),
        near=close.why,
        stay=stay,
        useful=useful,
        prediction=_by_horizon(errors, pairs),
        log_likelihood=None if likely is None else mean_over_episodes(likely, pairs.episode),
        steps=check_steps(stated, held_out, seed),
        goals=judged,
        lacks=lacks(data, close),
        recordings=[g.goal for g in weakest[:HELPFUL]],
    )


def check_vectors(data: Dataset) -> None:
    if data.has_images:
        raise MerlinError(
            "trust: works on vectors, and these observations are images; train on states."
        )


def _neighbours(
    data: Dataset, recorded: Pairs, held_out: Dataset, pairs: Pairs
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """The actions of the nearest recorded state, and of the nearest state and goal.

    Each dimension is divided by its standard deviation.
    """

    def scaled(of: Dataset, at: Pairs) -> tuple[np.ndarray, np.ndarray]:
        return of.observations[at.state] / spreads[0], of.achieved_goals[at.goal] / spreads[1]

    spreads = [np.std(x, axis=0) for x in (data.observations, data.achieved_goals)]
    spreads = [np.where(std > 1e-6, std, 1.0) for std in spreads]
    states, goals = scaled(data, recorded)
    asked, wanted = scaled(held_out, pairs)
    state = cKDTree(states).query(asked)[1]
    tree = cKDTree(np.concatenate([states, goals], axis=1))
    both = tree.query(np.concatenate([asked, wanted], axis=1))[1]
    return recorded.action[state], recorded.action[both]


def _by_horizon(errors: Mapping[str, np.ndarray], pairs: Pairs) -> list[dict[str, Any]]:
    rows = []
    for low, high in ((1, BINS[-1][1]), *BINS):
        inside = (pairs.horizon >= low) & (pairs.horizon <= high)
        if inside.any():
            told = {
                n: mean_over_episodes(e[inside], pairs.episode[inside]) for n, e in errors.items()
            }
            rows.append({"from": low, "to": high, "pairs": int(inside.sum()), **told})
    return rows


def _useful(gained: Float[np.ndarray, " pairs"], pairs: Pairs) -> bool:
    """Whether the true goal predicts the next actions better than another goal does."""
    soon = pairs.horizon <= BINS[0][1]
    if not soon.any():
        return False
    gain = mean_over_episodes(gained[soon], pairs.episode[soon])
    low = gain["mean"] if gain["ci95"] is None else gain["ci95"][0]
    return bool(low > 0)


def _starts(held_out: Dataset) -> Int[np.ndarray, " starts"]:
    """Rows to rehearse from: the first states of held-out episodes, or states spread over them."""
    rows, most = held_out.starts[:-1], STARTS
    if len(rows) < FEW_EPISODES:
        rows, most = np.arange(len(held_out.observations)), FEW_STARTS
    return rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)]


def _judge_goals(
    policy: Policy,
    data: Dataset,
    held_out: Dataset,
    goals: Float[np.ndarray, "n goal"],
    stated: StatedSteps,
    useful: bool,
    stay: bool,
    quiet: bool,
) -> list[GoalTrust]:
    rows, known, close = _starts(held_out), transitions(data, held_out), stated.close
    steps = int(min(MOST_STEPS, np.median(data.lengths) - 1))
    begin = held_out.observations[rows], held_out.achieved_goals[rows]
    judged: list[GoalTrust] = []
    with Progress("rehearsals", len(goals), "goals", quiet=quiet) as bar:
        bar.begin("compiling", 0)
        for group in np.array_split(goals, -(-len(goals) * len(rows) // ROWS)):
            tiled = np.tile(begin[0], (len(group), 1)), np.tile(begin[1], (len(group), 1))
            wanted = np.repeat(group, len(rows), axis=0)
            scale = close.scale.astype(np.float32)
            hits = rehearse(policy, known, tiled, wanted, scale, close.radius, steps, stay)
            each = np.asarray(hits).reshape(len(group), -1)
            likely = stated.within(*tiled, wanted)[:, -1].reshape(len(group), -1).mean(axis=1)
            for goal, hit, share in zip(group, each, likely, strict=True):
                episodes, after = passing(data, goal, close)
                found = _judged(goal, len(episodes), after, share, hit, steps, begin[1], useful)
                judged.append(found)
            bar.update(len(judged))
    return judged


def _judged(
    goal: Float[np.ndarray, " goal"],
    support: int,
    after: Int[np.ndarray, " episodes"],
    recorded_within: float,
    hit: Int[np.ndarray, " starts"],
    steps: int,
    begins: Float[np.ndarray, "starts goal"],
    useful: bool,
) -> GoalTrust:
    """Shares of rehearsals and of recorded behaviour, reduced where the support is small."""
    arrived = hit <= steps
    belief = support / (support + 1)
    low, high = bootstrap_interval(arrived[None].astype(float))
    confidence = belief * float(arrived.mean())
    return GoalTrust(
        goal=[float(x) for x in goal],
        word=word(support, confidence, useful),
        confidence=confidence,
        ci95=[belief * low, belief * high] if len(hit) > 1 else None,
        support=support,
        recorded_steps=float(np.median(after)) if support else None,
        recorded_within=belief * float(recorded_within),
        reached=int(arrived.sum()),
        rehearsals=len(hit),
        steps=float(np.median(hit[arrived])) if arrived.any() else None,
        start_low=begins[arrived].min(0).tolist() if arrived.any() else None,
        start_high=begins[arrived].max(0).tolist() if arrived.any() else None,
    )


def word(support: int, confidence: float, useful: bool) -> str:
    """The verdict on a goal: ready, try with care, or not supported."""
    if support < LEAST_EPISODES or confidence < LEAST_CONFIDENCE:
        return NOT
    if useful and support >= READY_EPISODES and confidence >= READY_CONFIDENCE:
        return READY
    return CARE


def verdict(found: Trust) -> str:
    """The report in one sentence."""
    counts = {name: sum(g.word == name for g in found.goals) for name in (READY, CARE, NOT)}
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    if not found.useful:
        return f"the policy predicts no better with the right goal, so no goal is ready ({told})"
    help_ = "; ".join(in_words(np.asarray(goal)) for goal in found.recordings)
    return f"{told}" + (f"; record more near {help_}" if help_ else "")
