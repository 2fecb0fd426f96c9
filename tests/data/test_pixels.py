"""Images: how they are made, read and learned from."""

import os
import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import merlin
from helpers.pixel_data import POINT, SIZE, frames_of
from merlin.data.images import Images, Selection, Stream, ahead, image_moments, pieces, shift
from merlin.data.rendering import with_images
from merlin.data.spec import make_spec
from merlin.envs.batch import LocalBatch, ParallelBatch, VectorBatch
from merlin.envs.point import film
from merlin.envs.registry import find
from merlin.errors import MerlinError
from merlin.learners import Merlin
from merlin.nets.cnn import Cnn, Conv, ImageNet, cnn_outputs, make_net, pixel_normaliser
from merlin.nets.layers import MLP
from merlin.types import Moments


class TestNetworks:
    def test_sizes_are_those_of_the_paper(self):
        assert cnn_outputs((48, 48, 3)) == 1600
        assert cnn_outputs((84, 84, 3)) == 6400
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
        pixels = pixel_normaliser(Moments(np.zeros((SIZE, SIZE, 3), np.float32), np.array([255.0])))
        x = jnp.concatenate([pixels(jnp.asarray(i)) for i in (one, other)] + [numbers])
        seen = [net.cnn(jnp.asarray(i, jnp.float32) / 255) for i in (one, other)]
        np.testing.assert_allclose(net(x), net.head(jnp.concatenate([*seen, numbers])), atol=1e-6)

    def test_what_never_changes_is_nothing_to_the_network(self, rng):
        frames = np.full((40, SIZE, SIZE, 3), 200, np.uint8)
        frames[:, 3, 4] = rng.integers(0, 256, (40, 3))
        pixels = pixel_normaliser(image_moments(frames))
        seen = np.stack([pixels(jnp.asarray(f)) for f in frames]).reshape(frames.shape)
        assert seen.std() == pytest.approx(1, abs=0.01)
        seen[:, 3, 4] = 0
        np.testing.assert_allclose(seen, 0, atol=1e-4)

    def test_vectors_get_a_plain_mlp(self, point_states):
        spec = make_spec(point_states, Merlin().sampling)
        assert isinstance(make_net(spec, (8,), 2, key=jax.random.key(0)), MLP)

    def test_tiny_images_are_refused_in_one_sentence(self):
        with pytest.raises(MerlinError, match="8x8x3 are too small"):
            ImageNet((8, 8, 3), 1, 0, (8,), 4, key=jax.random.key(0))


class TestFrames:
    def test_recorded_states_are_drawn(self, point_states, images):
        assert images.observations.dtype == np.uint8
        np.testing.assert_array_equal(images.observations, film(point_states.observations, SIZE))
        np.testing.assert_array_equal(images.actions, point_states.actions)

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
        np.testing.assert_array_equal(told["goal_image"], film(goals, SIZE))

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
        goals = np.stack([batch.reset([seed])["goal_image"][0] for seed in (0, 1)])
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
        kept = parts / "part-00000000.npz"
        stamp = kept.stat().st_mtime_ns
        whole = make().whole()
        assert kept.stat().st_mtime_ns == stamp
        np.testing.assert_array_equal(whole[: len(first)], first)
        assert len(whole) == 11 * 50


def resident_file_bytes() -> int:
    """How much of the files that are mapped counts as memory of this process."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("the system does not tell")
    found = re.search(r"RssFile:\s+(\d+) kB", status.read_text())
    assert found is not None
    return int(found[1]) * 1024


class TestReading:
    def test_rows_of_several_parts(self, images, rng):
        part = rng.integers(0, 256, (5, SIZE, SIZE, 3)).astype(np.uint8)
        both = np.concatenate([frames_of(images), part])
        rows = rng.integers(0, len(both), (3, 7))
        np.testing.assert_array_equal(Images([images.observations, part]).gather(rows), both[rows])

    def test_rows_of_a_map_are_read_from_its_file(self, tmp_path, rng):
        frames = rng.integers(0, 256, (20_000, SIZE, SIZE, 3)).astype(np.uint8)
        np.save(tmp_path / "frames.npy", frames)
        mapped = np.load(tmp_path / "frames.npy", mmap_mode="r")
        rows = rng.integers(-len(frames), len(frames), (4, 500))
        before = resident_file_bytes()
        np.testing.assert_array_equal(Images([mapped]).gather(rows), frames[rows])
        some = Selection(mapped, np.arange(0, 20_000, 10))
        np.testing.assert_array_equal(some[np.array([3, -1])], frames[[30, 19_990]])
        assert resident_file_bytes() - before < frames.nbytes / 20

    def test_a_row_that_is_not_there(self, images):
        with pytest.raises(IndexError):
            Images([images.observations]).gather(np.array([len(images.observations)]))

    @pytest.mark.parametrize("change", ["cut off", "replaced", "deleted"])
    def test_a_file_that_was_changed(self, tmp_path, rng, change):
        path, frames = tmp_path / "frames.npy", np.zeros((50, SIZE, SIZE, 3), np.uint8)
        np.save(path, frames)
        images = Images([np.load(path, mmap_mode="r")])
        if change == "cut off":
            os.truncate(path, path.stat().st_size // 2)
        elif change == "deleted":
            path.unlink()
        else:
            np.save(tmp_path / "other.npy", frames)
            (tmp_path / "other.npy").replace(path)
        with pytest.raises(MerlinError, match=r"frames.npy: was changed while it was read"):
            images.gather(np.array([49]))

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
