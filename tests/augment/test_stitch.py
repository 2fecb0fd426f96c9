"""Stitching: exact neighbours, walks worked out by hand, and the data that comes of them."""

import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin.augment import Stitch, encoder
from merlin.augment.encoder import info_nce
from merlin.augment.stitch import NONE, Neighbours, threshold_for, walk
from merlin.data import Dataset, Episode
from merlin.data.dataset import validate
from merlin.errors import MerlinError

QUICK = {"encoder_hidden": (16,), "embedding_dim": 4, "encoder_epochs": 1, "encoder_batch": 32}


def episodes_of(*paths, goals=True) -> Dataset:
    """Episodes through given states; action t is (100 * episode + t, -t), so each is known."""
    return Dataset.from_episodes(
        [
            Episode(
                np.asarray(path, np.float32),
                np.array([(100 * e + t, -t) for t in range(len(path) - 1)], np.float32),
                np.asarray(path, np.float32)[:, :1],
                np.array([-7.0]) if goals else None,
            )
            for e, path in enumerate(paths)
        ],
        action_low=-100_000,
        action_high=100_000,
    )


def unit(angles) -> np.ndarray:
    angles = np.asarray(angles, np.float64)
    return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


def random_case(lengths, seed, spread=0.05):
    """Embeddings of wandering episodes: own neighbours in time are near, and so are strangers."""
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    parts = []
    for length in lengths:
        path = rng.normal(0, 0.3, 3) + np.cumsum(rng.normal(0, spread, (length, 3)), 0)
        parts.append(path + np.array([1.0, 0.0, 0.0]))
    points = np.concatenate(parts)
    return (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32), starts


# What the fast search must agree with


def brute_partner(embeddings, starts, threshold, forward, row):
    """The nearest state of another episode from which one can go on, if similar enough."""
    episode = np.searchsorted(starts, row, side="right") - 1
    points = embeddings.astype(np.float64)
    distance = np.linalg.norm(points - points[row], axis=1)
    distance[starts[episode] : starts[episode + 1]] = np.inf
    distance[starts[1:] - 1 if forward else starts[:-1]] = np.inf
    best = int(distance.argmin())
    return best if distance[best] <= math.sqrt(2 * (1 - threshold)) else NONE


def brute_walk(embeddings, starts, threshold, forward, episode):
    """One walk, state by state; None if it met an end too early."""
    of = lambda row: int(np.searchsorted(starts, row, side="right")) - 1  # noqa: E731
    length = starts[episode + 1] - starts[episode]
    row = starts[episode] if forward else starts[episode + 1] - 1
    path, left = [int(row)], NONE

    def switch(row):
        nonlocal left
        there = brute_partner(embeddings, starts, threshold, forward, row)
        if there == NONE or of(there) == left:
            return row
        left = of(row)
        return there

    while len(path) < length:
        row = path[-1]
        if forward:
            if row + 1 in starts:
                return None
            path.append(row + 1 if len(path) == length - 1 else switch(row + 1))
        else:
            row = switch(row)
            if row in starts:
                return None
            path.append(row - 1)
    return path if forward else path[::-1]


def neighbours(embeddings, starts, threshold, forward):
    among = np.ones(len(embeddings), bool)
    among[starts[1:] - 1 if forward else starts[:-1]] = False
    bound = math.sqrt(2 * (1 - threshold))
    return Neighbours(embeddings, starts, bound=bound, among=among), bound


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 12), min_size=2, max_size=12),
    seed=st.integers(0, 10_000),
    threshold=st.sampled_from([-1.0, 0.9, 0.99, 0.999, 0.9999]),
    forward=st.booleans(),
)
def test_walks_are_those_of_brute_force(lengths, seed, threshold, forward):
    embeddings, starts = random_case(lengths, seed)
    index, bound = neighbours(embeddings, starts, threshold, forward)
    everyone = np.arange(len(lengths))
    walks = walk(everyone, starts, index.within(bound), forward=forward)
    for episode in everyone:
        expected = brute_walk(embeddings, starts, threshold, forward, episode)
        assert walks.complete[episode] == (expected is not None)
        if expected is not None:
            assert walks.rows[episode, : lengths[episode]].tolist() == expected
            assert (walks.rows[episode, lengths[episode] :] == NONE).all()


@pytest.mark.parametrize("forward", [False, True])
def test_foreign_neighbours_behind_hundreds_of_own_ones(forward):
    """A state that hardly moves has its own episode around it; the stranger is still found."""
    rng = np.random.default_rng(0)
    slow = np.concatenate([rng.normal(0, 1e-4, (300, 2)), [[0.02, 0.0], [0.03, 0.0], [5.0, 5.0]]])
    points = np.concatenate([slow, slow[::-1] + np.array([0.01, 0.0])])
    embeddings = np.c_[points, np.ones(len(points))]
    embeddings = (embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)).astype(np.float32)
    starts = np.array([0, 303, 606])
    index, _ = neighbours(embeddings, starts, 0.99, forward)
    rows, distances = index.nearest(np.arange(606))
    expected = [brute_partner(embeddings, starts, 0.99, forward, row) for row in range(606)]
    assert rows.tolist() == expected
    assert np.count_nonzero(rows != NONE) > 600
    points = embeddings.astype(np.float64)
    found = rows != NONE
    np.testing.assert_allclose(
        distances[found], np.linalg.norm(points[found] - points[rows[found]], axis=1)
    )


def test_a_tighter_bound_needs_no_new_search():
    embeddings, starts = random_case([10] * 20, 3)
    index, _ = neighbours(embeddings, starts, -1.0, False)
    loose = index.nearest(np.arange(200))[0]
    assert (loose != NONE).all()
    index.bound = 0.02
    tight = index.within(0.02)(np.arange(200))
    fresh, _ = neighbours(embeddings, starts, 1 - 0.02**2 / 2, False)
    np.testing.assert_array_equal(tight, fresh.nearest(np.arange(200))[0])
    assert 0 < (tight == NONE).sum() < 200


# Two crossing episodes, by hand


# Episode 0 passes the angles 0 .. 4, episode 1 the angles 20, 21, 2.001, 23, 24: they cross at
# state 2 of each. Rows are 0 .. 4 and 5 .. 9.
CROSSING = unit([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 3.5, 1.001, 4.5, 5.0])
STARTS = np.array([0, 5, 10])


def test_two_crossing_episodes_backwards():
    index, bound = neighbours(CROSSING, STARTS, 0.9999, False)
    walks = walk(np.array([0, 1]), STARTS, index.within(bound), forward=False)
    # From row 4 back to 2, which is as good as row 7: on to what came before that, 6 and 5.
    assert walks.rows.tolist() == [[5, 6, 2, 3, 4], [0, 1, 7, 8, 9]]
    assert walks.switches().tolist() == [[False, True, False, False]] * 2
    assert walks.complete.all()
    assert walks.stitches() == 1.0


def test_two_crossing_episodes_forwards():
    index, bound = neighbours(CROSSING, STARTS, 0.9999, True)
    walks = walk(np.array([0, 1]), STARTS, index.within(bound), forward=True)
    # Arriving at row 2, the walk takes row 7 instead and goes on from there.
    assert walks.rows.tolist() == [[0, 1, 7, 8, 9], [5, 6, 2, 3, 4]]
    assert walks.stitches() == 1.0


def test_without_neighbours_walks_are_the_episodes():
    index, bound = neighbours(CROSSING, STARTS, 0.9999999, False)
    for forward in (False, True):
        walks = walk(np.array([1, 0]), STARTS, index.within(bound), forward=forward)
        assert walks.rows.tolist() == [[5, 6, 7, 8, 9], [0, 1, 2, 3, 4]]
        assert walks.stitches() == 0.0


def test_meeting_a_first_state_early_ends_a_walk():
    # The last state of episode 0 is as good as the second one of episode 1.
    embeddings = unit([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 2.001, 4.0, 4.5, 5.0])
    index, bound = neighbours(embeddings, STARTS, 0.9999, False)
    walks = walk(np.array([0, 1]), STARTS, index.within(bound), forward=False)
    assert walks.complete.tolist() == [False, True]


def test_episodes_side_by_side_are_not_swapped_at_every_step():
    embeddings = unit(np.concatenate([np.arange(10) / 10, np.arange(10) / 10 + 0.001]))
    starts = np.array([0, 10, 20])
    for forward in (False, True):
        index, bound = neighbours(embeddings, starts, 0.9999, forward)
        walks = walk(np.array([0, 1]), starts, index.within(bound), forward=forward)
        assert walks.switches().sum(1).tolist() == [1, 1]


# The encoder


def test_info_nce_by_hand():
    """Two orthogonal pairs at temperature 0.5: each row is softmax of (2, 0) at its own place."""
    eye = jnp.eye(2, dtype=jnp.float32)
    np.testing.assert_allclose(info_nce(eye, eye, 0.5), math.log(1 + math.exp(-2)), rtol=1e-6)
    swapped = info_nce(eye, eye[::-1], 0.5)
    np.testing.assert_allclose(swapped, math.log(1 + math.exp(2)), rtol=1e-6)


def corridors() -> Dataset:
    """Walks to and fro in one of two corridors that run 0.05 apart, with a wall between."""
    rng = np.random.default_rng(1)
    paths = []
    for episode in range(80):
        x = np.clip(rng.uniform(-3, 3) + np.cumsum(rng.uniform(-1, 1, 30)), -3, 3)
        paths.append(np.stack([x, np.full(30, 0.05 * (episode % 2))], 1))
    return episodes_of(*paths)


def test_the_encoder_sees_walls_that_space_does_not():
    data = corridors()
    stitch = Stitch(encoder_hidden=(64, 64), encoder_epochs=40, encoder_learning_rate=3e-3)
    embeddings, loss = stitch.embed(data, seed=0)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1.0, rtol=1e-5)
    assert loss < math.log(256) - 1.0
    side = data.observations[:, 1] > 0
    place = np.round(data.observations[:, 0], 1)
    beside = [
        embeddings[side & (place == p)].mean(0) @ embeddings[~side & (place == p)].mean(0)
        for p in (-2.0, 0.0, 2.0)
    ]
    assert max(beside) < 0.9


# The whole


@pytest.mark.parametrize("forward", [False, True])
def test_stitched_data_is_recorded_data_in_another_order(forward):
    data = corridors()
    stitch = Stitch(threshold=0.99, forward=forward, trajectories=50, **QUICK)
    made = stitch(data, seed=3)
    new = validate(made.dataset)
    assert len(new) == made.report["trajectories"] == 50
    assert made.report["stitches"] > 0.5
    assert new.task == data.task
    switched = 0
    for e in range(len(new)):
        episode = new.episode(e)
        assert len(episode.observations) == 30
        assert episode.desired_goal is None
        for t, action in enumerate(episode.actions):
            # The action says where it was recorded; its state must be the one from there.
            origin, step = int(action[0]) // 100, -int(action[1])
            recorded = data.episode(origin)
            np.testing.assert_array_equal(episode.observations[t], recorded.observations[step])
            following = recorded.observations[step + 1]
            switched += not np.array_equal(episode.observations[t + 1], following)
    # Of the switches only those between equal states (at the corridor's ends) cannot be seen.
    assert 0 < switched <= round(made.report["stitches"] * 50)


def test_walks_are_as_long_as_the_episode_they_begin_in(rng):
    paths = [rng.normal(size=(length, 3)) for length in (2, 3, 9, 30)]
    new = Stitch(threshold=0.5, trajectories=40, **QUICK)(episodes_of(*paths), seed=0).dataset
    assert set(new.lengths) <= {2, 3, 9, 30}
    ends = {tuple(path[-1].astype(np.float32)) for path in paths}
    assert {tuple(new.episode(e).observations[-1]) for e in range(len(new))} <= ends


def test_the_seed_decides():
    data, stitch = corridors(), Stitch(threshold=0.99, trajectories=20, **QUICK)
    one, same, other = (stitch(data, seed=seed) for seed in (1, 1, 2))
    assert one.dataset.fingerprint() == same.dataset.fingerprint()
    assert one.report == same.report
    assert one.dataset.fingerprint() != other.dataset.fingerprint()


def test_as_many_as_there_are_unless_asked():
    data = corridors()
    assert len(Stitch(threshold=0.9999, **QUICK)(data, seed=0).dataset) == len(data)


@pytest.mark.parametrize("forward", [False, True])
def test_auto_gives_two_and_a_half_stitches(forward):
    lengths = [40] * 200
    embeddings, starts = random_case(lengths, 5)
    data = episodes_of(*np.zeros((200, 40, 2)))
    stitch = Stitch(threshold="auto", forward=forward, trajectories=2000)
    walks, report = stitch.stitch(data, embeddings, seed=0)
    assert report["stitches"] == walks.stitches()
    assert report["stitches"] == pytest.approx(2.5, abs=0.3)
    assert 0.9 < report["threshold"] < 1.0
    index, _ = neighbours(embeddings, starts, -1.0, forward)
    more = threshold_for(6.0, index, starts, np.arange(200), forward=forward)
    assert more < report["threshold"]


def test_too_few_full_walks_are_said_so():
    # Every last state is as good as the second state of the other episode.
    embeddings = unit([0.0, 5.001, 1.0, 2.0, 3.0, 2.5, 2.999, 4.0, 4.5, 5.0])
    data = episodes_of(np.zeros((5, 2)), np.zeros((5, 2)))
    message = "of 100 walks 100 reached .* too early and 0 never switched; set threshold=auto"
    with pytest.raises(MerlinError, match=message):
        Stitch(threshold=0.9999).stitch(data, embeddings, seed=0)


def test_copies_are_refused_and_counted():
    """Episodes 0 and 1 meet in their middles; the walk from episode 2 is a copy of it."""
    meeting = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 3.5, 1.001, 4.5, 5.0]
    embeddings = unit([*meeting, 2.2, 2.4, 2.6, 2.8, 3.2])
    data = episodes_of(*np.zeros((3, 5, 2)))
    how = {"threshold": 0.9999, "trajectories": 30}
    walks, report = Stitch(**how).stitch(data, embeddings, seed=0)
    assert walks.switches().any(1).all()
    assert report["copies_refused"] == pytest.approx(1 / 3)
    assert report["without_stitches"] == 0.0
    _, report = Stitch(copies=True, **how).stitch(data, embeddings, seed=0)
    assert report["copies_refused"] == 0.0
    assert report["without_stitches"] == pytest.approx(1 / 3)


def test_fewer_than_wanted_are_kept_and_said_so(capsys):
    # Of the two walks, that from episode 0 always meets a first state, that from 1 never.
    embeddings = unit([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 2.001, 4.0, 4.5, 5.0])
    data = episodes_of(np.zeros((5, 2)), np.zeros((5, 2)))
    stitch = Stitch(threshold=0.9999, trajectories=40, attempts=1)
    walks, report = stitch.stitch(data, embeddings, seed=0, quiet=False)
    assert 0 < report["trajectories"] == len(walks.rows) < report["wanted"] == 40
    assert report["dropped"] == 1 - len(walks.rows) / 40
    assert f"only {len(walks.rows)} of 40 new trajectories" in capsys.readouterr().err


def test_one_episode_cannot_be_stitched():
    data = episodes_of(np.zeros((5, 2)))
    with pytest.raises(MerlinError, match="at least two episodes"):
        Stitch(**QUICK)(data, seed=0)


def test_images_that_are_too_small_are_refused():
    images = replace(corridors(), observations=np.zeros((80 * 30, 4, 4, 3), np.uint8))
    with pytest.raises(MerlinError, match="4x4x3 are too small"):
        Stitch()(images, seed=0)


@pytest.mark.parametrize(
    ("values", "fragment"),
    [
        ({"threshold": 1.0}, "threshold: 1.0"),
        ({"threshold": "often"}, "or auto"),
        ({"trajectories": 0}, "start at 1"),
        ({"encoder_hidden": ()}, "start at 1"),
        ({"encoder_temperature": 0.0}, "encoder_temperature"),
        ({"encoder_learning_rate": math.nan}, "encoder_learning_rate"),
    ],
)
def test_impossible_settings_are_refused(values, fragment):
    with pytest.raises(MerlinError, match=fragment):
        Stitch(**values)


def test_embedding_in_pieces_is_embedding_at_once(monkeypatch):
    data, stitch = corridors(), Stitch(**QUICK)
    whole, _ = stitch.embed(data, seed=0)
    monkeypatch.setattr(encoder, "ROWS_PER_CALL", 999)
    pieces, _ = stitch.embed(data, seed=0)
    np.testing.assert_allclose(pieces, whole, atol=1e-6)
