"""PointReach and PointRooms: the collision rule, the two interfaces, the data's statistics."""

import math
import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from hypothesis import example, given, settings
from hypothesis import strategies as st

from merlin.envs.point import (
    OPEN,
    ROOMS,
    Arena,
    PointEnv,
    PointVectorEnv,
    Rectangle,
    steps_in_the_open,
)

TASKS = [("PointReach", False), ("PointRooms", True)]
BOTH = pytest.mark.parametrize("rooms", [False, True])

# Left, right, bottom, top of the walls as the centre of the disc meets them, in their order.
INFLATED = [
    (-6.8, -4.45, -0.8, 0.8),
    (-1.65, 1.65, -0.8, 0.8),
    (4.45, 6.8, -0.8, 0.8),
    (-0.8, 0.8, 4.45, 6.8),
    (-0.8, 0.8, -1.65, 1.65),
    (-0.8, 0.8, -6.8, -4.45),
]


def boxes_overlap(a, b):
    """Whether the bounding boxes of two segments (x0, y0, x1, y1) share a point."""
    return (
        min(a[0], a[2]) <= max(b[0], b[2])
        and max(a[0], a[2]) >= min(b[0], b[2])
        and min(a[1], a[3]) <= max(b[1], b[3])
        and max(a[1], a[3]) >= min(b[1], b[3])
    )


def collide(start, end, wall):
    """One wall, side by side: top, bottom, right, left."""
    left, right, bottom, top = wall
    move = (*start, *end)
    x, y = end
    if boxes_overlap(move, (left, top, right, top)) and end[1] <= start[1] and start[1] >= top:
        y = top + 0.01
    if (
        boxes_overlap(move, (left, bottom, right, bottom))
        and end[1] >= start[1]
        and start[1] <= bottom
    ):
        y = bottom - 0.01
    if (
        boxes_overlap(move, (right, bottom, right, top))
        and end[0] <= start[0]
        and start[0] >= right
    ):
        x = right + 0.01
    if boxes_overlap(move, (left, bottom, left, top)) and end[0] >= start[0] and start[0] <= left:
        x = left - 0.01
    return x, y


def move_one(start, action, walls):
    """The whole rule for one point in plain Python."""
    proposal = tuple(p + min(max(a, -1.0), 1.0) for p, a in zip(start, action, strict=True))
    end = proposal
    for wall in walls:
        end = collide(start, end, wall)
    if end[0] != proposal[0] and end[1] != proposal[1]:
        end = proposal
        for wall in reversed(walls):
            end = collide(start, end, wall)
    return tuple(min(max(value, -5.0), 5.0) for value in end)


EDGES = sorted({side for wall in INFLATED for side in wall if abs(side) < 5} | {-5.0, 0.0, 5.0})
BESIDE_EDGES = [
    value
    for edge in EDGES
    for value in (
        edge,
        edge - 0.01,
        edge + 0.01,
        math.nextafter(edge, -9),
        math.nextafter(edge, 9),
    )
    if abs(value) <= 5
]
coordinate = st.one_of(st.floats(-5, 5), st.sampled_from(BESIDE_EDGES))
component = st.one_of(st.floats(-1.5, 1.5), st.sampled_from([-1.0, -0.8, -0.01, 0.0, 0.01, 1.0]))


@st.composite
def moves(draw):
    """A start and an action, which often ends at a coordinate next to a wall's side."""
    start = (draw(coordinate), draw(coordinate))
    targets = (draw(st.sampled_from(BESIDE_EDGES)), draw(st.sampled_from(BESIDE_EDGES)))
    action = [
        draw(st.one_of(component, st.just(target - origin)))
        for origin, target in zip(start, targets, strict=True)
    ]
    return start, tuple(action)


def assert_moves_by_the_rule(arena, starts, actions):
    walls = [(wall.left, wall.right, wall.bottom, wall.top) for wall in arena.obstacles]
    expected = [move_one(*move, walls) for move in zip(starts, actions, strict=True)]
    np.testing.assert_array_equal(arena.move(np.array(starts), np.array(actions)), expected)


@settings(max_examples=600, deadline=None)
@example([((1.0, 1.0), (-1.0, -1.0))])  # into a corner of the plus sign: stopped by two walls
@example([((1.65, 0.8), (0.0, 0.0))])  # resting on a corner
@example([((4.0, 0.5), (1.0, -1.0))])
@given(st.lists(moves(), min_size=1, max_size=8))
def test_move_equals_the_rule_for_one_point(batch):
    for arena in (ROOMS, OPEN):
        assert_moves_by_the_rule(arena, *zip(*batch, strict=True))


@st.composite
def rectangles(draw):
    """One to four walls anywhere, so that they meet in ways those of PointRooms do not."""
    grid = st.integers(-20, 20).map(lambda tick: tick / 4)
    corners = [[draw(grid) for _ in range(4)] for _ in range(draw(st.integers(1, 4)))]
    return tuple((min(a, c), min(b, d), max(a, c), max(b, d)) for a, b, c, d in corners)


@settings(max_examples=100, deadline=None)
@given(rectangles(), st.integers(0, 2**32 - 1))
def test_move_equals_the_rule_in_any_arena(walls, seed):
    arena = Arena(tuple(Rectangle(*wall) for wall in walls))
    rng = np.random.default_rng(seed)
    starts, actions = rng.uniform(-5, 5, (64, 2)), rng.uniform(-1, 1, (64, 2))
    starts[::2] = starts[::2].round(1)  # half of the starts and some of the ends lie on sides
    actions[::4] = actions[::4].round(1)
    assert_moves_by_the_rule(arena, starts, actions)


def test_move_equals_the_rule_for_many_random_points():
    rng = np.random.default_rng(0)
    starts = np.concatenate([rng.uniform(-5, 5, (4000, 2)), rng.uniform(-2, 2, (8000, 2))])
    assert_moves_by_the_rule(ROOMS, starts, rng.uniform(-1.2, 1.2, starts.shape))


def test_a_move_stopped_twice_is_tried_in_reverse_order():
    """The first wall is out of reach behind the second, but stops the move if asked first."""
    behind = Rectangle(-2.5, -2.5, -1.0, -1.0)
    before = Rectangle(-2.0, 0.2, -0.7, 1.0)
    for walls in ((behind, before), (before, behind)):
        moved = Arena(walls).move(np.zeros((1, 2)), np.full((1, 2), -1.0))
        np.testing.assert_allclose(moved, [[-0.19, -1.0]])


def test_move_is_pure_and_keeps_free_points_free():
    rng = np.random.default_rng(0)
    positions = ROOMS.sample_free_each([rng] * 2000)
    for _ in range(50):
        before, actions = positions.copy(), rng.uniform(-1, 1, positions.shape)
        moved = ROOMS.move(positions, actions)
        np.testing.assert_array_equal(positions, before)
        assert ROOMS.is_free(moved).all()
        assert (np.abs(moved) <= 5).all()
        positions = moved


def test_inflated_walls():
    inflated = [(wall.left, wall.right, wall.bottom, wall.top) for wall in ROOMS.obstacles]
    assert inflated == INFLATED
    on_the_rim_and_inside = np.array([[1.65, 0.8], [1.65, 0.0], [1.64, 0.0], [0.0, 0.0]])
    assert ROOMS.is_free(on_the_rim_and_inside).tolist() == [True, True, False, False]


def test_sample_free():
    one, many = ([np.random.default_rng(seed) for seed in range(3000)] for _ in range(2))
    points = ROOMS.sample_free_each(many)
    np.testing.assert_array_equal(points, [ROOMS.sample_free_each([rng])[0] for rng in one])
    assert ROOMS.is_free(points).all()
    quadrants = ((points > 0) @ [1, 2]).astype(int)
    assert (np.abs(np.bincount(quadrants) / 3000 - 0.25) < 0.04).all()


@BOTH
def test_compute_reward(rooms):
    env = PointEnv(rooms=rooms)
    achieved = np.array([[[0, 0], [3, 4]], [[1, 0], [0.8, 0.8]]], np.float32)
    reward = env.compute_reward(achieved, np.zeros_like(achieved), {})
    np.testing.assert_array_equal(reward, [[0, -1], [0, -1]])
    assert reward.dtype == np.float32
    assert not np.signbit(reward[0, 0])
    assert env.compute_reward(achieved[0, 1], achieved[0, 0]) == -1.0
    assert env.tolerance == PointVectorEnv.tolerance == 1.0


@BOTH
def test_gymnasium_accepts_the_single_environment(rooms):
    gymnasium.register("test/Point-v0", PointEnv, max_episode_steps=50, kwargs={"rooms": rooms})
    try:
        env = gymnasium.make("test/Point-v0", render_mode="rgb_array")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(env.unwrapped)
        env.reset(seed=0)
        truncations = [env.step(env.action_space.sample())[3] for _ in range(50)]
        assert truncations == [False] * 49 + [True]
    finally:
        del gymnasium.registry["test/Point-v0"]


@BOTH
def test_make_vec_uses_the_vector_environment(rooms):
    gymnasium.register(
        "test/Point-v0",
        PointEnv,
        vector_entry_point=PointVectorEnv,
        max_episode_steps=7,
        kwargs={"rooms": rooms},
    )
    try:
        envs = gymnasium.make_vec("test/Point-v0", num_envs=3)
    finally:
        del gymnasium.registry["test/Point-v0"]
    assert isinstance(envs, PointVectorEnv)
    assert (envs.num_envs, envs.max_episode_steps) == (3, 7)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    observation, _ = envs.reset(seed=0)
    assert observation in envs.observation_space
    assert envs.step(envs.action_space.sample())[0] in envs.observation_space


def assert_same(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    else:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@BOTH
@pytest.mark.parametrize("seed", [5, [3, 1, 4, 1, 5], None])
def test_vector_environment_equals_gymnasiums_loop_over_single_ones(rooms, seed):
    """Two and a half episodes, with the resets in between and the first info after them."""
    length, num_envs = 20, 5
    envs = PointVectorEnv(num_envs, length, rooms=rooms)
    loop = SyncVectorEnv([lambda: TimeLimit(PointEnv(rooms=rooms), length)] * num_envs)
    if seed is None:  # the generators go on where the last seeding left them
        envs.reset(seed=9)
        loop.reset(seed=9)
    assert_same(envs.reset(seed=seed)[0], loop.reset(seed=seed)[0])
    envs.action_space.seed(0)
    for _ in range(52):
        actions = envs.action_space.sample()
        for ours, theirs in zip(envs.step(actions), loop.step(actions), strict=True):
            assert_same(ours, theirs)


def test_points_of_unequal_age_reset_on_their_own():
    envs = PointVectorEnv(2, 3)
    first, _ = envs.reset(seed=0)
    envs._elapsed[1] = 1
    for _ in range(2):
        truncated = envs.step(np.zeros((2, 2), np.float32))[3]
    assert truncated.tolist() == [False, True]
    observation, reward, _, truncated, info = envs.step(np.zeros((2, 2), np.float32))
    assert truncated.tolist() == [True, False]
    assert info["_is_success"].tolist() == [True, False]
    assert reward[1] == 0.0
    np.testing.assert_array_equal(observation["observation"][0], first["observation"][0])
    assert (observation["desired_goal"][1] != first["desired_goal"][1]).all()


@BOTH
def test_reward_and_success_follow_from_the_observation(rooms):
    envs = PointVectorEnv(500, rooms=rooms)
    envs.reset(seed=0)
    envs.action_space.seed(0)
    for _ in range(10):
        observation, reward, terminated, _, info = envs.step(envs.action_space.sample())
        achieved, desired = observation["achieved_goal"], observation["desired_goal"]
        np.testing.assert_array_equal(reward, envs.compute_reward(achieved, desired, info))
        np.testing.assert_array_equal(info["is_success"], reward + 1.0)
        np.testing.assert_array_equal(achieved, observation["observation"])
        assert not terminated.any()


@pytest.mark.parametrize("env", [PointEnv(rooms=True), PointVectorEnv(3, rooms=True)])
def test_pickled_copy_goes_on_equally(env):
    env.reset(seed=1)
    env.action_space.seed(1)
    copy = pickle.loads(pickle.dumps(env))
    for _ in range(3):
        action = env.action_space.sample()
        assert_same(env.step(action)[0], copy.step(action)[0])
    assert_same(env.reset()[0], copy.reset()[0])


def test_errors():
    for env in (PointEnv(), PointVectorEnv(2)):
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(env.action_space.sample())
    with pytest.raises(ValueError, match="seeds"):
        PointVectorEnv(2).reset(seed=[1, 2, 3])
    with pytest.raises(ValueError, match="render_mode"):
        PointEnv(render_mode="human")


def test_steps_in_the_open_by_hand():
    """Apart by (0.5, 0.5): one step to stay. (3, 0): two, onto the rim. (2.8, 2.8): after two the
    rest is 1.13 long, so three. From corner to corner nine leave (1, 1), which is too far."""
    starts = np.array([[0.5, 0.5], [3.0, 0.0], [2.8, -2.8], [5.0, 5.0]])
    goals = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [-5.0, -5.0]])
    np.testing.assert_array_equal(steps_in_the_open(starts, goals), [1, 2, 3, 10])


def test_going_straight_takes_the_steps_in_the_open(rng):
    """The policy that shortens both coordinates as fast as it can arrives just then."""
    at, goals = rng.uniform(-5, 5, (2, 300, 2))
    steps, arrived = steps_in_the_open(at, goals), np.zeros(300, int)
    for step in range(1, 11):
        at = OPEN.move(at, goals - at)
        there = np.linalg.norm(at - goals, axis=1) <= 1
        arrived[(arrived == 0) & there] = step
    np.testing.assert_array_equal(arrived, steps)
