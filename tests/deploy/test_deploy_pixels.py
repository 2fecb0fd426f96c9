"""Policies that see images: in NumPy and in ONNX Runtime as in JAX."""

import json

import jax
import numpy as np
import pytest
import safetensors.numpy

import merlin
import merlin.runtime
from helpers.onnx_sessions import session
from helpers.policy_files import write_policy
from merlin.augment.encoder import image_encoder
from merlin.deploy import export
from merlin.learners import GCSL, Merlin
from merlin.learners.merlin import GaussianPolicy
from merlin.policies.goal import DeterministicPolicy
from merlin.policies.images import SeeingPolicy
from merlin.types import Moments

POINT, SAWYER = merlin.TASKS["PointReach"], merlin.TASKS["SawyerDoor"]
IMAGE = (48, 48, 3)


def latent_encoder(shape, units):
    moments = Moments(np.zeros(shape, np.float32), np.ones(1, np.float32))
    return image_encoder(moments, (24,), 8, 2, units, key=jax.random.key(0))


COUNT = 20


def some_images(rng, shape=IMAGE):
    return rng.integers(0, 256, (COUNT, *shape), np.uint8)


def check(path, policy, rng, images, goal):
    """The same action everywhere, at any horizon and at the policy's own."""
    told = rng.integers(1, 51, COUNT).astype(np.float32)
    inner = policy.policy if isinstance(policy, SeeingPolicy) else policy
    assert isinstance(inner, GaussianPolicy | DeterministicPolicy)
    fast, graph = merlin.runtime.load(path), session(export.build(merlin.runtime.read(path)))
    act = jax.jit(jax.vmap(lambda *row: policy(*row)))
    for horizon in ({}, {"horizon": told}) if inner.horizon is not None else ({},):
        wanted = np.asarray(act(images, goal, *horizon.values()))
        assert np.ptp(wanted, axis=0).max() > 0.1, "all images look the same to this policy"
        rows = {"observation": images, "goal": goal, **horizon}
        np.testing.assert_allclose(graph.run(["action"], rows)[0], wanted, atol=1e-5)
        for index in range(COUNT):
            seen = {"observation": images[index], "desired_goal": goal[index]}
            action = fast(seen, horizon=horizon["horizon"][index] if horizon else None)
            np.testing.assert_allclose(action, wanted[index], atol=1e-5)


@pytest.mark.parametrize(
    ("task", "shape", "learner"),
    [
        (POINT, IMAGE, Merlin(hidden=(32, 16), horizon=20)),
        (SAWYER, (84, 84, 3), Merlin(hidden=(32, 16), horizon=20)),
        (POINT, (33, 20, 1), GCSL(hidden=(16,))),
    ],
    ids=["point", "sawyer", "odd sizes, one channel"],
)
def test_policies_with_a_cnn(task, shape, learner, tmp_path, rng):
    path = tmp_path / "policy.safetensors"
    policy = write_policy(path, task, learner, rng, image=shape)
    goals = rng.standard_normal((COUNT, task.goal_dim), np.float32)
    check(path, policy, rng, some_images(rng, shape), goals)


def test_goals_that_are_images(tmp_path, rng):
    path = tmp_path / "policy.safetensors"
    policy = write_policy(path, POINT, Merlin(hidden=(16,)), rng, image=IMAGE, goal_image=True)
    check(path, policy, rng, some_images(rng), some_images(rng))


@pytest.mark.parametrize("units", [True, False])
def test_policies_on_latents_of_an_encoder(tmp_path, rng, units):
    path, encoder = tmp_path / "policy.safetensors", latent_encoder(IMAGE, units)
    policy = write_policy(path, POINT, Merlin(hidden=(16,)), rng, encoder=encoder)
    check(path, policy, rng, some_images(rng), rng.standard_normal((COUNT, 2), np.float32))


def test_the_export_compares_itself_with_the_policy(tmp_path, rng):
    path = tmp_path / "policy.safetensors"
    policy = write_policy(path, POINT, Merlin(hidden=(16,)), rng, image=IMAGE)
    weights = merlin.runtime.read(path)
    content = export.build(weights)
    assert export.verify(content, weights, policy) <= 1e-4
    other = write_policy(tmp_path / "other", POINT, Merlin(hidden=(16,)), rng, image=IMAGE)
    with pytest.raises(merlin.MerlinError, match="differs from the JAX policy"):
        export.verify(content, weights, other)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.zeros(IMAGE), "48x48x3 in uint8.*float64"),
        (np.zeros((84, 84, 3), np.uint8), r"48x48x3.*\(84, 84, 3\)"),
    ],
)
def test_an_image_of_another_kind(image, words, tmp_path, rng):
    path = tmp_path / "policy.safetensors"
    write_policy(path, POINT, Merlin(hidden=(16,)), rng, image=IMAGE)
    policy = merlin.runtime.load(path)
    with pytest.raises(merlin.MerlinError, match=words):
        policy({"observation": image, "desired_goal": np.zeros(2)})


@pytest.mark.parametrize("constants", [{"strides": [4, 2]}, {"strides": [4, 2, 2]}, {"padding": 0}])
def test_filters_move_as_the_file_says(constants, tmp_path, rng):
    path = tmp_path / "policy.safetensors"
    write_policy(path, POINT, Merlin(hidden=(16,)), rng, image=IMAGE)
    arrays = safetensors.numpy.load_file(path)
    with safetensors.safe_open(path, framework="numpy") as file:
        about = json.loads(file.metadata()["merlin"])
    assert about["constants"]["strides"] == [4, 2, 1]
    about["constants"] |= constants
    safetensors.numpy.save_file(arrays, path, metadata={"merlin": json.dumps(about)})
    with pytest.raises(merlin.MerlinError, match="do not fit together"):
        merlin.runtime.load(path)


def test_a_file_whose_filters_do_not_fit(tmp_path, rng):
    path = tmp_path / "policy.safetensors"
    write_policy(path, POINT, Merlin(hidden=(16,)), rng, image=IMAGE)
    arrays = safetensors.numpy.load_file(path)
    with safetensors.safe_open(path, framework="numpy") as file:
        about = {"merlin": file.metadata()["merlin"]}
    short = arrays | {"net.cnn.layers.1.bias": np.zeros(3, np.float32)}
    safetensors.numpy.save_file(short, path, metadata=about)
    with pytest.raises(merlin.MerlinError, match="do not fit together"):
        merlin.runtime.load(path)
