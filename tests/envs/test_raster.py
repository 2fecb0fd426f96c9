"""Pictures of the point tasks."""

import math

import numpy as np
import pytest

from merlin.envs import raster
from merlin.envs.point import (
    ROOMS,
    PointEnv,
    PointVectorEnv,
)

BOTH = pytest.mark.parametrize("rooms", [False, True])

GREY = tuple(raster.GREY.astype(np.uint8))
BLUE = tuple(raster.BLUE.astype(np.uint8))
GREEN = tuple(raster.GREEN.astype(np.uint8))


def share(frame, colour):
    """Share of the pixels that have exactly a colour."""
    return (frame == np.array(colour, np.uint8)).all(axis=-1).mean()


@pytest.mark.parametrize("size", [48, 480])
def test_areas_of_drawn_shapes(size):
    agents, goals = np.array([[3.0, 2.0]]), np.array([[-3.0, -2.0]])
    world = 121.0
    ink = (255.0 - raster.draw(agents, size=size)[0]).mean(axis=(0, 1)) * world
    expected = (255.0 - raster.BLUE) * math.pi * raster.AGENT_RADIUS**2
    np.testing.assert_allclose(ink, expected, rtol=0.03)
    difference = raster.draw(agents, size=size)[0] - 1.0 * raster.draw(agents, goals, size=size)[0]
    ink = difference.mean(axis=(0, 1)) * world
    np.testing.assert_allclose(ink, (255.0 - raster.GREEN) * math.pi, rtol=0.03)
    plus, stubs = 4 * 1.15 * 0.6 - 0.36, 4 * 0.55 * 0.6
    walls = raster.draw(np.array([[99.0, 99.0]]), walls=ROOMS.walls, size=size)[0]
    ink = (255.0 - walls).mean(axis=(0, 1)) * world
    np.testing.assert_allclose(ink, (255.0 - raster.GREY) * (plus + stubs), rtol=0.03)


@pytest.mark.parametrize("size", [48, 101])
def test_frame_points_up_and_right(size):
    frames = raster.draw(np.array([[4.0, 4.0], [4.0, -4.0], [-4.0, 4.0]]), size=size)
    assert (frames.shape, frames.dtype) == ((3, size, size, 3), np.uint8)
    rows, columns = np.array([np.argwhere(frame[..., 0] < 128).mean(axis=0) for frame in frames]).T
    near, far = (1.5 / 11) * size - 0.5, (9.5 / 11) * size - 0.5
    np.testing.assert_allclose(rows, [near, far, near], atol=0.5)
    np.testing.assert_allclose(columns, [far, far, near], atol=0.5)


def test_many_frames_equal_single_frames():
    rng = np.random.default_rng(0)
    agents, goals = ROOMS.sample_free_each([rng] * 150), ROOMS.sample_free_each([rng] * 150)
    frames = raster.draw(agents, goals, ROOMS.walls)
    for index in (0, 57, 149):
        rows = slice(index, index + 1)
        np.testing.assert_array_equal(
            frames[rows], raster.draw(agents[rows], goals[rows], ROOMS.walls)
        )


@BOTH
def test_render(rooms):
    env = PointEnv(rooms=rooms, render_mode="rgb_array", draw_goal=False)
    with_goal = PointEnv(rooms=rooms, render_mode="rgb_array")
    env.reset(seed=0)
    with_goal.reset(seed=0)
    before = env.render()
    assert (before.shape, before.dtype) == ((480, 480, 3), np.uint8)
    assert share(before, GREEN) == 0.0 < share(with_goal.render(), GREEN)
    assert share(before, BLUE) > 0.005
    assert (share(before, GREY) > 0.02) == rooms
    env.step(np.array([0.5, -0.5], np.float32))
    assert (env.render() != before).any()
    silent = PointEnv(rooms=rooms)
    silent.reset(seed=0)
    assert silent.render() is None


@BOTH
def test_vector_render_equals_single_render(rooms):
    options = {"rooms": rooms, "render_mode": "rgb_array", "draw_goal": True, "render_size": 48}
    envs = PointVectorEnv(3, **options)
    envs.reset(seed=4)
    frames = envs.render()
    assert isinstance(frames, tuple)
    for index, frame in enumerate(frames):
        env = PointEnv(**options)
        env.reset(seed=4 + index)
        np.testing.assert_array_equal(frame, env.render())
