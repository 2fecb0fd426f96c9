"""The plane of the toys: unit steps in a box, walls, and walks away from goals.

A state is a position in [-10, 10]^2. An action is a direction: every step has length one, whatever
the length of the action. A step that would cross a wall loses the component towards it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from merlin.data import Dataset
from merlin.data.dataset import Episode
from merlin.envs.point import Rectangle

Point = Float[np.ndarray, "2"]
Points = Float[np.ndarray, "n 2"]
Flags = Bool[np.ndarray, "n"]
Act = Callable[[Points], Points]

BOUND = 10.0
TOLERANCE = 0.5
"""A walk reaches its goal when it comes closer than this, half a step."""
CORNER_MARGIN = 0.05
"""Distance from the corners of walls at which shortest paths turn."""


@dataclass(frozen=True)
class World:
    """The box and its walls; all functions are vectorised over points."""

    walls: tuple[Rectangle, ...] = ()

    def move(self, positions: Points, actions: Points) -> Points:
        """Take one step from each position, of length one unless the edge or a wall shortens it."""
        steps = unit(actions)
        ends = np.clip(positions + steps, -BOUND, BOUND)
        stopped = ~self.is_clear(positions, ends)
        if stopped.any():
            start, end = positions[stopped], ends[stopped]
            ends[stopped] = self._slide(start, end)
        return ends

    def is_clear(self, starts: Points, ends: Points) -> Flags:
        """Whether the segments between pairs of points touch no wall."""
        clear = np.ones(len(starts), np.bool_)
        for wall in self.walls:
            clear &= ~_meets(starts, ends, wall)
        return clear

    def is_free(self, points: Points) -> Flags:
        """Whether points are outside all walls."""
        return self.is_clear(points, points)

    def directions(self, points: Points, goal: Point) -> Points:
        """Direction of the shortest path to the goal from each point: the best action."""
        turns = np.concatenate([goal[None], self._corners])
        beyond = self._lengths(turns)
        way = np.full(len(points), np.inf)
        target = np.zeros_like(points)
        for turn, rest in zip(turns, beyond, strict=True):
            ends = np.broadcast_to(turn, points.shape)
            length = np.linalg.norm(ends - points, axis=1) + rest
            better = self.is_clear(points, ends) & (length < way)
            way[better], target[better] = length[better], turn
        return unit(target - points)

    def _slide(self, starts: Points, ends: Points) -> Points:
        """End points of steps into walls: keep the longer free component, or stay."""
        reached = starts.copy()
        pending = np.ones(len(starts), np.bool_)
        longer = np.abs(ends - starts).argmax(axis=1)
        for axes in (longer, 1 - longer):
            rows = np.arange(len(starts))
            attempt = starts.copy()
            attempt[rows, axes] = ends[rows, axes]
            works = pending & self.is_clear(starts, attempt)
            reached[works] = attempt[works]
            pending &= ~works
        return reached

    @cached_property
    def _corners(self) -> Points:
        """Points at which shortest paths can bend: just outside the corners of walls."""
        found = []
        for wall in self.walls:
            left, bottom, right, top = wall.inflate(CORNER_MARGIN)
            found += [(x, y) for x in (left, right) for y in (bottom, top)]
        corners = np.array(found, float).reshape(-1, 2)
        inside = (np.abs(corners) <= BOUND).all(axis=1)
        return corners[inside & self.is_free(corners)]

    def _lengths(self, turns: Points) -> Float[np.ndarray, " n"]:
        """Lengths of the shortest paths from all turning points to the first."""
        n = len(turns)
        pairs = np.repeat(turns, n, axis=0), np.tile(turns, (n, 1))
        sight = np.linalg.norm(pairs[1] - pairs[0], axis=1)
        sight[~self.is_clear(*pairs)] = np.inf
        steps = sight.reshape(n, n)
        lengths = np.where(np.arange(n) == 0, 0.0, np.inf)
        for _ in range(n):
            lengths = np.minimum(lengths, (steps + lengths).min(axis=1))
        return lengths


def unit(vectors: Points) -> Points:
    """Normalise vectors to length one; zero stays zero."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(length > 0, length, 1.0)


def random_directions(n: int, rng: np.random.Generator) -> Points:
    """Unit actions, uniform in angle."""
    angle = rng.uniform(0.0, 2 * np.pi, n)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def random_points(world: World, n: int, rng: np.random.Generator) -> Points:
    """Free positions, uniform."""
    points = rng.uniform(-BOUND, BOUND, (n, 2))
    while not (free := world.is_free(points)).all():
        points[~free] = rng.uniform(-BOUND, BOUND, (int((~free).sum()), 2))
    return points


def diffuse(world: World, goals: Points, states: int, rng: np.random.Generator) -> Dataset:
    """Forward diffusion: random walks away from each goal, stored in reverse.

    The last state is the goal, s_T = g, and the states before it are s_t = s_{t+1} - a_t: the
    action stored with a state leads from it to the next. Steps that a wall or the edge would
    shorten are drawn again, because reversing them would not lead back to where they came from.
    """
    backwards, actions = [goals], []
    for _ in range(states - 1):
        ahead = backwards[-1]
        action = random_directions(len(goals), rng)
        while len(redo := np.flatnonzero(~_can_undo(world, ahead, action))):
            action[redo] = random_directions(len(redo), rng)
        backwards.append(ahead - action)
        actions.append(action)
    return as_dataset(np.stack(backwards[::-1], 1), np.stack(actions[::-1], 1), goals)


def walk(
    world: World, act: Act, starts: Points, states: int
) -> tuple[Float[np.ndarray, "n states 2"], Float[np.ndarray, "n actions 2"]]:
    """States and unit actions of walks from each start."""
    path, actions = [starts], []
    for _ in range(states - 1):
        action = unit(act(path[-1]))
        actions.append(action)
        path.append(world.move(path[-1], action))
    return np.stack(path, 1), np.stack(actions, 1)


def reached(path: Float[np.ndarray, "n states 2"], goal: Point) -> Flags:
    """Which walks reach the goal at any time."""
    return (np.linalg.norm(path - goal, axis=2) < TOLERANCE).any(axis=1)


def as_dataset(
    path: Float[np.ndarray, "n states 2"], actions: Float[np.ndarray, "n actions 2"], goals: Points
) -> Dataset:
    """Walks as an offline dataset."""
    return Dataset.from_episodes(
        [
            Episode(observations=p, actions=a, achieved_goals=p, desired_goal=g)
            for p, a, g in zip(path, actions, goals, strict=True)
        ]
    )


def _can_undo(world: World, ahead: Points, action: Points) -> Flags:
    """Whether the reverse of a step is free, so that the step itself leads back."""
    behind = ahead - action
    return (np.abs(behind) <= BOUND).all(axis=1) & world.is_clear(behind, ahead)


def _meets(starts: Points, ends: Points, wall: Rectangle) -> Flags:
    """Whether segments touch a rectangle, by intersecting parameter intervals per axis."""
    way = ends - starts
    still = way == 0.0
    low, high = np.array([wall.left, wall.bottom]), np.array([wall.right, wall.top])
    safe = np.where(still, 1.0, way)
    one, other = (low - starts) / safe, (high - starts) / safe
    between = (low <= starts) & (starts <= high)
    enter = np.where(still, np.where(between, -np.inf, np.inf), np.minimum(one, other))
    leave = np.where(still, np.where(between, np.inf, -np.inf), np.maximum(one, other))
    first, last = enter.max(axis=1), leave.min(axis=1)
    meets: Flags = (first <= last) & (last >= 0.0) & (first <= 1.0)
    return meets
