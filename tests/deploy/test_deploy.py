"""One policy in JAX, in NumPy and in ONNX Runtime: the same actions, on every task's shapes."""

import dataclasses
import json
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
import safetensors.numpy

import merlin
import merlin.runtime
from helpers.onnx_sessions import session
from helpers.policy_files import write_policy, write_run
from merlin.deploy import export
from merlin.learners import GCSL, LEARNERS, Merlin, MerlinPlus
from merlin.learners.merlin import GaussianPolicy
from merlin.learners.plus import DISTANCES
from merlin.policies.goal import ClippedPolicy, DeterministicPolicy
from merlin.policies.map import MapPolicy
from merlin.policies.plus import MixturePolicy
from merlin.training.runs import load_policy

TASKS = list(merlin.TASKS.values())


def inputs(policy, rng, count):
    """Rows as they occur, rows far outside, which the normaliser clips, and horizons."""
    far = np.where(np.arange(count) % 2, 1.0, 100.0)[:, None]
    observations, goals = (
        np.asarray(n.mean + far * rng.standard_normal((count, len(n.mean))) / n.scale, np.float32)
        for n in (policy.observation_normaliser, policy.goal_normaliser)
    )
    return observations, goals, rng.integers(1, 51, count).astype(np.float32)


def check_agreement(path, policy, rng, count=100):
    """JAX, NumPy and ONNX Runtime say the same: mean, spread, with any horizon and their own."""
    fast, graph = merlin.runtime.load(path), session(export.build(merlin.runtime.read(path)))
    observations, goals, horizons = inputs(policy, rng, count)
    rows = {"observation": observations, "goal": goals}
    gaussian = isinstance(policy, GaussianPolicy)
    assert [output.name for output in graph.get_outputs()] == ["action", "std"][: 1 + gaussian]
    act = jax.jit(jax.vmap(policy.distribution if gaussian else lambda *x: (policy(*x), None)))
    own = np.full(count, 0 if policy.horizon is None else policy.horizon, np.float32)
    for told, asked in ((None, own), (horizons, horizons)):
        wanted, std = act(observations, goals, asked)
        with_horizon = {} if told is None or policy.horizon is None else {"horizon": told}
        answer = graph.run(None, rows | with_horizon)
        np.testing.assert_allclose(answer[0], wanted, atol=1e-5)
        if gaussian:
            np.testing.assert_allclose(answer[1], std, rtol=1e-5, atol=1e-5)
        for index, action in enumerate(np.asarray(wanted)):
            seen = {"observation": observations[index], "desired_goal": goals[index]}
            found = fast(seen, horizon=None if told is None else told[index])
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, action, atol=1e-5)


def check_judged(path, policy, rng, count=60):
    """NumPy takes the same of the same proposals as JAX does."""
    fast, policy = merlin.runtime.load(path), jax.tree.map(jnp.asarray, policy)
    observations, goals, horizons = inputs(policy, rng, count)
    choose = jax.jit(lambda *x: policy.choose(*x)[0])
    standard = jax.vmap(policy.observation_normaliser)(observations)
    goals_seen = jax.vmap(policy.goal_normaliser)(goals)
    judged = jax.jit(lambda *x: policy.steps_along(policy.judge, *x))
    alone = jax.jit(dataclasses.replace(policy, judge=None).__call__)
    others = same = 0
    places = []
    for index, (state, goal) in enumerate(zip(observations, goals, strict=True)):
        chances = policy.chances(jax.random.key(index))
        wanted = choose(state, goal, None, chances)
        seen = {"observation": state, "desired_goal": goal}
        found = fast.choose(state, goal, None, *map(np.asarray, chances))
        assert found.dtype == np.float32
        places.append(seen)
        # Far from all data two proposals may be as good as each other, up to rounding.
        steps = [judged(standard[index], goals_seen[index], a) for a in (found, wanted)]
        np.testing.assert_allclose(*steps, rtol=1e-3)
        same += np.allclose(found, wanted, atol=1e-4)
        told = fast(seen, horizon=horizons[index])
        np.testing.assert_allclose(told, alone(state, goal, horizons[index]), atol=1e-5)
        others += not np.allclose(found, alone(state, goal), atol=1e-3)
    assert others > 5  # the judge has had its say
    drawn = [{tuple(fast(place).tolist()) for _ in range(20)} for place in places[:10]]
    assert max(map(len, drawn)) > 1  # where a drawn proposal is the best, others are drawn next


def check_map(path, policy, rng, count=20):
    """NumPy and ONNX Runtime head where JAX does, among random places."""
    fast, graph = merlin.runtime.load(path), session(export.build(merlin.runtime.read(path)))
    policy = jax.tree.map(jnp.asarray, policy)
    observations, goals, _ = inputs(policy.executor, rng, count)
    wanted = jax.jit(jax.vmap(policy.act))(observations, goals)
    np.testing.assert_allclose(fast(observations, goals), wanted, atol=1e-4)
    (found,) = graph.run(None, {"observation": observations, "goal": goals})
    np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize("task", [TASKS[0], TASKS[-1]], ids=lambda task: task.name)
@pytest.mark.parametrize("distance", DISTANCES)
def test_merlin_plus_acts_without_jax(task, distance, tmp_path, rng):
    learner = MerlinPlus(components=3, candidates=6, depth=3, caution=0.0, distance=distance)
    policy = write_policy(tmp_path / "policy.safetensors", task, learner, rng)
    check_judged(tmp_path / "policy.safetensors", policy, rng)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="judged"),
        pytest.param({"distance": "classes"}, id="classes"),
        pytest.param({"components": 1, "candidates": 1}, id="nothing drawn"),
        pytest.param({"candidates": 0}, id="not judged"),
        pytest.param({"caution": 0.1}, id="cautious", marks=pytest.mark.more),
        pytest.param({"depth": 1}, id="one step ahead", marks=pytest.mark.more),
    ],
)
def test_merlin_plus_is_a_graph(settings, tmp_path, rng):
    learner = MerlinPlus(hidden=(32,), **{"caution": 0.0, **settings})
    run = write_run(tmp_path / "run", merlin.TASKS["FetchPush"], learner, rng)
    said = export.export(run, tmp_path / "policy.onnx")
    assert said["largest_difference"] < 1e-4
    assert said["outputs"] == ["action"]
    content, policy = (tmp_path / "policy.onnx").read_bytes(), merlin.load_run(run).policy
    model = session(content)
    observations, goals, _ = inputs(policy, rng, 50)
    rows, horizons = {"observation": observations, "goal": goals}, np.full(50, 5.0, np.float32)
    (found,) = model.run(None, rows)
    (alone,) = model.run(None, rows | {"horizon": horizons})
    act = jax.jit(jax.vmap(lambda *row: policy(*row)))
    np.testing.assert_allclose(alone, act(observations, goals, horizons), atol=1e-4)
    changed = (np.abs(found - alone).max(axis=1) > 1e-3).sum()
    assert changed > 5 if learner.candidates else changed == 0
    other = jax.tree.map(lambda leaf: leaf + 0.1, policy)
    weights = merlin.runtime.read(run / "seed-0" / "policy.safetensors")
    with pytest.raises(merlin.MerlinError, match="differs from the JAX policy"):
        export.verify(content, weights, other)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_numpy_and_onnx_act_as_jax_does(task, tmp_path, rng):
    policy = write_policy(tmp_path / "policy", task, Merlin(horizon=20), rng)
    check_agreement(tmp_path / "policy", policy, rng)


@pytest.mark.parametrize("name", LEARNERS)
def test_every_method_runs_or_says_that_it_does_not(name, tmp_path, rng):
    path = tmp_path / "policy"
    small = {"dd": {"channels": 8}, "merlin-map": {"places": 30, "temperature": 0.0}}.get(name, {})
    small |= {"caution": 0.0} if name == "merlin-plus" else {}
    policy = write_policy(path, merlin.TASKS["FetchPush"], LEARNERS[name](**small), rng)
    if isinstance(policy, GaussianPolicy | DeterministicPolicy | ClippedPolicy):
        return check_agreement(path, policy, rng, count=20)
    if isinstance(policy, MixturePolicy):
        return check_judged(path, policy, rng)
    if isinstance(policy, MapPolicy):
        return check_map(path, policy, rng)
    words = f"a policy of {name} is not a single feed-forward network.*merlin.load_run"
    with pytest.raises(merlin.MerlinError, match=words):
        merlin.runtime.load(path)


@pytest.mark.parametrize("learner", [Merlin(horizon=None), GCSL(horizon=5)])
def test_with_and_without_a_horizon(learner, tmp_path, rng):
    policy = write_policy(tmp_path / "policy", merlin.TASKS["Reacher"], learner, rng)
    check_agreement(tmp_path / "policy", policy, rng, count=20)


def test_an_action_is_not_overwritten_by_the_next(tmp_path, rng):
    path = tmp_path / "policy.safetensors"
    write_policy(path, merlin.TASKS["PointReach"], Merlin(hidden=(8,)), rng)
    policy = merlin.runtime.load(path)
    first = policy({"observation": [0.0, 0.0], "desired_goal": [1.0, 1.0]})
    kept = first.copy()
    policy({"observation": [4.0, -4.0], "desired_goal": [1.0, 1.0]}, horizon=30)
    np.testing.assert_array_equal(first, kept)
    again = policy({"observation": [0.0, 0.0], "desired_goal": [1.0, 1.0]})
    np.testing.assert_array_equal(again, kept)


def test_importing_the_runtime_is_light():
    # How long it takes is in benchmarks/runtime.py; here, that nothing heavy comes with it.
    program = (
        "import sys, numpy; before = set(sys.modules); import merlin.runtime\n"
        "print(*sorted(name.split('.')[0] for name in set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    brought = set(done.stdout.decode().split()) - set(sys.stdlib_module_names)
    assert brought == {"merlin", "safetensors"}


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


def rewrite(path, **changes):
    """Change what a policy file tells of itself; None takes it away."""
    about, arrays = metadata_of(path), safetensors.numpy.load_file(path)
    told = {k: v for k, v in (about | changes).items() if v is not None}
    safetensors.numpy.save_file(arrays, path, metadata={"merlin": json.dumps(told)})


def metadata_of(path):
    with safetensors.safe_open(path, framework="numpy") as file:
        return json.loads(file.metadata()["merlin"])


def test_an_export_that_does_not_agree_is_not_written(tmp_path, rng):
    learner = MerlinPlus(hidden=(8,), caution=0.1)
    run = write_run(tmp_path / "run", merlin.TASKS["PointReach"], learner, rng)
    path = run / "seed-0" / "policy.safetensors"
    rewrite(path, constants=metadata_of(path)["constants"] | {"haste": [1.0, -1.0], "narrow": 2.0})
    with pytest.raises(merlin.MerlinError, match="nothing was written"):
        export.export(run, tmp_path / "policy.onnx")
    assert not list(tmp_path.glob("*.onnx"))


def test_constants_are_those_of_the_file(tmp_path, rng):
    """Each changes what the runtime does; without any it does what it does with today's."""
    path = tmp_path / "policy.safetensors"
    write_policy(path, merlin.TASKS["FetchPush"], MerlinPlus(caution=0.1), rng)
    states, goals = 3 * rng.standard_normal((200, 25)), 3 * rng.standard_normal((200, 3))

    def acted():
        policy = merlin.runtime.load(path)
        rows = zip(states, goals, strict=True)
        return np.stack([policy({"observation": s, "desired_goal": g}) for s, g in rows])

    told, today = metadata_of(path)["constants"], acted()
    rewrite(path, constants=None)
    np.testing.assert_array_equal(acted(), today)
    others = {
        "min_std": 0.5,
        "narrow": 2.0,
        "haste": [1.0, -1.0],
        "soon": 9.0,
        "log_odds": 0.1,
        "walk_weights": [1.0, 0.0],
    }
    assert set(told) - set(others) == {"horizon_dim", "strides", "padding", "max_bins"}
    for name, value in others.items():
        rewrite(path, constants=told | {name: value})
        assert np.abs(acted() - today).max() > 1e-3, name
    rewrite(path, constants=told | {"horizon_dim": 16})
    with pytest.raises(merlin.MerlinError, match="do not fit together"):
        acted()
    classes = tmp_path / "classes.safetensors"
    write_policy(classes, merlin.TASKS["FetchPush"], MerlinPlus(distance="classes"), rng)
    rewrite(classes, constants=told | {"max_bins": 10})
    with pytest.raises(merlin.MerlinError, match="do not fit together"):
        merlin.runtime.load(classes)
    rewrite(path, constants=told | {"mood": 1})
    with pytest.raises(merlin.MerlinError, match=r"another version of merlin.*mood"):
        acted()


def test_the_horizon_that_a_policy_acts_for(tmp_path, rng):
    horizons = {
        Merlin(horizon=20): 20,
        Merlin(horizon=None): None,
        MerlinPlus(horizon=5, candidates=0): 5,
        MerlinPlus(horizon=5): None,
        LEARNERS["g-dql"](): None,
    }
    for learner, horizon in horizons.items():
        path = tmp_path / "policy.safetensors"
        write_policy(path, merlin.TASKS["PointReach"], learner, rng)
        assert load_policy(path).own_horizon == horizon


def test_a_missing_library_is_named(run_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(merlin.MerlinError, match=r"needs onnx.*merlin-rl\[export\]"):
        export.export(run_folder, tmp_path / "policy.onnx")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "--out", "a.onnx"], "no such run folder"),
        (["RUN", "--out", "a.txt"], r"--out: a\.txt does not end in .onnx"),
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
    write_policy(path, merlin.TASKS["PointReach"], Merlin(hidden=(8,)), rng)
    arrays = safetensors.numpy.load_file(path)
    with safetensors.safe_open(path, framework="numpy") as file:
        about = {"merlin": file.metadata()["merlin"]}

    def refused(arrays, metadata, words):
        safetensors.numpy.save_file(arrays, path, metadata=metadata)
        with pytest.raises(merlin.MerlinError, match=words):
            merlin.runtime.load(path)

    refused(arrays | {"critic": np.zeros(1)}, about, "not a single feed-forward network")
    refused(arrays | {"action_scale": np.ones(3, np.float32)}, about, "do not fit together")
    refused(arrays, {"merlin": "{}"}, "lacks 'algo'")
    refused(arrays, None, "was not written by merlin")
    pixels = json.loads(about["merlin"]) | {"observation_shape": [48, 48, 3]}
    refused(arrays, {"merlin": json.dumps(pixels)}, r"observation_shape is \[48, 48, 3\]")
    with pytest.raises(merlin.MerlinError, match="no such run folder or policy file"):
        merlin.runtime.load(tmp_path / "none.safetensors")


def test_an_observation_that_does_not_fit(tmp_path, rng):
    path = tmp_path / "policy.safetensors"
    write_policy(path, merlin.TASKS["PointReach"], Merlin(hidden=(8,)), rng)
    policy = merlin.runtime.load(path)
    with pytest.raises(
        merlin.MerlinError,
        match=r"observation: has the shape \(3,\), but this policy takes 2 numbers",
    ):
        policy({"observation": np.zeros(3), "desired_goal": np.zeros(2)})
