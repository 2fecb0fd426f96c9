"""A task of small images, and sizes that train at once."""

from dataclasses import replace

import numpy as np

from merlin.envs.registry import find

SIZE = 16
SMALL = {"hidden": (8,), "batch_size": 8}
POINT = replace(find("PointReach"), environments=2).from_pixels(SIZE)


def frames_of(data):
    return np.asarray(data.observations)
