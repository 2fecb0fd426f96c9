"""The options of `merlin.train`: wrong types are refused in one sentence, before any work."""

import json

import numpy as np
import pytest

import merlin
from helpers.training_runs import train
from merlin.errors import MerlinError
from merlin.training.asked import Asked

WRONG = {
    **dict.fromkeys(
        (
            "updates",
            "eval_every",
            "eval_episodes",
            "final_episodes",
            "log_every",
            "checkpoint_every",
        ),
        ("10", 1.5, True, None, [1]),
    ),
    "seeds": ("10", b"1", 1.5, True, None, ["a"], [0, 1.5], [True], 10**30, [10**30], [[0]]),
    "task": (1, True, ["PointReach"], np.zeros(2), b"PointReach"),
    "augment": ("rollouts", 1, True, [], merlin.Merlin),
    "mix": ("0.5", True, [0.5], np.zeros(2)),
    "phi": (1, 0.5, True, None, [0.0, 1.0], ["a"], [[0, 1]]),
    "goal": (1, None, ["vector"], np.zeros(2)),
    "shift": ("1", 1.5, True, None, [1], np.zeros(2)),
    "held_out": ("0.1", True, [0.1], np.zeros(2)),
    "latents": ("latents", 1, True, {}),
    "out": (1, True, b"run", ["run"]),
    "shared": (1, True, b"run", ["run"]),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_a_wrong_type_is_refused_in_one_sentence(point_data, tmp_path, monkeypatch, name, value):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MerlinError, match=rf"^{name}: [^\n]{{10,110}}\.$"):
        train(point_data, **{name: value})
    assert not list(tmp_path.iterdir())


def test_every_option_is_tried():
    assert WRONG.keys() == Asked.__annotations__.keys() | {"out", "shared"}


def test_an_unknown_option_is_an_error_of_python(point_data):
    with pytest.raises(TypeError, match="unexpected keyword argument 'epochs'"):
        train(point_data, epochs=3)


def test_numbers_of_numpy_are_numbers(point_data, tmp_path):
    """They compare like Python's, but JSON does not take them."""
    whole = {"updates": np.int64(2), "seeds": np.array([1]), "phi": np.arange(2)}
    train(point_data, tmp_path / "run", held_out=np.float32(0.25), shift=np.int8(0), **whole)
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (told["updates"], told["seeds"], told["phi"]) == (2, [1], [0, 1])
    assert (told["held_out"], told["shift"]) == (0.25, 0)
