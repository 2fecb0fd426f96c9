"""Batched top-down rendering of a disc-shaped agent, with NumPy alone.

Shapes are anti-aliased analytically (distance to the rim, exact overlap of rectangle and pixel), so
the same code renders small policy inputs and large frames for display.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Float32, UInt8

Points = Float[np.ndarray, "n 2"]
Frame = UInt8[np.ndarray, "size size 3"]
Frames = UInt8[np.ndarray, "n size size 3"]
Canvas = Float32[np.ndarray, "... size size 3"]
Coverage = Float32[np.ndarray, "... size size"]
Colour = Float32[np.ndarray, "3"]
Profile = Float32[np.ndarray, "size"]
Bounds = tuple[float, float, float, float]
"""Left, bottom, right and top of an axis-aligned rectangle."""

HALF_WIDTH = 5.5
"""The picture shows the square [-HALF_WIDTH, HALF_WIDTH]^2 of the world."""
AGENT_RADIUS = 0.5
GOAL_RADIUS = 1.0
WHITE = np.array([255, 255, 255], np.float32)
BLUE = np.array([30, 80, 220], np.float32)
GREEN = np.array([90, 200, 110], np.float32)
GREY = np.array([70, 70, 70], np.float32)
PIXELS_PER_CHUNK = 2**17  # keeps the float canvases of a chunk near the processor's cache


def draw(
    agents: Points, goals: Points | None = None, walls: Sequence[Bounds] = (), size: int = 48
) -> Frames:
    """Return one frame per agent position, y pointing up.

    Goals, one per agent, are drawn below walls and agents, and only if given: frames for a policy
    omit the goal, which is a separate input.
    """
    frames = np.empty((len(agents), size, size, 3), np.uint8)
    wall_coverage = _rectangles(walls, size)
    chunk = max(1, PIXELS_PER_CHUNK // size**2)
    for first in range(0, len(agents), chunk):
        rows = slice(first, first + chunk)
        canvas = np.broadcast_to(WHITE, (size, size, 3))
        if goals is not None:
            canvas = _blend(canvas, _discs(goals[rows], GOAL_RADIUS, size), GREEN)
        canvas = _blend(canvas, wall_coverage, GREY)
        canvas = _blend(canvas, _discs(agents[rows], AGENT_RADIUS, size), BLUE)
        frames[rows] = canvas + np.float32(0.5)  # the cast truncates: this rounds to nearest
    return frames


def _blend(canvas: Canvas, coverage: Coverage, colour: Colour) -> Canvas:
    """Blend a colour into a canvas, weighted by the coverage of each pixel."""
    blended: Canvas = canvas + coverage[..., None] * (colour - canvas)
    return blended


def _discs(centres: Points, radius: float, size: int) -> Coverage:
    """Fraction of each pixel covered by a disc, one image per centre."""
    pixel = 2 * HALF_WIDTH / size
    middle = (np.arange(size) + 0.5) * pixel - HALF_WIDTH
    along_x = np.square(middle - centres[:, :1]).astype(np.float32)
    along_y = np.square(middle[::-1] - centres[:, 1:]).astype(np.float32)  # row 0 is the top
    distance = np.sqrt(along_y[:, :, None] + along_x[:, None, :])
    coverage: Coverage = 0.5 + (np.float32(radius) - distance) / np.float32(pixel)
    return coverage.clip(0.0, 1.0)


def _rectangles(rectangles: Sequence[Bounds], size: int) -> Coverage:
    """Fraction of each pixel covered by the rectangle that overlaps it most."""
    pixel = 2 * HALF_WIDTH / size
    lower = np.arange(size) * pixel - HALF_WIDTH

    def overlap(low: float, high: float) -> Profile:
        inside = np.minimum(lower + pixel, high) - np.maximum(lower, low)
        return np.asarray(np.maximum(inside, 0.0) / pixel, np.float32)

    coverage = np.zeros((size, size), np.float32)
    for left, bottom, right, top in rectangles:
        rectangle = np.outer(overlap(bottom, top)[::-1], overlap(left, right))
        coverage = np.maximum(coverage, rectangle)
    return coverage
