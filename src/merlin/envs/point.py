"""PointReach and PointRooms: a disc moves in a square, without and with walls.

`Arena` implements the dynamics as pure functions of many positions and actions. `PointEnv` and
`PointVectorEnv` wrap it in Gymnasium's interfaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float, Float32, Int

from merlin.envs import raster

Point = Float[np.ndarray, "2"]
Points = Float[np.ndarray, "n 2"]
Flags = Bool[np.ndarray, "n"]
Rewards = Float32[np.ndarray, "*batch"]
Observation = dict[str, Float32[np.ndarray, "*batch 2"]]
Seeds = int | Sequence[int | None] | None

BOUND = 5.0
TOLERANCE = raster.GOAL_RADIUS
"""The goal is reached if the centre of the agent is in the goal disc, including its rim."""
WALL_GAP = 0.01
"""Distance at which a wall stops the agent."""


class Rectangle(NamedTuple):
    """An axis-aligned rectangle."""

    left: float
    bottom: float
    right: float
    top: float

    def inflate(self, margin: float) -> Rectangle:
        """Move every side outwards by a margin."""
        return Rectangle(
            self.left - margin, self.bottom - margin, self.right + margin, self.top + margin
        )


@dataclass(frozen=True)
class Arena:
    """The square [-5, 5]^2 with walls that stop or deflect a disc of radius 0.5.

    Walls are given with their visible size; their order matters where the disc touches several.
    """

    walls: tuple[Rectangle, ...] = ()

    @cached_property
    def obstacles(self) -> tuple[Rectangle, ...]:
        """The walls inflated by the radius of the disc, as obstacles for its centre."""
        return tuple(wall.inflate(raster.AGENT_RADIUS) for wall in self.walls)

    def move(self, positions: Points, actions: Points) -> Points:
        """Displace points by actions, clipped to [-1, 1], and let them slide along walls.

        Computes and returns float64, whatever the precision of its arguments.
        """
        positions = np.asarray(positions, np.float64)
        proposals: Points = positions + np.clip(np.asarray(actions, np.float64), -1.0, 1.0)
        # Most moves touch no wall and need no correction.
        near = np.flatnonzero(self._touches_any(positions, proposals))
        if near.size:
            proposals[near] = _slide_along_all(positions[near], proposals[near], self.obstacles)
        return proposals.clip(-BOUND, BOUND)

    def is_free(self, positions: Points) -> Flags:
        """Whether each point lies strictly inside none of the inflated walls."""
        x, y = np.asarray(positions, np.float64).T
        blocked = np.zeros(x.shape, np.bool_)
        for left, bottom, right, top in self.obstacles:
            blocked |= (left < x) & (x < right) & (bottom < y) & (y < top)
        return ~blocked

    def sample_free_each(self, rngs: Sequence[np.random.Generator]) -> Points:
        """Draw one uniform free position from each generator, by rejection."""
        points = np.empty((len(rngs), 2))
        pending = np.arange(len(rngs))
        while pending.size:
            for index in pending.tolist():
                points[index] = rngs[index].uniform(-BOUND, BOUND, size=2)
            pending = pending[~self.is_free(points[pending])]
        return points

    def _touches_any(self, starts: Points, ends: Points) -> Flags:
        touched = np.zeros(len(starts), np.bool_)
        low_x, low_y = np.minimum(starts, ends).T
        high_x, high_y = np.maximum(starts, ends).T
        for left, bottom, right, top in self.obstacles:
            beside = (high_x < left) | (low_x > right) | (high_y < bottom) | (low_y > top)
            touched |= ~beside
        return touched


def steps_in_the_open(positions: Points, goals: Points) -> Int[np.ndarray, "n"]:
    """Minimum number of steps to the goal without walls.

    A step brings each coordinate nearer by up to 1; the remaining offset must be within the goal
    disc. A point that is already at the goal needs one step, in which it stays.
    """
    apart = np.abs(np.asarray(positions, np.float64) - np.asarray(goals, np.float64))
    after = np.arange(1, 2 * int(BOUND) + 1)[:, None, None]
    left = np.linalg.norm(np.maximum(apart - after, 0.0), axis=-1)
    return 1 + np.argmax(left <= TOLERANCE, axis=0)


def _slide_along_all(starts: Points, proposals: Points, walls: Sequence[Rectangle]) -> Points:
    """Correct the ends of moves by every wall in turn."""
    ends = reduce(partial(_slide_along, starts), walls, proposals)
    # A move that is stopped along both axes may be so only because of the order of the walls: the
    # second wall can keep it out of reach of the first. The result in reverse order then counts.
    stuck = np.flatnonzero((ends != proposals).all(axis=1))
    if stuck.size:
        again = partial(_slide_along, starts[stuck])
        ends[stuck] = reduce(again, reversed(walls), proposals[stuck])
    return ends


def _slide_along(starts: Points, ends: Points, wall: Rectangle) -> Points:
    """Stop moves in front of the sides of one inflated wall that they cross from outside.

    The test uses the bounding box of the move rather than the move itself, so a diagonal move past
    a corner can also be stopped.
    """
    near_sides, far_sides = (wall.left, wall.bottom), (wall.right, wall.top)
    low, high = np.minimum(starts, ends), np.maximum(starts, ends)
    corrected = ends.copy()
    for axis, across in ((0, 1), (1, 0)):
        overlaps = (low[:, across] <= far_sides[across]) & (high[:, across] >= near_sides[across])
        start, end = starts[:, axis], ends[:, axis]
        near, far = near_sides[axis], far_sides[axis]
        # No start is beyond both sides, so the order of these two does not matter.
        corrected[overlaps & (start >= far) & (far >= end), axis] = far + WALL_GAP
        corrected[overlaps & (start <= near) & (near <= end), axis] = near - WALL_GAP
    return corrected


OPEN = Arena()
ROOMS = Arena(
    walls=(
        Rectangle(-6.3, -0.3, -4.95, 0.3),
        Rectangle(-1.15, -0.3, 1.15, 0.3),
        Rectangle(4.95, -0.3, 6.3, 0.3),
        Rectangle(-0.3, 4.95, 0.3, 6.3),
        Rectangle(-0.3, -1.15, 0.3, 1.15),
        Rectangle(-0.3, -6.3, 0.3, -4.95),
    )
)
"""Four rooms: a central plus sign and a stub at the middle of each edge."""

METADATA: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}


def _spaces() -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Observation space and action space."""
    names = ("observation", "achieved_goal", "desired_goal")
    observations: dict[str, spaces.Space[Any]] = {
        name: spaces.Box(-BOUND, BOUND, (2,), np.float32) for name in names
    }
    return spaces.Dict(observations), spaces.Box(-1.0, 1.0, (2,), np.float32)


def _observe(positions: Points, goals: Points) -> Observation:
    return {
        "observation": positions.astype(np.float32),
        "achieved_goal": positions.astype(np.float32),
        "desired_goal": goals.astype(np.float32),
    }


def film(states: Points, size: int, rooms: bool = False) -> raster.Frames:
    """Frames of any states, without goals."""
    return raster.draw(states, None, (ROOMS if rooms else OPEN).walls, size)


class _PointTask:
    """Shared code of the single and the vector environment."""

    tolerance = TOLERANCE

    def __init__(
        self, rooms: bool, render_mode: str | None, draw_goal: bool, render_size: int
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode must be None or 'rgb_array', not {render_mode!r}")
        self.arena = ROOMS if rooms else OPEN
        self.render_mode = render_mode
        self.draw_goal = draw_goal
        self.render_size = render_size
        self._positions: Points = np.empty((0, 2))
        self._goals: Points = np.empty((0, 2))

    def compute_reward(
        self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any = None
    ) -> Rewards | np.float32:
        """-1 where the Euclidean distance exceeds the tolerance, else 0, as float32.

        Goals may have any equal leading axes, which the reward keeps; `info` is not used.
        """
        difference = np.asarray(achieved_goal, np.float64) - np.asarray(desired_goal, np.float64)
        reached = np.linalg.norm(difference, axis=-1) <= self.tolerance
        return reached.astype(np.float32) - np.float32(1.0)

    def goal_frames(self) -> raster.Frames:
        """Frames with every point at its goal."""
        self._require_reset()
        return raster.draw(self._goals, None, self.arena.walls, self.render_size)

    def _frames(self) -> raster.Frames:
        goals = self._goals if self.draw_goal else None
        return raster.draw(self._positions, goals, self.arena.walls, self.render_size)

    def _require_reset(self) -> None:
        if not len(self._positions):
            raise gymnasium.error.ResetNeeded("call reset before step or render")


class PointEnv(_PointTask, gymnasium.Env[Observation, np.ndarray]):
    """One point with a goal; the environment itself never ends an episode.

    Args:
        rooms: Whether the arena has walls (PointRooms) or not (PointReach).
        render_mode: None or "rgb_array".
        draw_goal: Whether frames show the goal.
        render_size: Height and width of frames.
    """

    metadata = METADATA

    def __init__(
        self,
        rooms: bool = False,
        render_mode: str | None = None,
        draw_goal: bool = True,
        render_size: int = 480,
    ) -> None:
        super().__init__(rooms, render_mode, draw_goal, render_size)
        self.observation_space, self.action_space = _spaces()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draw a start, then a goal, independently and uniformly among free positions."""
        super().reset(seed=seed)
        self._positions = self.arena.sample_free_each([self.np_random])
        self._goals = self.arena.sample_free_each([self.np_random])
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Move once; `info["is_success"]` is 1.0 where the reward is 0."""
        self._require_reset()
        self._positions = self.arena.move(self._positions, np.asarray(action)[None])
        observation = self._observation()
        achieved, desired = observation["achieved_goal"], observation["desired_goal"]
        reward = float(self.compute_reward(achieved, desired))
        return observation, reward, False, False, {"is_success": float(reward == 0.0)}

    def render(self) -> raster.Frame | None:
        """Return a frame, or None if no render mode was chosen."""
        self._require_reset()
        return None if self.render_mode is None else self._frames()[0]

    def goal_frame(self) -> raster.Frame:
        """The frame with the point at its goal."""
        return self.goal_frames()[0]

    def _observation(self) -> Observation:
        return {key: value[0] for key, value in _observe(self._positions, self._goals).items()}


class PointVectorEnv(_PointTask, VectorEnv[Observation, np.ndarray, np.ndarray]):
    """Many points at once, each identical to a `PointEnv` with the same seed.

    Episodes are truncated after `max_episode_steps`. The step after that ignores the point's
    action and returns its new start with reward 0 (next-step autoreset). Other arguments are
    those of `PointEnv`.
    """

    metadata = METADATA | {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int = 50,
        rooms: bool = False,
        render_mode: str | None = None,
        draw_goal: bool = True,
        render_size: int = 480,
    ) -> None:
        super().__init__(rooms, render_mode, draw_goal, render_size)
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self.single_observation_space, self.single_action_space = _spaces()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rngs = [seeding.np_random()[0] for _ in range(num_envs)]
        self._elapsed = np.zeros(num_envs, np.int64)
        self._ended = np.zeros(num_envs, np.bool_)

    def reset(
        self, *, seed: Seeds = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start a new episode for every point.

        An integer seeds the points with seed, seed + 1, and so on; a sequence gives one seed per
        point, where None keeps that point's generator.
        """
        self._seed(seed)
        self._positions = self.arena.sample_free_each(self._rngs)
        self._goals = self.arena.sample_free_each(self._rngs)
        self._elapsed = np.zeros(self.num_envs, np.int64)
        self._ended = np.zeros(self.num_envs, np.bool_)
        return _observe(self._positions, self._goals), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Move the points; `info["is_success"]` holds where `info["_is_success"]` is set."""
        self._require_reset()
        begun = self._ended
        self._positions = self.arena.move(self._positions, actions)
        if begun.any():
            rngs = [self._rngs[index] for index in np.flatnonzero(begun)]
            self._positions[begun] = self.arena.sample_free_each(rngs)
            self._goals[begun] = self.arena.sample_free_each(rngs)
        self._elapsed = np.where(begun, 0, self._elapsed + 1)
        self._ended = self._elapsed >= self.max_episode_steps

        observation = _observe(self._positions, self._goals)
        reward = self.compute_reward(observation["achieved_goal"], observation["desired_goal"])
        rewards = np.where(begun, 0.0, reward).astype(np.float64)
        success = np.where(begun, 0.0, reward == 0.0)
        info = {} if begun.all() else {"is_success": success, "_is_success": ~begun}
        return observation, rewards, np.zeros_like(begun), self._ended.copy(), info

    def render(self) -> tuple[raster.Frame, ...] | None:
        """Return one frame per point, or None if no render mode was chosen."""
        self._require_reset()
        return None if self.render_mode is None else tuple(self._frames())

    def _seed(self, seed: Seeds) -> None:
        if seed is None:
            return
        seeds = range(seed, seed + self.num_envs) if isinstance(seed, int) else seed
        if len(seeds) != self.num_envs:
            raise ValueError(f"got {len(seeds)} seeds for {self.num_envs} environments")
        for index, value in enumerate(seeds):
            if value is not None:
                self._rngs[index] = seeding.np_random(value)[0]
