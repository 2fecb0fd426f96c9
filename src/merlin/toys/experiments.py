"""Merlin and GCSL in three worlds: an empty one, four rooms, and one with several goals.

Merlin trains on reversed walks away from the goal. GCSL collects its own data, as in its paper:
first random walks, then noisy rollouts of its policy towards the same goals. Both see the same
number of walks, and make the same number of updates with the same batch size.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from merlin.data import Dataset
from merlin.data.spec import make_spec
from merlin.envs.point import Rectangle
from merlin.errors import MerlinError
from merlin.evaluation.evaluate import with_temperature
from merlin.learners import GCSL, Merlin
from merlin.learners.merlin import GaussianPolicy
from merlin.policies.base import Policy
from merlin.toys.world import (
    BOUND,
    TOLERANCE,
    Flags,
    Point,
    Points,
    World,
    as_dataset,
    diffuse,
    random_directions,
    random_points,
    reached,
    unit,
    walk,
)
from merlin.training.loop import compiled_chunk
from merlin.training.train import train

HORIZONS = (1, 5, 10, 20)
GRID = 40
"""Points along each side of the grid on which policies are evaluated."""
WALK = 50
"""Number of states of a walk in the data."""
LIMIT = 100
"""Steps within which a goal must be reached."""
NOISE = 0.1
"""Standard deviation of GCSL's exploration noise."""

HALF = 0.25
ROOMS = World(
    walls=tuple(
        Rectangle(*wall)
        for low, high in ((-BOUND, -7.5), (-2.5, 2.5), (7.5, BOUND))
        for wall in ((-HALF, low, HALF, high), (low, -HALF, high, HALF))
    )
)
"""Walls half a step thick along both axes, with a door of width five between neighbours."""


@dataclass(frozen=True)
class Settings:
    """Sizes of data and training for both methods; smaller in tests."""

    walks: int = 200
    updates: int = 8000
    rounds: int = 10  # rounds of GCSL's collection; the first is random
    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 5e-4
    batch_size: int = 256


@dataclass(frozen=True)
class Experiment:
    """A world, the goals that walks start from, and goals that are not in the data."""

    world: World
    goals: tuple[tuple[float, float], ...]
    unseen: tuple[tuple[float, float], ...] = ()
    horizon: int = 1  # default horizon of Merlin
    settings: Settings = field(default_factory=Settings)


CORNERS = ((-5.0, -5.0), (5.0, 5.0), (5.0, -5.0), (-5.0, 5.0))
EXPERIMENTS: dict[str, tuple[Experiment, ...]] = {
    "point": (
        Experiment(World(), ((0.0, 0.0),), ((5.0, 4.0), (7.0, -8.0), (-3.0, -6.0), (-7.0, 4.0))),
    ),
    "fourrooms": (
        Experiment(ROOMS, ((5.0, -5.0),), ((5.0, 4.0), (7.0, -8.0), (-3.0, -6.0), (-7.0, 4.0))),
    ),
    "multigoal": tuple(
        Experiment(World(), CORNERS[:count], settings=Settings(updates=5000)) for count in (2, 3, 4)
    ),
}


class Field(NamedTuple):
    """Actions of a policy on the grid for one goal; errors are angles to the shortest path."""

    points: Points
    mean: Points  # unit actions
    errors: Float[np.ndarray, " n"]
    sampled: Points  # sampled actions; equal to the mean for a deterministic policy
    sampled_errors: Float[np.ndarray, " n"]
    away: Flags  # farther than half a step from the goal, where a direction can be wrong
    reached: Flags

    def numbers(self) -> dict[str, float]:
        return {
            "angle": round(float(self.errors[self.away].mean()), 2),
            "sampled_angle": round(float(self.sampled_errors[self.away].mean()), 2),
            "reached": round(float(self.reached.mean()), 4),
        }


class Trained(NamedTuple):
    """Merlin's data and the policies of Merlin, GCSL, and GCSL trained on Merlin's data."""

    data: Dataset
    merlin: Policy
    gcsl: Policy
    gcsl_same: Policy


def find(name: str) -> tuple[Experiment, ...]:
    if name not in EXPERIMENTS:
        raise MerlinError(f"toy: {name!r} is unknown; choose from {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]


def run(experiment: Experiment, seed: int) -> Trained:
    """Generate the data and train both methods."""
    rng = np.random.default_rng(seed)
    settings = experiment.settings
    data = diffuse(experiment.world, _draw_goals(experiment, settings.walks, rng), WALK, rng)
    sizes = {
        "hidden": settings.hidden,
        "learning_rate": settings.learning_rate,
        "batch_size": settings.batch_size,
    }
    learner = Merlin(horizon=experiment.horizon, **sizes)  # type: ignore[arg-type]
    merlin = train(learner, data, updates=settings.updates, seeds=(seed,)).policy
    peer = GCSL(**sizes)  # type: ignore[arg-type]
    same = train(peer, data, updates=settings.updates, seeds=(seed,)).policy
    return Trained(data, merlin, _iterate(peer, experiment, seed, rng), same)


def _draw_goals(experiment: Experiment, n: int, rng: np.random.Generator) -> Points:
    goals = np.asarray(experiment.goals)
    return goals[rng.integers(len(goals), size=n)]


def _iterate(learner: GCSL, experiment: Experiment, seed: int, rng: np.random.Generator) -> Policy:
    """Iterated supervised learning: collect, train on everything collected, collect again."""
    settings, world = experiment.settings, experiment.world
    walks, updates = settings.walks // settings.rounds, settings.updates // settings.rounds
    init_key, update_key = jax.random.split(jax.random.key(seed))
    data = _collect(world, None, _draw_goals(experiment, walks, rng), rng)
    state = learner.init(init_key, make_spec(data, learner.sampling))
    chunk = compiled_chunk(learner, together=False)
    for step in range(0, settings.rounds * updates, updates):
        if step > 0:
            goals = _draw_goals(experiment, walks, rng)
            new = _collect(world, learner.policy(state), goals, rng)
            data = Dataset.from_episodes(d.episode(i) for d in (data, new) for i in range(len(d)))
        state, _ = chunk(state, data.on_device(), update_key, step, step + updates)
    return learner.policy(state)


def _collect(
    world: World, policy: Policy | None, goals: Points, rng: np.random.Generator
) -> Dataset:
    """Walks from random starts towards goals; random actions without a policy."""

    def explore(points: Points) -> Points:
        if policy is None:
            return random_directions(len(points), rng)
        noise = rng.normal(0.0, NOISE, points.shape)
        return np.clip(_act(policy, points, goals) + noise, -1.0, 1.0)

    starts = random_points(world, len(goals), rng)
    return as_dataset(*walk(world, explore, starts, WALK), goals)


def look(
    policy: Policy, world: World, goal: Point, *, horizon: int | None = None, seed: int = 0
) -> Field:
    """Evaluate a policy on the grid, with a rollout from every grid point."""
    ticks = (np.arange(GRID) + 0.5) * (2 * BOUND / GRID) - BOUND
    points = np.stack(np.meshgrid(ticks, ticks), -1).reshape(-1, 2)
    points = points[world.is_free(points)]
    mean = unit(_act(policy, points, goal, horizon))
    sampled = mean
    if isinstance(policy, GaussianPolicy):
        drawing = with_temperature(policy, 1.0)
        sampled = unit(_act(drawing, points, goal, horizon, jax.random.key(seed)))
    best = world.directions(points, goal)
    path, _ = walk(world, lambda p: _act(policy, p, goal, horizon), points, LIMIT + 1)
    return Field(
        points=points,
        mean=mean,
        errors=_degrees(mean, best),
        sampled=sampled,
        sampled_errors=_degrees(sampled, best),
        away=np.linalg.norm(points - goal, axis=1) > TOLERANCE,
        reached=reached(path, goal),
    )


def _degrees(one: Points, other: Points) -> Float[np.ndarray, " n"]:
    return np.degrees(np.arccos(np.clip((one * other).sum(axis=1), -1.0, 1.0)))


def _act(
    policy: Policy,
    points: Points,
    goals: Point | Points,
    horizon: int | None = None,
    key: PRNGKeyArray | None = None,
) -> Points:
    """Actions of a policy in float64, the precision of the world."""
    told = None if horizon is None else np.float32(horizon)
    goals = np.broadcast_to(np.asarray(goals, np.float32), points.shape)
    keys = None if key is None else jax.random.split(key, len(points))
    return np.asarray(_batched(policy, points.astype(np.float32), goals, told, keys), np.float64)


@eqx.filter_jit
def _batched(
    policy: Policy,
    points: ArrayLike,
    goals: ArrayLike,
    horizon: ArrayLike | None,
    keys: PRNGKeyArray | None,
) -> Float[Array, "n 2"]:
    return jax.vmap(policy, (0, 0, None, None if keys is None else 0))(points, goals, horizon, keys)
