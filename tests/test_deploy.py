"""One policy in JAX, in NumPy and in ONNX Runtime: the same actions, on every task's shapes."""

import json
import re
import subprocess
import sys

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors.numpy

import merlin
import merlin.runtime
from merlin import export
from merlin.learners import Merlin
from merlin.runs import load_policy, save_policy
from merlin.types import Moments, Spec

TASKS = list(merlin.TASKS.values())


def moments(rng, size):
    """Some dimensions far from zero, some that hardly move."""
    mean = 3 * rng.standard_normal(size)
    return Moments(mean.astype(np.float32), rng.uniform(0.0, 2.0, size).astype(np.float32))


def write_policy(path, task, horizon, rng, hidden=(256, 256, 256)):
    """An untrained policy of a task's shapes, with bounds that are not symmetric."""
    low = rng.uniform(-2.0, -0.5, task.action_dim).astype(np.float32)
    learner = Merlin(horizon=horizon, hidden=hidden)
    spec = Spec(
        observation_shape=(task.observation_dim,),
        action_low=low,
        action_high=low + rng.uniform(1.0, 3.0, task.action_dim).astype(np.float32),
        goal_dim=task.goal_dim,
        max_horizon=task.episode_steps,
        observation_moments=moments(rng, task.observation_dim),
        goal_moments=moments(rng, task.goal_dim),
    )
    policy = learner.policy(learner.init(jax.random.key(1), spec))
    save_policy(path, policy, learner, spec, {"task": task.name})
    return policy


def inputs(policy, rng, count):
    """Rows as they occur, rows far outside, which the normaliser clips, and horizons."""
    far = np.where(np.arange(count) % 2, 1.0, 100.0)[:, None]
    observations, goals = (
        np.asarray(n.mean + far * rng.standard_normal((count, len(n.mean))) / n.scale, np.float32)
        for n in (policy.observation_normaliser, policy.goal_normaliser)
    )
    return observations, goals, rng.integers(1, 51, count).astype(np.float32)


@pytest.mark.parametrize("horizon", [20, None])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_numpy_and_onnx_act_as_jax_does(task, horizon, tmp_path, rng):
    path = tmp_path / "policy.safetensors"
    policy = write_policy(path, task, horizon, rng)
    fast = merlin.runtime.load(path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(export.build(merlin.runtime.read(path)), options)
    observations, goals, horizons = inputs(policy, rng, 200)
    told = None if horizon is None else horizons
    axes = (0, 0, None if told is None else 0)
    means, stds = jax.vmap(policy.distribution, axes)(observations, goals, told)
    rows = {"observation": observations, "goal": goals}
    answer = session.run(["action", "std"], rows if told is None else rows | {"horizon": told})
    np.testing.assert_allclose(answer[0], means, atol=1e-5)
    np.testing.assert_allclose(answer[1], stds, rtol=1e-5, atol=1e-5)
    for observation, goal, h, mean in zip(observations, goals, horizons, means, strict=True):
        action = fast({"observation": observation, "desired_goal": goal}, h)
        assert action.dtype == np.float32
        np.testing.assert_allclose(action, mean, atol=1e-5)
    # Left out, the horizon is the policy's own: for a whole batch, too.
    own = jax.vmap(policy)(observations, goals)
    np.testing.assert_allclose(session.run(["action"], rows)[0], own, atol=1e-5)
    for observation, goal, mean in zip(observations[:9], goals, own, strict=False):
        action = fast({"observation": observation, "desired_goal": goal})
        np.testing.assert_allclose(action, mean, atol=1e-5)


def test_a_policy_without_spread_runs_too(tmp_path, rng):
    task = merlin.TASKS["FetchPush"]
    path = tmp_path / "policy.safetensors"
    policy = write_policy(path, task, 20, rng, hidden=(32, 32))
    arrays = safetensors.numpy.load_file(path)
    with safetensors.safe_open(path, framework="numpy") as file:
        about = file.metadata()
    for part in ("weight", "bias"):
        name = f"net.layers.2.{part}"
        arrays[name] = np.ascontiguousarray(arrays[name][..., : task.action_dim])
    safetensors.numpy.save_file(arrays, path, metadata=about)
    weights = merlin.runtime.read(path)
    assert not weights.gaussian
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(export.build(weights), options)
    assert [output.name for output in session.get_outputs()] == ["action"]
    for observation, goal, _ in zip(*inputs(policy, rng, 10), strict=True):
        wanted = policy(observation, goal)
        action = merlin.runtime.Policy(weights)({"observation": observation, "desired_goal": goal})
        np.testing.assert_allclose(action, wanted, atol=1e-5)
        rows = {"observation": observation[None], "goal": goal[None]}
        np.testing.assert_allclose(session.run(None, rows)[0][0], wanted, atol=1e-5)


def test_an_action_is_not_overwritten_by_the_next(tmp_path, rng):
    path = tmp_path / "policy.safetensors"
    write_policy(path, merlin.TASKS["PointReach"], 1, rng, hidden=(8,))
    policy = merlin.runtime.load(path)
    first = policy({"observation": [0.0, 0.0], "desired_goal": [1.0, 1.0]})
    kept = first.copy()
    policy({"observation": [4.0, -4.0], "desired_goal": [1.0, 1.0]}, horizon=30)
    np.testing.assert_array_equal(first, kept)
    again = policy({"observation": [0.0, 0.0], "desired_goal": [1.0, 1.0]})
    np.testing.assert_array_equal(again, kept)


def test_importing_the_runtime_is_quick_and_light():
    program = (
        "import sys, time; begin = time.process_time(); import merlin.runtime\n"
        "print(time.process_time() - begin, *sys.modules)"
    )
    seconds = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        taken, *loaded = done.stdout.decode().split()
        assert not {"jax", "equinox", "gymnasium", "matplotlib", "optax"} & set(loaded)
        seconds.append(float(taken))
    # Processor time: what else runs on the machine does not count.
    assert min(seconds) < 0.2


def test_a_run_plays_in_gymnasium_with_the_runtime(run_folder):
    import gymnasium

    policy = merlin.runtime.load(run_folder, seed=1, checkpoint="best")
    slow = load_policy(run_folder / "seed-1" / "best.safetensors")
    env = gymnasium.make("merlin/PointReach-v0")
    observation, _ = env.reset(seed=0)
    for _ in range(5):
        action = policy(observation)
        wanted = slow(observation["observation"], observation["desired_goal"])
        np.testing.assert_allclose(action, wanted, atol=1e-5)
        observation, *_ = env.step(action)
    env.close()


def test_export_writes_what_it_says(run_folder, tmp_path, call):
    out = tmp_path / "new" / "policy.onnx"
    said = json.loads(call("export", run_folder, "--out", out, "--json").out.splitlines()[-1])
    assert said["task"] == "PointReach"
    assert said["samples"] == 1000
    assert said["largest_difference"] <= 1e-5
    model = onnx.load(out)
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert properties["algo"] == "merlin"
    assert properties["task"] == "PointReach"
    before = out.read_bytes()
    words = call("export", run_folder, "--out", out, "--overwrite").out
    assert "differs from the policy by at most" in words
    assert out.read_bytes() == before
    call("export", run_folder, "--out", out, "--overwrite", "--seed", "1")
    assert out.read_bytes() != before


def test_an_export_that_does_not_agree_is_not_written(run_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "CLIP", 1.0)
    with pytest.raises(merlin.MerlinError, match="nothing was written"):
        export.export(run_folder, tmp_path / "policy.onnx")
    assert not list(tmp_path.glob("*.onnx"))


def test_a_missing_library_is_named(run_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(merlin.MerlinError, match=r"onnx is not installed.*merlin\[export\]"):
        export.export(run_folder, tmp_path / "policy.onnx")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "--out", "a.onnx"], "no such run folder"),
        (["RUN", "--out", "a.txt"], r"--out: a\.txt is not named"),
        (["RUN", "--out", "a.onnx", "--seed", "7"], "--seed: .* has no seed 7; it has 0, 1"),
        (["RUN", "--out", "a.onnx", "--checkpoint", "worst"], "--checkpoint: 'worst'"),
        (["RUN", "--out", "there.onnx"], "already exists"),
    ],
)
def test_bad_requests_for_an_export(
    arguments, words, run_folder, tmp_path, monkeypatch, call, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.onnx").touch()
    with pytest.raises(SystemExit) as stop:
        call("export", *(run_folder if a == "RUN" else a for a in arguments))
    assert stop.value.code == 2
    assert re.search(words, capsys.readouterr().err)


def test_files_that_the_runtime_cannot_run(tmp_path, rng):
    path = tmp_path / "policy.safetensors"
    write_policy(path, merlin.TASKS["PointReach"], 1, rng, hidden=(8,))
    arrays = safetensors.numpy.load_file(path)
    with safetensors.safe_open(path, framework="numpy") as file:
        about = file.metadata()

    def refused(arrays, metadata, words):
        safetensors.numpy.save_file(arrays, path, metadata=metadata)
        with pytest.raises(merlin.MerlinError, match=words):
            merlin.runtime.load(path)

    refused(arrays | {"critic": np.zeros(1)}, about, "more than one feed-forward network")
    refused(arrays | {"action_scale": np.ones(3, np.float32)}, about, "do not fit together")
    refused(arrays, {"merlin": "{}"}, "not a policy")
    refused(arrays, None, "was not written by merlin")
    pixels = json.loads(about["merlin"]) | {"observation_shape": [48, 48, 3]}
    refused(arrays, {"merlin": json.dumps(pixels)}, "sees images")
    with pytest.raises(merlin.MerlinError, match="no such file"):
        merlin.runtime.load(tmp_path / "none.safetensors")


def test_an_observation_that_does_not_fit(tmp_path, rng):
    path = tmp_path / "policy.safetensors"
    write_policy(path, merlin.TASKS["PointReach"], 1, rng, hidden=(8,))
    policy = merlin.runtime.load(path)
    with pytest.raises(merlin.MerlinError, match=r"\(3,\) and \(2,\).*2 and 2 numbers"):
        policy({"observation": np.zeros(3), "desired_goal": np.zeros(2)})
