"""Training from images, and the command line that does it."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import merlin
from helpers.pixel_data import POINT, SIZE, SMALL, frames_of
from merlin.augment import Rollouts, Stitch
from merlin.augment.latents import Latents
from merlin.cli import main
from merlin.data.images import Images, Selection
from merlin.data.spec import make_spec
from merlin.errors import MerlinError
from merlin.evaluation.evaluate import evaluate
from merlin.learners import (
    GCSL,
    GDQL,
    WGCSL,
    ActionableModels,
    Beso,
    DecisionDiffuser,
    GoFAR,
    Merlin,
)
from merlin.learners.registry import configure, needs_latents
from merlin.training.image_updates import _used, compiled_draw, streamed_chunk
from merlin.training.loop import compiled_chunk
from merlin.training.runs import load_run

SCHEDULE = {
    "eval_every": 2,
    "eval_episodes": 2,
    "final_episodes": 2,
    "log_every": 1,
    "checkpoint_every": 2,
}
LATENTS = Latents(latent_dim=3, latent_updates=2, latent_batch=8)


def started(learner, data, **how):
    spec = make_spec(data, learner.sampling, 1.0, **how)
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
            (Merlin(**SMALL), True, {"observation", "policy goal"}),
            (ActionableModels(**SMALL), False, {"observation", "next_observation"}),
            (GoFAR(**SMALL), False, {"observation", "next_observation", "first_observation"}),
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
        assert np.isfinite(run.result.final["return"]["mean"])
        observation = frames_of(images)[0]
        told = observation if goal == "image" else images.achieved_goals[0]
        again = load_run(tmp_path / "run").policy
        np.testing.assert_array_equal(
            again(observation, np.asarray(told)), run.policy(observation, np.asarray(told))
        )

    def test_gofar_trains_but_needs_goals_as_numbers(self, images):
        how = {"task": POINT, "updates": 1, **SCHEDULE}
        merlin.train(GoFAR(**SMALL), images, **how)
        with pytest.raises(MerlinError, match="goal image: gofar"):
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
        assert run.result.seeds[0].augmented["trajectories"] > 0

    @pytest.mark.more
    def test_reverse_models_walk_among_latents(self, images, tmp_path):
        rollouts = Rollouts(
            proposer_hidden=(8,),
            dynamics_width=8,
            model_epochs=1,
            model_batch=8,
            margin=1e9,  # hardly trained, they leave the range of the data
        )
        how = {"augment": rollouts, "latents": LATENTS, "task": POINT, **SCHEDULE}
        run = merlin.train(Merlin(**SMALL), images, updates=4, out=tmp_path / "run", **how)
        made, encoded = (
            merlin.load(tmp_path / f"run/seed-0/{n}") for n in ("augmented", "encoded")
        )
        # Latents are unit vectors, with the goals that the encoder tells behind them.
        assert (made.observations.shape[1:], encoded.observations.shape) == ((5,), (300, 5))
        units, told = np.split(encoded.observations, [3], axis=1)
        np.testing.assert_allclose(np.linalg.norm(units, axis=1), 1.0, rtol=1e-5)
        error = np.linalg.norm(told - encoded.achieved_goals, axis=1).mean()
        np.testing.assert_allclose(run.result.seeds[0].encoded["goal_error"], error, 1e-5)
        np.testing.assert_allclose(made.achieved_goals, made.observations[:, 3:], rtol=1e-5)
        again = load_run(tmp_path / "run").policy
        scores = [evaluate(policy, POINT, episodes=2).returns for policy in (run.policy, again)]
        np.testing.assert_array_equal(*scores)

        merlin.train(Merlin(**SMALL), images, updates=2, out=tmp_path / "cut", **how)
        merlin.train(Merlin(**SMALL), images, updates=4, out=tmp_path / "cut", resume=True, **how)
        one, other = (tmp_path / r / "checkpoint-0.safetensors" for r in ("run", "cut"))
        assert one.read_bytes() == other.read_bytes()
        with pytest.raises(MerlinError, match="goal image: the method is given latents"):
            merlin.train(Merlin(**SMALL), images, updates=1, goal="image", **how)

    def test_who_needs_latents(self):
        assert all(needs_latents(kind(), None) for kind in (DecisionDiffuser, GDQL, Beso))
        assert not needs_latents(Merlin(), None)
        assert needs_latents(Merlin(), Rollouts())
        assert not needs_latents(Merlin(), Stitch())

    @pytest.mark.more
    @pytest.mark.parametrize("name", ["g-dql", "beso", "merlin"])
    def test_any_learner_learns_from_latents(self, images, name, tmp_path):
        learner = configure(name, preset="small" if name != "merlin" else None).learner
        learner = replace(learner, batch_size=4)
        how = {"task": POINT, "latents": LATENTS, "updates": 1, **SCHEDULE}
        run = merlin.train(learner, images, out=tmp_path / "run", **how)
        assert np.isfinite(run.result.final["return"]["mean"])
        again = load_run(tmp_path / "run").policy
        assert bool(jax.tree.leaves(again.begin())) == (name == "beso")
        scores = [evaluate(policy, POINT, episodes=2).returns for policy in (run.policy, again)]
        np.testing.assert_array_equal(*scores)
        # Runs that share their latents are the same to the byte, and act by themselves.
        for out in ("first", "second"):
            merlin.train(learner, images, out=tmp_path / out, shared=tmp_path / "shared", **how)
            for file in ("encoder.safetensors", "policy.safetensors"):
                one, other = (tmp_path / where / "seed-0" / file for where in ("run", out))
                assert one.read_bytes() == other.read_bytes()
        assert len(list((tmp_path / "shared").iterdir())) == 1


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

    def test_a_run_from_images_is_evaluated_from_images(self, image_folder, tmp_path, capsys):
        asked = ["--updates", "1", "--set", "hidden=8", "batch_size=4", "--eval-episodes", "1"]
        out = str(tmp_path / "run")
        main(["train", str(image_folder), "--out", out, "--final-episodes", "1", *asked])
        capsys.readouterr()
        main(["eval", out, "--episodes", "1", "--json"])
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["episodes"] == 1

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["collect", "Reacher", "--pixels", "--out", "{new}"], "Reacher has no images"),
            (["convert", "{images}", "{new}", "--pixels"], "has images already"),
            (["convert", "{images}", "{new}.npz", "--pixels"], "is not a dataset folder"),
            (["train", "{images}", "--pixels", "--out", "{new}"], "is already recorded"),
            (["train", "{images}", "--goal", "photo", "--out", "{new}"], "neither vector nor"),
            (["train", "{images}", "--shift", "-1", "--out", "{new}"], "--shift: -1"),
            (["train", "{states}", "--goal", "image", "--out", "{new}"], "no images"),
            (["train", "{states}", "--shift", "2", "--out", "{new}"], "no images"),
            (["train", "{states}", "--latents", "--out", "{new}"], "no images"),
            (["train", "{images}", "--set", "latent_dim=0", "--out", "{new}"], "latent_dim: 0"),
            (["train", "{images}", "--algo", "dd", "--shift", "2", "--out", "{new}"], "latents"),
        ],
    )
    def test_what_cannot_be_is_refused_in_one_sentence(
        self, arguments, sentence, image_folder, point_folder, tmp_path, capsys
    ):
        names = {"images": image_folder, "states": point_folder, "new": tmp_path / "new"}
        with pytest.raises(SystemExit) as stop:
            main([a.format(**names) for a in arguments])
        assert stop.value.code == 2
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert sentence in said
        assert not (tmp_path / "new").exists()

    @pytest.mark.more
    @pytest.mark.parametrize("goal", ["vector", "image"])
    def test_a_run_from_images_is_filmed_and_replayed(self, goal, image_folder, tmp_path):
        run = str(tmp_path / "run")
        asked = ["--updates", "1", "--set", "hidden=8", "batch_size=4", "--eval-episodes", "1"]
        main(["train", str(image_folder), "--goal", goal, "--out", run, *asked])
        film, page = tmp_path / "film.gif", tmp_path / "page.html"
        main(["eval", run, "--episodes", "1", "--video", str(film), "--video-episodes", "1"])
        main(["play", run, "--out", str(page), "--episodes", "2"])
        with Image.open(film) as frames:
            assert frames.n_frames == 51
        assert '"kind":"recorded"' in page.read_text()
