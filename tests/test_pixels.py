"""Images: how they are made, read and learned from."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import merlin
from merlin.augment import Rollouts, Stitch
from merlin.cli import main
from merlin.data.filming import with_images
from merlin.data.images import Images, Selection, Stream, ahead, image_moments, pieces, shift
from merlin.data.relabel import make_spec
from merlin.errors import MerlinError
from merlin.evaluation import evaluate
from merlin.learners import GCSL, WGCSL, ActionableModels, GoFAR, Merlin
from merlin.loop import compiled_chunk
from merlin.nets import MLP
from merlin.runs import load_run
from merlin.streaming import SHOWN, _used, compiled_draw, streamed_chunk
from merlin.tasks.batch import LocalBatch, ParallelBatch, VectorBatch
from merlin.tasks.point import film
from merlin.tasks.registry import find
from merlin.types import Moments
from merlin.vision import Cnn, Conv, ImageNet, Pixels, features_of, make_net

SIZE = 16
SMALL = {"hidden": (8,), "batch_size": 8}
SCHEDULE = {
    "eval_every": 2,
    "eval_episodes": 2,
    "final_episodes": 2,
    "log_every": 1,
    "checkpoint_every": 2,
}
POINT = replace(find("PointReach"), environments=2).from_pixels(SIZE)


@pytest.fixture(scope="module")
def states():
    return merlin.collect("PointReach", "random", episodes=6)


@pytest.fixture(scope="module")
def folder(states, tmp_path_factory):
    path = tmp_path_factory.mktemp("pixels") / "data"
    return merlin.save(with_images(states, POINT), path)


@pytest.fixture(scope="module")
def images(folder):
    return merlin.load(folder)


def frames_of(data):
    return np.asarray(data.observations)


class TestNetworks:
    def test_sizes_are_those_of_the_paper(self):
        assert features_of((48, 48, 3)) == 1600
        assert features_of((84, 84, 3)) == 6400
        image = jnp.zeros((48, 48, 3))
        assert Cnn(3, key=jax.random.key(0))(image).shape == (1600,)

    def test_a_convolution_by_hand(self, rng):
        conv = Conv(2, 3, 4, 2, key=jax.random.key(1))
        image = rng.normal(size=(7, 9, 2)).astype(np.float32)
        padded = np.pad(image, ((1, 1), (1, 1), (0, 0)))
        weight = np.asarray(conv.weight)
        expected = np.zeros((3, 4, 3))
        for row, column in np.ndindex(3, 4):
            patch = padded[2 * row : 2 * row + 4, 2 * column : 2 * column + 4]
            expected[row, column] = np.einsum("ijk,ijkl->l", patch, weight) + conv.bias
        np.testing.assert_allclose(conv(jnp.asarray(image)), expected, atol=1e-5)

    def test_two_images_are_seen_by_one_cnn_and_numbers_follow(self, rng):
        net = ImageNet((SIZE, SIZE, 3), 2, 5, (8,), 4, key=jax.random.key(2))
        one, other = rng.integers(0, 256, (2, SIZE, SIZE, 3)).astype(np.uint8)
        numbers = rng.normal(size=5).astype(np.float32)
        pixels = Pixels(Moments(np.zeros((SIZE, SIZE, 3), np.float32), np.array([255.0])))
        x = jnp.concatenate([pixels(jnp.asarray(i)) for i in (one, other)] + [numbers])
        seen = [net.cnn(jnp.asarray(i, jnp.float32) / 255) for i in (one, other)]
        np.testing.assert_allclose(net(x), net.head(jnp.concatenate([*seen, numbers])), atol=1e-6)

    def test_what_never_changes_is_nothing_to_the_network(self, rng):
        frames = np.full((40, SIZE, SIZE, 3), 200, np.uint8)
        frames[:, 3, 4] = rng.integers(0, 256, (40, 3))
        pixels = Pixels(image_moments(frames))
        seen = np.stack([pixels(jnp.asarray(f)) for f in frames]).reshape(frames.shape)
        assert seen.std() == pytest.approx(1, abs=0.01)
        seen[:, 3, 4] = 0
        np.testing.assert_allclose(seen, 0, atol=1e-4)

    def test_vectors_get_a_plain_mlp(self, states):
        spec = make_spec(states, Merlin().relabel)
        assert isinstance(make_net(spec, (8,), 2, key=jax.random.key(0)), MLP)

    def test_tiny_images_are_refused_in_one_sentence(self):
        with pytest.raises(MerlinError, match="8x8x3 are too small"):
            ImageNet((8, 8, 3), 1, 0, (8,), 4, key=jax.random.key(0))


class TestFrames:
    def test_recorded_states_are_drawn(self, states, images):
        assert images.observations.dtype == np.uint8
        np.testing.assert_array_equal(images.observations, film(states.observations, SIZE))
        np.testing.assert_array_equal(images.actions, states.actions)

    def test_a_policy_is_shown_what_the_data_shows(self):
        batch = VectorBatch(POINT, 2)
        first = batch.reset([3, 4])
        after = batch.step(np.zeros((2, 2), np.float32)).observation
        np.testing.assert_array_equal(first["observation"], film(first["achieved_goal"], SIZE))
        np.testing.assert_array_equal(first["observation"], after["observation"])
        assert first["desired_goal"].shape == (2, 2)

    def test_goal_images_show_the_goal_reached(self):
        told = VectorBatch(replace(POINT, goal="image"), 2).reset([3, 4])
        goals = VectorBatch(POINT, 2).reset([3, 4])["desired_goal"]
        np.testing.assert_array_equal(told["desired_goal"], film(goals, SIZE))

    def test_sawyer_is_replayed_exactly(self):
        data = merlin.collect("SawyerDoor", "random", episodes=2, workers=1)
        task = find("SawyerDoor").from_pixels(SIZE)
        filmed = with_images(data, task, workers=1).observations.whole()
        batch = LocalBatch(task, 1)
        shown = [batch.reset([9])["observation"][0]]
        shown += [batch.step(a[None]).observation["observation"][0] for a in data.actions[49:98]]
        batch.close()
        np.testing.assert_array_equal(filmed[50:], shown)
        assert len(np.unique(filmed.reshape(len(filmed), -1), axis=0)) > 90

        moved = data.observations.copy()
        moved[50 + 7, 0] += 0.01
        with pytest.raises(MerlinError, match=r"step 7 of episode 1: .*merlin collect --pixels"):
            with_images(replace(data, observations=moved), task, workers=1).observations.whole()

    @pytest.mark.parametrize("name", ["SawyerReach", "SawyerDoor"])
    def test_sawyer_goal_images_show_the_goal_reached(self, name):
        batch = LocalBatch(find(name).from_pixels(SIZE, "image"), 1)
        goals = np.stack([batch.reset([seed])["desired_goal"][0] for seed in (0, 1)])
        start = batch.reset([0])["observation"][0]
        env = batch._envs[0]
        held = env._data.qpos.copy()
        env.goal_frame()
        np.testing.assert_array_equal(env._data.qpos, held)
        batch.close()
        assert (goals[0] != goals[1]).any()
        assert (goals[0] != start).any()

    def test_workers_change_nothing(self):
        task = find("SawyerReach").from_pixels(SIZE)
        actions = np.full((2, 3), 0.5, np.float32)
        seen = []
        for batch in (LocalBatch(task, 2), ParallelBatch(task, 2, 2)):
            seen.append([batch.reset([0, 1]), batch.step(actions).observation])
            batch.close()
        for one, other in zip(*seen, strict=True):
            np.testing.assert_array_equal(one["observation"], other["observation"])
            assert one["observation"].shape == (2, SIZE, SIZE, 3)

    def test_what_is_filmed_survives_a_kill(self, tmp_path):
        data = merlin.collect("SawyerDoor", "random", episodes=11, workers=1)
        task, parts = find("SawyerDoor").from_pixels(SIZE), tmp_path / "parts"
        make = lambda: with_images(data, task, workers=1, parts=parts).observations  # noqa: E731
        first = next(make().make())
        kept = parts / "frames-00000000.npy"
        stamp = kept.stat().st_mtime_ns
        whole = make().whole()
        assert kept.stat().st_mtime_ns == stamp
        np.testing.assert_array_equal(whole[: len(first)], first)
        assert len(whole) == 11 * 50


class TestReading:
    def test_rows_of_several_parts(self, images, rng):
        part = rng.integers(0, 256, (5, SIZE, SIZE, 3)).astype(np.uint8)
        both = np.concatenate([frames_of(images), part])
        rows = rng.integers(0, len(both), (3, 7))
        np.testing.assert_array_equal(Images([images.observations, part]).gather(rows), both[rows])

    def test_memory_is_let_go_of_and_read_again(self, images, monkeypatch):
        monkeypatch.setattr("merlin.data.images.RELEASE_AFTER", 0)
        reader = Images([images.observations])
        rows = np.arange(len(images.observations))
        for _ in range(2):
            np.testing.assert_array_equal(reader.gather(rows), frames_of(images))

    def test_a_selection_is_rows_not_copied(self, images):
        some = Selection(images.observations, np.array([4, 2, 2]))
        assert some.shape == (3, SIZE, SIZE, 3)
        np.testing.assert_array_equal(some[np.array([2, 0])], frames_of(images)[[2, 4]])
        np.testing.assert_array_equal(
            np.concatenate([piece for _, piece in pieces(some)]), frames_of(images)[[4, 2, 2]]
        )

    def test_pieces_of_a_stream_are_made_when_asked_for(self):
        made = []

        def make():
            for value in (1, 2):
                made.append(value)
                yield np.full((2, 3), value)

        stream = Stream((4, 3), np.dtype(np.int64), make)
        assert not made
        np.testing.assert_array_equal(stream.whole()[:, 0], [1, 1, 2, 2])

    def test_shift_moves_and_repeats_the_edge(self):
        image = np.arange(9, dtype=np.uint8).reshape(1, 3, 3, 1)
        moved = shift(np.repeat(image, 3, 0), np.array([[0, 0], [1, 0], [0, -2]]))
        np.testing.assert_array_equal(moved[0], image[0])
        np.testing.assert_array_equal(moved[1, :, 0, 0], [3, 6, 6])
        np.testing.assert_array_equal(moved[2, 0, :, 0], [0, 0, 0])
        np.testing.assert_array_equal(moved[2, 1, :, 0], [3, 3, 3])

    def test_ahead_keeps_the_order_and_passes_errors_on(self):
        assert list(ahead(lambda step: step**2, range(5))) == [0, 1, 4, 9, 16]

        def fail(step):
            if step == 3:
                raise MerlinError("broken")
            return step

        with pytest.raises(MerlinError, match="broken"):
            list(ahead(fail, range(5)))


def started(learner, data, **how):
    spec = make_spec(data, learner.relabel, 1.0, **how)
    return learner.init(jax.random.key(3), spec)


class TestTraining:
    def test_images_from_disk_train_as_images_in_memory(self, images):
        learner = Merlin(**SMALL)
        state, key = started(learner, images), jax.random.key(4)
        rows = images.on_device()
        streamed = streamed_chunk(learner, Images([images.observations]))
        from_disk = streamed(streamed(state, rows, key, 0, 2)[0], rows, key, 2, 5)
        whole = rows._replace(observations=jnp.asarray(frames_of(images)))
        in_memory = compiled_chunk(learner, together=False)(state, whole, key, 0, 5)
        for one, other in zip(
            jax.tree.leaves(from_disk[0]), jax.tree.leaves(in_memory[0]), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize(
        ("learner", "goal", "looks"),
        [
            (Merlin(**SMALL), False, {"observation"}),
            (Merlin(**SMALL), True, {"observation", "goal_observation"}),
            (ActionableModels(**SMALL), False, {"observation", "next_observation"}),
            (GoFAR(**SMALL), False, set(SHOWN) - {"goal_observation"}),
        ],
    )
    def test_only_images_that_a_learner_looks_at_are_read(self, images, learner, goal, looks):
        drawn = compiled_draw(learner, None, 0)(images.on_device(), jax.random.key(0), 0)
        state = started(learner, images, goal_image=goal)
        used = _used(learner, (SIZE, SIZE, 3), drawn, state)
        assert {name for name, wanted in used.items() if wanted} == looks

    @pytest.mark.parametrize(
        ("kind", "goal"),
        [(Merlin, "image"), (GCSL, "vector"), (WGCSL, "vector"), (ActionableModels, "image")],
    )
    def test_learners_train_and_their_policies_act(self, images, kind, goal, tmp_path):
        run = merlin.train(
            kind(**SMALL),
            images,
            task=POINT,
            goal=goal,
            shift=1,
            updates=2,
            out=tmp_path / "run",
            **SCHEDULE,
        )
        assert np.isfinite(run.result["final"]["return"]["mean"])
        observation = frames_of(images)[0]
        told = observation if goal == "image" else images.achieved_goals[0]
        again = load_run(tmp_path / "run").policy
        np.testing.assert_array_equal(
            again(observation, np.asarray(told)), run.policy(observation, np.asarray(told))
        )

    def test_gofar_trains_but_needs_goals_as_numbers(self, images):
        how = {"task": POINT, "updates": 1, **SCHEDULE}
        merlin.train(GoFAR(**SMALL), images, **how)
        with pytest.raises(MerlinError, match="--goal image: gofar"):
            merlin.train(GoFAR(**SMALL, hindsight_ratio=1.0), images, goal="image", **how)

    def test_a_resumed_run_is_the_run_that_was_not_stopped(self, images, tmp_path):
        learner, how = Merlin(**SMALL), {"task": POINT, "shift": 2, **SCHEDULE}
        merlin.train(learner, images, updates=4, out=tmp_path / "whole", **how)
        merlin.train(learner, images, updates=2, out=tmp_path / "cut", **how)
        merlin.train(learner, images, updates=4, out=tmp_path / "cut", resume=True, **how)
        for name in ("checkpoint-0.safetensors", "seed-0/policy.safetensors"):
            one, other = ((tmp_path / run / name).read_bytes() for run in ("whole", "cut"))
            assert one == other

    def test_a_shift_changes_what_is_learned(self, images):
        learner, key = Merlin(**SMALL), jax.random.key(0)
        state, source = started(learner, images), Images([images.observations])
        losses = [
            float(
                streamed_chunk(learner, source, pad=pad)(state, images.on_device(), key, 0, 1)[1][
                    "loss"
                ]
            )
            for pad in (0, 4)
        ]
        assert losses[0] != losses[1]

    def test_stitched_trajectories_are_recorded_images(self, images):
        stitch = Stitch(threshold=0.2, encoder_hidden=(8,), encoder_max_updates=2, encoder_batch=8)
        made = stitch(images, seed=0).dataset
        assert isinstance(made.observations, Selection)
        frames = made.observations[np.arange(len(made.observations))]
        goals = np.asarray(images.achieved_goals)[made.observations.rows]
        np.testing.assert_array_equal(made.achieved_goals, goals)
        np.testing.assert_array_equal(frames, frames_of(images)[made.observations.rows])
        run = merlin.train(
            Merlin(**SMALL), images, augment=stitch, task=POINT, updates=2, **SCHEDULE
        )
        assert run.result["seeds"][0]["augmented"]["trajectories"] > 0

    def test_reverse_models_walk_among_latents(self, images, tmp_path):
        rollouts = Rollouts(
            latent_dim=3,
            latent_updates=2,
            latent_batch=8,
            proposer_hidden=(8,),
            dynamics_width=8,
            model_epochs=1,
            model_batch=8,
            margin=1e9,  # hardly trained, they leave the range of the data
        )
        how = {"augment": rollouts, "task": POINT, **SCHEDULE}
        run = merlin.train(Merlin(**SMALL), images, updates=4, out=tmp_path / "run", **how)
        assert merlin.load(tmp_path / "run/seed-0/augmented").observations.shape[1:] == (3,)
        assert merlin.load(tmp_path / "run/seed-0/encoded").observations.shape == (300, 3)
        report = run.result["seeds"][0]["augmented"]
        assert report["goal_error"] > 0
        again = load_run(tmp_path / "run").policy
        scores = [evaluate(policy, POINT, episodes=2).returns for policy in (run.policy, again)]
        np.testing.assert_array_equal(*scores)

        merlin.train(Merlin(**SMALL), images, updates=2, out=tmp_path / "cut", **how)
        merlin.train(Merlin(**SMALL), images, updates=4, out=tmp_path / "cut", resume=True, **how)
        one, other = (tmp_path / r / "checkpoint-0.safetensors" for r in ("run", "cut"))
        assert one.read_bytes() == other.read_bytes()
        with pytest.raises(MerlinError, match="--goal image: learned models"):
            merlin.train(Merlin(**SMALL), images, updates=1, goal="image", **how)


class TestCommandLine:
    def test_collect_and_convert_make_the_same_images(self, tmp_path, capsys):
        base = ["collect", "PointRooms", "--variant", "random", "--episodes", "2", "--out"]
        main([*base, str(tmp_path / "pixels"), "--pixels"])
        main([*base, str(tmp_path / "states")])
        main(["convert", str(tmp_path / "states"), str(tmp_path / "converted"), "--pixels"])
        one, other = (merlin.load(tmp_path / name) for name in ("pixels", "converted"))
        assert one.observations.shape == (100, 48, 48, 3)
        assert isinstance(one.observations, np.memmap)
        np.testing.assert_array_equal(one.observations, other.observations)
        capsys.readouterr()
        main(["info", str(tmp_path / "pixels"), "--json"])
        about = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert about["observation_shape"] == [48, 48, 3]
        assert about["provenance"]["images"] == "48x48"

    def test_a_run_from_images_is_evaluated_from_images(self, folder, tmp_path, capsys):
        asked = ["--updates", "1", "--set", "hidden=8", "batch_size=4", "--eval-episodes", "1"]
        out = str(tmp_path / "run")
        main(["train", str(folder), "--out", out, "--final-episodes", "1", *asked])
        capsys.readouterr()
        main(["eval", out, "--episodes", "1", "--json"])
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["episodes"] == 1

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["collect", "Reacher", "--pixels", "--out", "{new}"], "Reacher has no images"),
            (["convert", "{images}", "{new}", "--pixels"], "has images already"),
            (["convert", "{images}", "{new}.npz", "--pixels"], "is no dataset folder"),
            (["train", "{images}", "--pixels", "--out", "{new}"], "is recorded already"),
            (["train", "{images}", "--goal", "photo", "--out", "{new}"], "neither vector nor"),
            (["train", "{images}", "--shift", "-1", "--out", "{new}"], "--shift: -1"),
            (["train", "{states}", "--goal", "image", "--out", "{new}"], "no images"),
            (["train", "{states}", "--shift", "2", "--out", "{new}"], "no images"),
            (["train", "{images}", "--task", "PointRooms", "--algo", "dd", "--out", "{new}"], "dd"),
        ],
    )
    def test_what_cannot_be_is_refused_in_one_sentence(
        self, arguments, sentence, folder, point_folder, tmp_path, capsys
    ):
        names = {"images": folder, "states": point_folder, "new": tmp_path / "new"}
        with pytest.raises(SystemExit) as stop:
            main([a.format(**names) for a in arguments])
        assert stop.value.code == 2
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert sentence in said
        assert not (tmp_path / "new").exists()
