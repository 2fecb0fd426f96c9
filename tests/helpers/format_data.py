"""Small datasets in every format, for the tests of formats."""

import json
import pickle

import h5py
import numpy as np
import numpy.testing

from merlin.data import Dataset, Episode, save_as

SUFFIX = {"wgcsl": ".pkl", "ogbench": ".npz", "minari": "", "native": ""}


def make_episode(rng, states, *, image=False, goal=True):
    shape = (states, 5, 4, 3) if image else (states, 4)
    observations = (
        rng.integers(0, 256, shape, dtype=np.uint8)
        if image
        else rng.normal(size=shape).astype(np.float32)
    )
    return Episode(
        observations=observations,
        actions=rng.uniform(-1, 1, (states - 1, 2)).astype(np.float32),
        achieved_goals=rng.normal(size=(states, 3)).astype(np.float32),
        desired_goal=rng.normal(size=3).astype(np.float32) if goal else None,
    )


def episodes(rng, lengths=(6, 6, 6), **kind):
    return Dataset.from_episodes([make_episode(rng, n, **kind) for n in lengths])


def write(data, folder, form, name="data"):
    return save_as(data, folder / f"{name}{SUFFIX[form]}", format=form)


def pickled(path, content, protocol=4):
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


def buffer(rng, episodes=3, states=5):
    """What the benchmark's files hold."""
    shapes = {"o": (states, 4), "u": (states - 1, 2), "ag": (states, 3)}
    content = {key: rng.uniform(-1, 1, (episodes, *shape)) for key, shape in shapes.items()}
    return {**content, "g": np.repeat(rng.normal(size=(episodes, 1, 3)), states - 1, axis=1)}


# There and back


def maze(rng, lengths=(4, 3), **more):
    steps = sum(lengths)
    content = {
        "observations": rng.normal(size=(steps, 5)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (steps, 2)).astype(np.float32),
        "terminals": np.zeros(steps, np.float32),
        "qpos": rng.normal(size=(steps, 9)),
        **more,
    }
    content["terminals"][np.cumsum(lengths) - 1] = 1
    return content


def saved(path, content):
    np.savez(path, **content)
    return path


BOX = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-1, -1], "high": [1, 1]}


def change_minari(home, change, **metadata):
    """Apply a change to the HDF5 file of a dataset, and other values to its metadata."""
    with h5py.File(home / "data" / "main_data.hdf5", "r+") as file:
        change(file)
    path = home / "data" / "metadata.json"
    about = json.loads(path.read_text())
    about["merlin"].pop("sha256")  # the change is meant
    path.write_text(json.dumps({**about, **metadata}))


def put(path, value, index):
    def change(file):
        file[path][index] = value

    return change


def replace_by(path, array):
    def change(file):
        del file[path]
        file[path] = array

    return change


def assert_same(found, expected):
    assert found.arrays().keys() == expected.arrays().keys()
    for name, array in expected.arrays().items():
        assert found.arrays()[name].dtype == array.dtype, name
        np.testing.assert_array_equal(found.arrays()[name], array, err_msg=name)
    np.testing.assert_array_equal(found.action_low, expected.action_low)
    np.testing.assert_array_equal(found.action_high, expected.action_high)
