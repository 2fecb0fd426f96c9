"""The same call everywhere: observation and goal, or Gymnasium's dict, one or a batch."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import merlin.runtime
from helpers.policy_files import write_policy
from merlin.deploy.export import build
from merlin.learners import GCSL, Beso, Merlin, MerlinPlus
from merlin.policies.base import Policy

TASK = merlin.TASKS["PointReach"]
IMAGE = (48, 48, 3)


@pytest.fixture(scope="module")
def policies(tmp_path_factory):
    """A policy in JAX, the same in NumPy and the same exported, of a few methods."""
    folder, rng = tmp_path_factory.mktemp("policies"), np.random.default_rng(0)
    learners = {
        "merlin": Merlin(hidden=(8,)),
        "gcsl": GCSL(hidden=(8,)),
        "plus": MerlinPlus(hidden=(8,), candidates=0),
    }
    made = {}
    for name, learner in learners.items():
        policy = write_policy(folder / name, TASK, learner, rng)
        made[f"{name} jax"] = jax.tree.map(jnp.asarray, policy)
        made[f"{name} numpy"] = merlin.runtime.load(folder / name)
        (folder / f"{name}.onnx").write_bytes(build(merlin.runtime.read(folder / name)))
        made[f"{name} onnx"] = merlin.runtime.load(folder / f"{name}.onnx")
    policy = write_policy(folder / "i", TASK, Merlin(hidden=(8,)), rng, image=IMAGE)
    made["images jax"] = jax.tree.map(jnp.asarray, policy)
    made["images numpy"] = merlin.runtime.load(folder / "i")
    return made


METHODS, PLACES = ("merlin", "gcsl", "plus"), ("jax", "numpy", "onnx")
VECTORS = [f"{name} {where}" for name in METHODS for where in PLACES]


@pytest.mark.parametrize("name", VECTORS)
def test_every_way_to_call_gives_the_same_action(policies, name):
    policy = policies[name]
    states, goals = np.array([[1.0, 2], [3, 4], [0, -1]]), np.array([[0.0, 1], [5, 5], [2, 2]])
    rows = np.stack([policy(s, g) for s, g in zip(states, goals, strict=True)])
    as_dict = {"observation": states[0].astype(np.float32), "desired_goal": [0, 1]}
    np.testing.assert_allclose(policy(as_dict), rows[0], atol=1e-6)
    np.testing.assert_allclose(policy(list(states[0]), goal=(0, 1)), rows[0], atol=1e-6)
    np.testing.assert_allclose(policy(states, goals), rows, atol=1e-6)
    as_dict = {"observation": states, "desired_goal": goals}
    np.testing.assert_allclose(policy(as_dict), rows, atol=1e-6)
    one_goal = np.stack([policy(s, goals[1]) for s in states])
    np.testing.assert_allclose(policy(states, goals[1]), one_goal, atol=1e-6)
    assert policy(states[:1], goals[0]).shape == (1, 2)
    told = np.stack(
        [policy(s, goals[1], horizon=h) for s, h in zip(states, (1, 7, 9), strict=True)]
    )
    np.testing.assert_allclose(policy(states, goals[1], np.array([1, 7, 9])), told, atol=1e-6)
    np.testing.assert_allclose(policy(states[0], goals[1], 1), told[0], atol=1e-6)


@pytest.mark.parametrize("where", ["jax", "numpy"])
def test_batches_of_images(policies, rng, where):
    policy = policies[f"images {where}"]
    images, goals = rng.integers(0, 256, (2, *IMAGE), dtype=np.uint8), rng.normal(size=(2, 2))
    rows = np.stack([policy(image, goal) for image, goal in zip(images, goals, strict=True)])
    np.testing.assert_allclose(policy(images, goals), rows, atol=1e-4)
    with pytest.raises(merlin.MerlinError, match="images of 48x48x3 in uint8"):
        policy(images / 255, goals)


GOOD = [1.0, 2.0]


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((GOOD,), "goal: is missing; call policy"),
        ((None, GOOD), "observation: has the type NoneType; give an array of numbers"),
        ((GOOD, "home"), "goal: has the type str; give an array of numbers"),
        ((["1.0", "2.0"], GOOD), "observation: has the type list; give an array of numbers"),
        ((np.array([1.0, np.nan]), np.zeros(2)), "observation: is nan at 1; check"),
        ((np.zeros(2), np.array([np.inf, 1], np.float32)), "goal: is inf at 0; check"),
        (([GOOD, [np.nan, 0]], GOOD), "observation: is nan at 1, 0; check"),
        (([1.0, 2.0, 3.0], GOOD), "observation: has the shape (3,), but this policy takes 2"),
        ((np.zeros((1, 2, 2)), GOOD), "observation: has the shape (1, 2, 2)"),
        ((5.0, GOOD), "observation: has the shape ()"),
        (([[1.0], [1.0, 2.0]], GOOD), "observation: its rows have different lengths"),
        ((np.zeros((3, 2)), np.zeros((4, 2))), "batch: has 3 of observation, 4 of goal"),
        (({"observation": GOOD},), "observation: the dict has no 'desired_goal'"),
        (({"observation": GOOD, "desired_goal": None},), "goal: has the type NoneType"),
        (({"observation": GOOD, "desired_goal": GOOD}, GOOD), "goal: is given in addition"),
        ((GOOD, GOOD, "soon"), "horizon: has the type str"),
        ((GOOD, GOOD, np.nan), "horizon: is nan; check"),
    ],
)  # fmt: skip
def test_what_no_policy_can_take_is_said(policies, name, arguments, said):
    with pytest.raises(merlin.MerlinError) as refusal:
        policies[name](*arguments)
    assert said in str(refusal.value)
    assert str(refusal.value).endswith(".")


def test_a_policy_at_random_draws_for_every_row(rng, tmp_path):
    learner = Beso(backbone="mlp", hidden=(8,), window=1)
    policy = write_policy(tmp_path / "beso", TASK, learner, rng)
    actions = np.asarray(policy(np.zeros((4, 2)), np.ones(2), key=jax.random.key(0)))
    assert actions.shape == (4, 2)
    assert len(np.unique(actions, axis=0)) == 4


@pytest.mark.parametrize("name", METHODS)
def test_an_exported_policy_acts_like_the_original(policies, name):
    states, goals = np.array([[1.0, 2], [3, 4]]), np.array([0.0, 1])
    one, other = (policies[f"{name} {where}"](states, goals) for where in ("jax", "onnx"))
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_what_is_no_exported_policy_is_refused(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"not a graph")
    for file, said in (("missing.onnx", "no such run folder"), ("broken.onnx", "cannot be read")):
        with pytest.raises(merlin.MerlinError, match=said):
            merlin.runtime.load(tmp_path / file)


def test_an_exported_policy_names_the_package_that_it_needs(tmp_path, monkeypatch):
    """Not an extra of merlin-rl, which would be installed over the run-only wheel."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (tmp_path / "a.onnx").write_bytes(b"")
    with pytest.raises(merlin.MerlinError, match="run `pip install onnxruntime`"):
        merlin.runtime.load(tmp_path / "a.onnx")


class Runs(list):
    __hash__ = object.__hash__


class Counted(Policy):
    """Counts how often its `act` is run by Python rather than by JAX."""

    runs: list = eqx.field(static=True)

    @property
    def input_shapes(self):
        return (2,), (2,)

    def act(self, observation, goal, horizon=None, key=None):
        self.runs.append(1)
        return jnp.tanh(goal - observation)


def test_a_policy_is_compiled_as_a_whole():
    """An action by single operations takes a hundred times as long."""
    policy = Counted(Runs())
    for _ in range(3):
        policy([0.0, 0.0], [1.0, 1.0])
        policy(np.zeros((4, 2)), [1.0, 1.0])
    assert len(policy.runs) == 2  # traced once for one state and once for four
