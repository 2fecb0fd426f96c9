"""Dataset and its folder: nothing is lost, copied or half written."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

import merlin
from helpers.format_data import make_episode
from merlin.data import Dataset, Episode, load, save
from merlin.data.dataset import validate
from merlin.data.formats import native
from merlin.errors import MerlinError

LENGTHS = (2, 7, 3)


def make_dataset(rng, *, image=False, goal=True, **about):
    episodes = [make_episode(rng, n, image=image, goal=goal) for n in LENGTHS]
    return Dataset.from_episodes(episodes, **about), episodes


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("image", [False, True])
@pytest.mark.parametrize("goal", [False, True])
def test_what_is_saved_is_loaded(rng, tmp_path, image, goal):
    data, _ = make_dataset(
        rng,
        image=image,
        goal=goal,
        action_low=np.array([-1.0, -2.0]),
        action_high=3.0,
        task="PointReach",
        variant="random",
        provenance={"robot": "arm 7"},
    )
    found = load(save(data, tmp_path / "d"))
    assert found.arrays().keys() == data.arrays().keys()
    assert (found.desired_goals is None) == (not goal)
    for name, array in data.arrays().items():
        assert found.arrays()[name].dtype == array.dtype, name
        np.testing.assert_array_equal(found.arrays()[name], array, err_msg=name)
    np.testing.assert_array_equal(found.action_low, [-1, -2])
    np.testing.assert_array_equal(found.action_high, [3, 3])
    assert (found.task, found.variant) == ("PointReach", "random")
    assert found.provenance == {"robot": "arm 7"}
    assert found.source == str(tmp_path / "d")
    assert found.fingerprint() == data.fingerprint()


def test_observations_of_other_floats_become_float32(rng):
    episode = make_episode(rng, 4)
    data = Dataset.from_episodes([episode._replace(observations=np.arange(16.0).reshape(4, 4))])
    assert data.observations.dtype == np.float32
    image = make_dataset(rng, image=True)[0]
    assert image.observations.dtype == np.uint8


def test_loaded_arrays_are_read_only_maps_of_the_files(rng, tmp_path):
    data = load(save(make_dataset(rng)[0], tmp_path / "d"))
    for name, array in data.arrays().items():
        assert isinstance(array, np.memmap), name
        assert str(array.filename) == str(tmp_path / "d" / f"{name}.npy")
        assert not array.flags.writeable
    # An episode is a view, not a copy.
    assert np.shares_memory(data.episode(1).observations, data.observations)


def test_episodes_come_back_as_they_went_in(rng):
    data, episodes = make_dataset(rng)
    assert len(data) == len(LENGTHS)
    np.testing.assert_array_equal(data.lengths, LENGTHS)
    np.testing.assert_array_equal(data.starts, [0, 2, 9, 12])
    for index, episode in enumerate(episodes):
        for found, expected in zip(data.episode(index), episode, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_dataset_prints_a_summary(rng):
    data = make_dataset(rng, task="PointReach", variant="random")[0]
    assert str(data) == (
        "Dataset(task='PointReach', variant='random', episodes=3, states=12, observation=4, "
        "action=2, goal=3, desired_goals=True)"
    )
    images = make_dataset(rng, image=True, goal=False)[0]
    assert repr(images) == (
        "Dataset(episodes=3, states=12, observation=5x4x3, action=2, goal=3, desired_goals=False)"
    )


# What is refused where episodes are joined


def with_last_action(episode):
    return episode._replace(actions=np.vstack([episode.actions, episode.actions[-1:]]))


def with_value(episode, field, index, value):
    array = getattr(episode, field).copy()
    array[index] = value
    return episode._replace(**{field: array})


REFUSED = {
    "as many actions as states": (
        with_last_action,
        'episode 1 has 7 states and 7 actions: drop the last action, or pass final_action="drop"',
    ),
    "too few actions": (
        lambda e: e._replace(actions=e.actions[:3]),
        "episode 1 has 7 states and 3 actions: give 6 actions",
    ),
    "one state": (
        lambda e: Episode(*(part[:1] for part in e[:3]), e.desired_goal),
        r"episode 1 has 1 state\(s\) and so no action; drop it",
    ),
    "action beyond the bounds": (
        lambda e: with_value(e, "actions", (2, 1), 7.5),
        r"actions row 3 \(step 2 of episode 1\) is 7.5 in dimension 1, outside \[-1, 1\]; rescale",
    ),
    "NaN": (
        lambda e: with_value(e, "observations", (4, 0), np.nan),
        r"observations row 6 \(step 4 of episode 1\) is nan in dimension 0",
    ),
    "too large for float32": (
        lambda e: e._replace(achieved_goals=e.achieved_goals.astype(np.float64) * 1e300),
        r"achieved_goals row 2 \(step 0 of episode 1\) is -?inf",
    ),
    "actions in one dimension": (
        lambda e: e._replace(actions=e.actions[:, 0]),
        r"episode 1: actions: the shape is \(6,\); give one row per action",
    ),
    "observations in one dimension": (
        lambda e: e._replace(observations=e.observations[:, 0]),
        r"episode 1: observations: the shape is \(7,\); give one row per state.*images have 4",
    ),
    "a goal per state": (
        lambda e: e._replace(desired_goal=e.achieved_goals),
        r"episode 1: desired_goal: the shape is \(7, 3\); give one goal for the whole episode",
    ),
    "wider observations": (
        lambda e: e._replace(observations=np.hstack([e.observations, e.observations])),
        "episode 1: observations has 8 numbers per row, not the 4 of episode 0",
    ),
    "wider goal": (
        lambda e: e._replace(desired_goal=np.zeros(4)),
        "episode 1: desired_goal has 4 numbers per row, not the 3 of episode 0",
    ),
    "ragged goals": (
        lambda e: e._replace(achieved_goals=[[1.0, 2.0, 3.0]] * 6 + [[1.0]]),
        "episode 1: achieved_goals: its rows are not equally long",
    ),
    "names for actions": (
        lambda e: e._replace(actions=np.full((6, 2), "left")),
        "episode 1: actions: holds <U4, not numbers",
    ),
    "no achieved goals": (
        lambda e: e._replace(achieved_goals=None),
        "episode 1 has no achieved_goals; give the part of every state",
    ),
    "fewer achieved goals": (
        lambda e: e._replace(achieved_goals=e.achieved_goals[1:]),
        "episode 1 has 7 states and 6 achieved_goals",
    ),
    "no desired goal": (
        lambda e: e._replace(desired_goal=None),
        "episode 1 has no desired_goal but episode 0 has",
    ),
    "a dict": (lambda e: e._asdict(), "episode 1 is of the type dict; make it a merlin.Episode"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_episodes_that_cannot_be_joined_are_refused_by_number(rng, case):
    change, message = REFUSED[case]
    episodes = [make_episode(rng, n) for n in LENGTHS]
    episodes[1] = change(episodes[1])
    with pytest.raises(MerlinError, match=message) as refusal:
        Dataset.from_episodes(episodes)
    assert "\n" not in str(refusal.value)


def test_no_episodes_and_impossible_bounds_are_refused(rng):
    with pytest.raises(MerlinError, match="at least one"):
        Dataset.from_episodes([])
    with pytest.raises(MerlinError, match="action_low must be 2 finite numbers"):
        Dataset.from_episodes([make_episode(rng, 3)], action_low=[-1.0, -1.0, -1.0])


def test_the_action_at_the_last_state_is_dropped_when_asked(rng):
    episodes = [make_episode(rng, n) for n in LENGTHS]
    longer = [with_last_action(episode) for episode in episodes]
    dropped = Dataset.from_episodes(longer, final_action="drop")
    assert dropped.fingerprint() == Dataset.from_episodes(episodes).fingerprint()
    # Where there is no such action, none is taken for it.
    with pytest.raises(MerlinError, match="episode 1 has 7 states and 6 actions: leave"):
        Dataset.from_episodes([longer[0], episodes[1]], final_action="drop")
    with pytest.raises(MerlinError, match="final_action: 'cut' is not"):
        Dataset.from_episodes(longer, final_action="cut")


def test_a_dataset_made_by_hand_is_checked_before_it_is_trained_on(rng):
    data = make_dataset(rng)[0]
    beyond = replace(data, actions=data.actions + 5)
    with pytest.raises(MerlinError, match="outside"):
        validate(beyond)
    with pytest.raises(MerlinError, match=r"dataset: actions row 0 \(step 0 of episode 0\) is"):
        merlin.train(merlin.Merlin(), beyond)


@pytest.mark.parametrize("failing", ["actions", "starts"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_an_error_while_saving_leaves_nothing(rng, tmp_path, monkeypatch, failing, overwrite):
    data = make_dataset(rng)[0]
    target = tmp_path / "d"
    if overwrite:
        save(replace(data, task="PointRooms"), target)
    before = {path: path.is_dir() for path in tmp_path.rglob("*")}
    write = native._write

    def fail_at(file, array):
        write(file, array)
        if file.stem == failing:
            raise OSError("disk full")

    monkeypatch.setattr(native, "_write", fail_at)
    with pytest.raises(OSError, match="disk full"):
        save(data, target, overwrite=overwrite)
    assert {path: path.is_dir() for path in tmp_path.rglob("*")} == before
    if overwrite:
        assert load(target).task == "PointRooms"


def test_overwriting_must_be_asked_for(rng, tmp_path):
    first, second = make_dataset(rng)[0], make_dataset(rng, goal=False)[0]
    save(first, tmp_path / "d")
    with pytest.raises(MerlinError, match="already exists"):
        save(second, tmp_path / "d")
    assert load(tmp_path / "d").fingerprint() == first.fingerprint()
    (tmp_path / "d" / ".merlin-0123.partial").touch()  # left behind by a kill
    save(second, tmp_path / "d", overwrite=True)
    # No file of the first remains, nor anything beside the folder.
    assert load(tmp_path / "d").fingerprint() == second.fingerprint()
    assert not (tmp_path / "d" / "desired_goals.npy").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


@pytest.mark.parametrize(
    "field", ["observations", "actions", "achieved_goals", "desired_goals", "starts"]
)
def test_fingerprint_changes_with_every_number(rng, field):
    data = make_dataset(rng)[0]
    changed = getattr(data, field).copy()
    changed[-1] += 1
    assert replace(data, **{field: changed}).fingerprint() != data.fingerprint()
    same = replace(data, **{field: getattr(data, field).copy()}, source="elsewhere")
    assert same.fingerprint() == data.fingerprint()


def test_fingerprint_tells_shapes_apart(rng):
    data = make_dataset(rng)[0]
    reshaped = replace(data, observations=data.observations.reshape(-1, 2))
    without = replace(data, desired_goals=None)
    assert len({d.fingerprint() for d in (data, reshaped, without)}) == 3


def test_folders_are_byte_identical(rng, tmp_path):
    data = make_dataset(rng)[0]
    one, two = save(data, tmp_path / "one"), save(data, tmp_path / "two")
    assert contents(one) == contents(two)
    assert contents(save(load(one), tmp_path / "three")) == contents(one)


def test_collecting_twice_with_one_seed_is_byte_identical(tmp_path):
    folders = [
        save(merlin.collect("PointRooms", "random", episodes=3, seed=seed), tmp_path / name)
        for name, seed in (("a", 5), ("b", 5), ("c", 6))
    ]
    a, b, c = map(contents, folders)
    assert a == b
    assert a["actions.npy"] != c["actions.npy"]


def test_a_larger_collection_begins_with_the_smaller():
    few = merlin.collect("PointReach", "random", episodes=3)
    many = merlin.collect("PointReach", "random", episodes=150)
    for index in range(3):
        for one, other in zip(few.episode(index), many.episode(index), strict=True):
            np.testing.assert_array_equal(one, other)


def test_meta_lists_what_is_in_the_folder(rng, tmp_path):
    folder = save(make_dataset(rng)[0], tmp_path / "d")
    meta = json.loads((folder / "meta.json").read_text())
    assert {f"{name}.npy" for name in meta["files"]} | {"meta.json"} == set(contents(folder))
    assert (meta["episodes"], meta["states"]) == (3, 12)


def test_on_device_keeps_values_and_narrow_types(rng):
    data = make_dataset(rng)[0]
    device = data.on_device()
    for name, array in data.arrays().items():
        np.testing.assert_array_equal(getattr(device, name), array)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(device)} == {"float32", "int32"}
