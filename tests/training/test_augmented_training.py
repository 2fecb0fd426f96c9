"""Training with an augmentation: half of every batch is new, and all promises of runs hold."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest

import merlin
from helpers.sizes import SCHEDULE, SMALL
from merlin.augment import Augmentation, Augmented, Rollouts, Stitch
from merlin.cli import main
from merlin.data import Episode
from merlin.data.goals import draw_mixture, hindsight
from merlin.data.spec import make_spec
from merlin.errors import MerlinError
from merlin.learners import Merlin
from merlin.training.plan import Plan
from merlin.training.train import resume

COMMAND = [sys.executable, "-c", "from merlin.cli import main; main()", "train"]
TINY = {"encoder_hidden": (8,), "embedding_dim": 3, "encoder_epochs": 1, "threshold": 0.99}
TINY_MODEL = {"proposer_hidden": (8,), "dynamics_width": 8, "model_epochs": 1, "margin": 9.0}


def train(data, out=None, *, augment=None, **options):
    options = {"updates": 60, **SCHEDULE, **options}
    return merlin.train(
        Merlin(**SMALL), data, augment=augment or Stitch(**TINY), out=out, **options
    )


def policy_bytes(folder, seed=0):
    return (folder / f"seed-{seed}" / "policy.safetensors").read_bytes()


@pytest.fixture(scope="module")
def augmented_run(point_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("augmented") / "run"
    train(point_data, folder, seeds=2)
    return folder


@pytest.mark.parametrize(
    "augment", [Stitch(**TINY), pytest.param(Rollouts(**TINY_MODEL), marks=pytest.mark.more)]
)
def test_runs_share_trajectories_and_are_the_same_to_the_byte(point_data, tmp_path, augment):
    alone = train(point_data, tmp_path / "alone", augment=augment)
    shared = tmp_path / "shared"
    train(point_data, tmp_path / "first", augment=augment, shared=shared)
    (made,) = shared.iterdir()
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*.npy")}
    other = train(point_data, tmp_path / "second", augment=augment, shared=shared)
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*.npy")} == before
    assert before
    for name in ("first", "second"):
        assert policy_bytes(tmp_path / name) == policy_bytes(tmp_path / "alone")
        assert not (tmp_path / name / "seed-0" / "augmented").exists()
    assert other.rows[0].augmented == alone.rows[0].augmented
    assert other.result == alone.result
    # Another seed or other data are made anew.
    quick = {"updates": 1, "eval_episodes": 1, "final_episodes": 1, "shared": shared}
    train(point_data, seeds=[1], augment=augment, **quick)
    train(replace(point_data, actions=-point_data.actions), augment=augment, **quick)
    assert len(list(shared.iterdir())) == 3


def labelled(value, lengths=(3, 5)):
    """A dataset all of whose numbers are `value`."""
    full = lambda *shape: np.full(shape, value, np.float32)  # noqa: E731
    return merlin.Dataset.from_episodes(
        [Episode(full(n, 2), np.zeros((n - 1, 1)), full(n, 1), full(1)) for n in lengths]
    )


def mixed(sampling, parts, seed, sizes):
    """Compiled as a whole, which is faster than its parts one by one."""
    draw = jax.jit(lambda parts, key: draw_mixture(sampling, parts, key, sizes))
    return draw(parts, jax.random.key(seed))


def test_a_batch_has_its_share_of_each():
    parts = (labelled(1).on_device(), labelled(5, (9,)).on_device())
    sampling = hindsight(0.5, "pairs", ahead=2)
    batch = mixed(sampling, parts, 0, (6, 2))
    assert batch.observation[:, 0].tolist() == [1.0] * 6 + [5.0] * 2
    assert batch.goal[:, 0].tolist() == [1.0] * 6 + [5.0] * 2
    assert batch.ahead.observations.shape == (8, 2, 2)
    again = mixed(sampling, parts, 0, (6, 2))
    np.testing.assert_array_equal(batch.horizon, again.horizon)


def stepping(value, **fields):
    """Ten states that achieve value + 0, 1, ...; the desired goal is value - 1."""
    steps = value + np.arange(10, dtype=np.float32)[:, None]
    episode = Episode(steps, np.zeros((9, 1)), steps, np.array([value - 1.0]))
    return replace(merlin.Dataset.from_episodes([episode]), **fields)


@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_made_trajectories_without_desired_goals_are_relabelled(ratio):
    """A hindsight ratio of 0 asks for the goals that were meant; nobody meant a made one's."""
    recorded, made = stepping(0.0), stepping(100.0, desired_goals=None)
    sampling = hindsight(ratio, "pairs")
    parts = (recorded.on_device(), made.on_device())
    n = 20_000
    batch = mixed(sampling, parts, 0, (n, n // 2))
    goal, state, horizon = (
        np.asarray(x) for x in (batch.goal[:, 0], batch.observation[:, 0], batch.horizon)
    )
    assert (goal[:n] == -1.0).mean() == pytest.approx(1 - ratio, abs=0.02)
    np.testing.assert_array_equal(goal[n:], (state + horizon)[n:])
    spec = make_spec(recorded, sampling, augmented=made, mix=1 / 3)
    np.testing.assert_allclose(spec.goal_moments.mean, np.mean(goal), rtol=0.02)
    np.testing.assert_allclose(spec.goal_moments.std, np.std(goal), rtol=0.02)


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
def test_moments_are_those_of_the_mixture(ratio):
    spec = make_spec(
        labelled(1), hindsight(ratio, "pairs"), augmented=labelled(5, (9, 4)), mix=0.25
    )
    np.testing.assert_allclose(spec.observation_moments.mean, [2.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(spec.goal_moments.mean, [2.0], rtol=1e-6)
    np.testing.assert_allclose(spec.goal_moments.std, [np.sqrt(0.25 * 0.75) * 4], rtol=1e-5)
    assert spec.max_horizon == 9


def test_the_run_keeps_what_it_made(augmented_run, point_data):
    config = json.loads((augmented_run / "run.json").read_text())
    assert config["algo"] == "merlin-np"
    assert config["augment"]["name"] == "reverse-stitch"
    result = json.loads((augmented_run / "result.json").read_text())
    # As many were made as were recorded.
    assert [seed["mix"] for seed in result["seeds"]] == [0.5, 0.5]
    made = merlin.load(augmented_run / "seed-0" / "augmented")
    assert len(made) == len(point_data)
    assert made.task == "PointReach"
    report = made.provenance["report"]
    assert report == result["seeds"][0]["augmented"]
    assert report["stitches"] > 0
    other = merlin.load(augmented_run / "seed-1" / "augmented")
    assert other.fingerprint() != made.fingerprint()
    recorded = {tuple(row) for row in np.asarray(point_data.observations)}
    assert {tuple(row) for row in np.asarray(made.observations)} <= recorded


@pytest.mark.parametrize(
    ("lengths", "drawn_steps", "sizes"),
    [
        ((3, 5), None, (256, 256)),  # 6 transitions of either kind
        ((3, 3), None, (307, 205)),  # 4 of 10
        ((3, 5), 1, (384, 128)),  # the first step of each: 2 of 8
        ((3, 5), 3, (279, 233)),  # 2 + 3 of 11: the short one has only 2
    ],
)
def test_the_mix_is_the_share_of_new_transitions(lengths, drawn_steps, sizes):
    plan = Plan.make(
        Merlin(batch_size=512), labelled(1), {"augment": Stitch(), "task": "none", "held_out": 0.0}
    )
    made = replace(labelled(5, lengths), drawn_steps=drawn_steps)
    assert plan.sizes(made) == sizes


@pytest.mark.parametrize(
    ("ratio", "told", "sizes"),
    [
        (1.0, False, (256, 256)),
        (0.25, False, (448, 64)),  # half of the quarter that has goals in hindsight
        (0.25, True, (256, 256)),  # generated with desired goals, as in the release
        (0.0, False, (511, 1)),
    ],
)
def test_generated_transitions_replace_hindsight_goals_only(ratio, told, sizes):
    made = labelled(5, (3, 5))
    made = made if told else replace(made, desired_goals=None)
    learner, how = Merlin(hindsight_ratio=ratio), {"task": "none", "held_out": 0.0}
    plan = Plan.make(learner, labelled(1), {"augment": Stitch(), **how})
    assert plan.sizes(made) == sizes


def test_a_mix_that_is_given(point_data):
    plan = Plan.make(Merlin(batch_size=10), point_data, {"augment": Stitch(), "mix": 0.25})
    assert plan.sizes(labelled(5)) == (8, 2)


def test_a_batch_has_an_example_of_each_kind():
    plan = Plan.make(
        Merlin(batch_size=4), labelled(1), {"augment": Stitch(), "task": "none", "held_out": 0.0}
    )
    assert plan.sizes(labelled(5, (200,))) == (1, 3)
    long = labelled(1, (200,))
    many = Plan.make(
        Merlin(batch_size=4), long, {"augment": Stitch(), "task": "none", "held_out": 0.0}
    )
    assert many.sizes(labelled(5)) == (3, 1)


def test_policies_load_back(augmented_run):
    run = merlin.load_run(augmented_run)
    scores = merlin.evaluate(run.policy, "PointReach", episodes=SCHEDULE["final_episodes"])
    assert scores.returns.mean() == run.result.seeds[0].final.mean_return


def test_made_trajectories_matter(augmented_run, point_data, run_folder):
    assert policy_bytes(augmented_run) != policy_bytes(run_folder)


def test_in_memory_and_alone_is_the_same(augmented_run, point_data, tmp_path):
    run = train(point_data, seeds=[1])
    kept = merlin.load_run(augmented_run).policies[1]
    for a, b in zip(jax.tree.leaves(run.policy), jax.tree.leaves(kept), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_longer_run_goes_on_with_the_same_trajectories(augmented_run, point_data, tmp_path):
    folder = tmp_path / "run"
    train(point_data, folder, updates=35)
    before = (folder / "seed-0" / "augmented" / "meta.json").stat().st_mtime_ns
    resume(folder, updates=60)
    assert (folder / "seed-0" / "augmented" / "meta.json").stat().st_mtime_ns == before
    assert policy_bytes(folder) == policy_bytes(augmented_run)


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"augment": Stitch(**{**TINY, "threshold": 0.5})}, "augment="),
        ({"augment": Stitch(**TINY, forward=True)}, "algo=merlin-np"),
        ({"mix": 0.25}, "mix=None, not 0.25"),
    ],
)
def test_resuming_another_augmentation_is_refused(augmented_run, point_data, change, fragment):
    with pytest.raises(MerlinError, match=fragment):
        train(point_data, augmented_run, seeds=2, resume=True, **change)


@pytest.mark.parametrize("mix", [0.0, 1.0, -0.5, 0.001, float("nan")])
def test_a_mix_has_something_of_both(point_data, mix):
    with pytest.raises(MerlinError, match=r"^mix: "):
        train(point_data, mix=mix)


@dataclass(frozen=True)
class Killed:
    """An augmentation that is killed in the middle."""

    def __call__(self, data, **how):
        raise KeyboardInterrupt


def test_a_kill_while_trajectories_are_made_is_harmless(
    augmented_run, point_data, tmp_path, monkeypatch
):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Stitch, "__call__", Killed.__call__)
        with pytest.raises(KeyboardInterrupt):
            train(point_data, folder)
    (folder / "seed-0").mkdir(exist_ok=True)
    left = folder / "seed-0" / ".merlin-0.partial"  # what a kill while writing leaves
    left.mkdir()
    os.utime(left, (0, 0))
    assert not (folder / "seed-0" / "augmented").exists()
    resume(folder)
    assert policy_bytes(folder) == policy_bytes(augmented_run)
    assert not left.exists()


# The command line

UPDATES = 3000
OPTIONS = ["--algo", "merlin-np", "--updates", str(UPDATES), "--checkpoint-every", "50"]
OPTIONS += ["--eval-every", "1000", "--eval-episodes", "5", "--final-episodes", "5"]
OPTIONS += ["--set", "hidden=32,32", "batch_size=128", "encoder_hidden=8", "encoder_epochs=1"]
OPTIONS += ["threshold=0.99"]


@pytest.mark.more
def test_a_killed_run_is_the_run_that_was_not(point_folder, tmp_path):
    whole, folder = tmp_path / "whole", tmp_path / "run"
    command = [*COMMAND, str(point_folder), *OPTIONS, "--out"]
    subprocess.run([*command, str(whole)], check=True, capture_output=True, timeout=600)
    process = subprocess.Popen([*command, str(folder)], stderr=subprocess.DEVNULL)
    checkpoint = folder / "checkpoint-0.safetensors"
    while not checkpoint.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (folder / "seed-0" / "policy.safetensors").exists()
    again = [*COMMAND, "--out", str(folder), "--resume"]
    subprocess.run(again, check=True, capture_output=True, timeout=600)
    assert policy_bytes(folder) == policy_bytes(whole)
    assert (folder / "result.json").read_bytes() == (whole / "result.json").read_bytes()


def test_info_describes_made_trajectories(augmented_run, call):
    output = call("info", augmented_run / "seed-0" / "augmented").out
    assert "augmentation: reverse-stitch" in output
    assert "report: trajectories 30" in output
    assert "stitches" in output


def test_made_trajectories_are_data_of_their_own(augmented_run, call, tmp_path):
    made = augmented_run / "seed-0" / "augmented"
    small = [
        "--algo",
        "merlin",
        "--updates",
        5,
        "--eval-episodes",
        2,
        "--final-episodes",
        2,
        "--set",
        "hidden=8",
    ]
    done = call("train", made, "--out", tmp_path / "run", "--json", *small)
    assert json.loads(done.out.splitlines()[-1])["task"] == "PointReach"


def test_augment_any_learner_from_the_command_line(point_folder, call, tmp_path):
    options = [
        "--algo",
        "merlin",
        "--augment",
        "reverse-model",
        "--mix",
        "0.25",
        "--updates",
        3,
        "--eval-episodes",
        2,
    ]
    options += ["--final-episodes", 2, "--json", "--set", "hidden=8", "batch_size=8"]
    options += [f"{key}={v[0] if isinstance(v, tuple) else v}" for key, v in TINY_MODEL.items()]
    done = call("train", point_folder, "--out", tmp_path / "run", *options)
    result = json.loads(done.out.splitlines()[-1])
    assert (result["algo"], result["mix"]) == ("merlin-p", 0.25)
    assert result["seeds"][0]["augmented"]["trajectories"] == 30


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        (["--algo", "merlin-npq"], "did you mean"),
        (["--augment", "stich"], "--augment: no augmentation is called 'stich'"),
        (["--algo", "merlin-np", "--set", "threshold=2"], "threshold: 2.0"),
        (["--algo", "merlin-np", "--mix", "1.5"], "--mix: 1.5"),
        (["--mix", "0.25"], "--mix: merlin-plus generates no trajectories"),
        (["--algo", "merlin-p", "--preset", "tiny"], "no preset 'tiny'"),
    ],
)
def test_bad_input_is_one_sentence(point_folder, tmp_path, capsys, options, fragment):
    with pytest.raises(SystemExit) as stop:
        main(["train", str(point_folder), "--out", str(tmp_path / "run"), *options])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert fragment in said
    assert len(said.splitlines()) == 1


def test_models_without_phi_are_refused(point_data, tmp_path):
    shifted = replace(
        point_data, task=None, achieved_goals=point_data.achieved_goals + np.float32(1)
    )
    with pytest.raises(MerlinError, match="phi"):
        train(shifted, tmp_path / "run", augment=Rollouts(**TINY_MODEL))
    run = train(shifted, augment=Rollouts(**TINY_MODEL), updates=2, phi="0:2")
    assert run.config.task is None


def test_an_augmentation_of_ones_own_needs_a_name(point_data):
    @dataclass(frozen=True)
    class Copy(Augmentation):
        trajectories: int | None = None
        sees_images = True

        def __call__(self, data, *, seed, quiet=True):
            return Augmented(data, {})

    with pytest.raises(MerlinError, match="AUGMENTATIONS"):
        train(point_data, augment=Copy())
