"""Robot logs: every format gives the same dataset, and columns are chosen by the same words."""

import json
import sys

import numcodecs
import numpy as np
import pytest

import merlin.runtime
from helpers.format_data import assert_same
from helpers.log_data import (
    FORMS,
    LENGTHS,
    columns,
    flat,
    recordings,
    write_csv,
    write_log,
    write_zarr_array,
)
from helpers.refusals import refuse
from merlin.cli import main
from merlin.data import Dataset, Episode, load
from merlin.data.conversion import action_range
from merlin.data.formats import is_data
from merlin.data.quality import action_kind, findings
from merlin.data.timestamps import odd_clocks
from merlin.errors import MerlinError

FEW = [
    "--algo",
    "merlin",
    "--updates",
    "4",
    "--set",
    "hidden=16",
    "batch_size=16",
    "--log-every",
    "2",
]
ENDS = np.cumsum(LENGTHS)


@pytest.mark.parametrize("form", FORMS)
def test_every_format_gives_the_same_dataset(rng, tmp_path, monkeypatch, form):
    path, content, said = write_log(tmp_path, form, rng)
    data = load(path, **said)
    state = content["state"]
    if form == "robomimic":  # its columns are in the order of their names
        state = state[:, [3, 0, 1, 2]]
    np.testing.assert_array_equal(data.observations, state)
    np.testing.assert_array_equal(data.achieved_goals, state)
    np.testing.assert_array_equal(data.starts, [0, *ENDS])
    # The last action of an episode leads to a state that was not recorded.
    actions = np.delete(content["action"], ENDS - 1, axis=0)
    np.testing.assert_array_equal(data.actions, actions)
    np.testing.assert_array_equal(data.action_low, actions.min(0))
    np.testing.assert_array_equal(data.action_high, actions.max(0))
    assert is_data(str(path))
    monkeypatch.chdir("/")
    assert load(data.source).fingerprint() == data.fingerprint()
    assert load(data.source).provenance == data.provenance
    assert data.provenance["read_from"] == data.source


@pytest.mark.parametrize("form", FORMS)
def test_what_a_log_says_of_itself_is_kept(rng, tmp_path, form):
    path, _, said = write_log(tmp_path, form, rng)
    log = load(path, **said).provenance["log"]
    known = {
        "lerobot-v3": {"rate": 10.0, "robot": "arm", "cameras_not_read": ["top"]},
        "lerobot-v21": {
            "rate": 10.0,
            "tasks": ["Reach."],
            "state_names": ["x", "y", "angle", "grip"],
        },
        "zarr": {"rate": 10.0, "units": "mm"},
        "robomimic": {"rate": 10.0, "actions": "delta", "robosuite_environment": "Lift"},
        "npy": {"state": "data[0:4]", "action": "data[4:6]"},
    }
    assert log.items() >= known.get(form, {"format": log["format"]}).items()
    assert "clocks" not in log


@pytest.mark.parametrize("form", FORMS)
def test_what_was_said_survives_a_conversion(rng, tmp_path, call, form):
    path, _, said = write_log(tmp_path, form, rng)
    flags = [text for key, value in said.items() for text in (f"--{key}", value)]
    new = tmp_path / "converted"
    call("convert", path, new, "--phi", "1:3", *flags, "--about", "rate=20", "units=m")
    data = load(new)
    assert_same(data, load(path, phi="1:3", **said))
    assert data.phi == (1, 2)
    assert data.provenance["log"].items() >= {"rate": 20.0, "units": "m"}.items()


@pytest.mark.parametrize(
    ("state", "taken"),
    [
        ("state", [0, 1, 2, 3]),
        ("state_1", [1]),
        ("state_2,state_0", [2, 0]),
        ("1:3", [1, 2]),
        ("3,0", [3, 0]),
        ("state,0", [0, 1, 2, 3, 0]),
    ],
)
def test_columns_are_named_or_counted(rng, tmp_path, state, taken):
    content = columns(rng)
    write_csv(tmp_path / "log.csv", flat(content), ";")
    data = load(tmp_path / "log.csv", state=state, action="action_1")
    np.testing.assert_array_equal(data.observations, content["state"][:, taken])
    np.testing.assert_array_equal(data.actions[:, 0], np.delete(content["action"][:, 1], ENDS - 1))
    assert load(data.source).fingerprint() == data.fingerprint()


@pytest.mark.parametrize(
    ("phi", "kept", "indices"),
    [
        ("angle,x", ("state", [2, 0]), (2, 0)),
        ("1:3", ("state", [1, 2]), (1, 2)),
        ([3], ("state", [3]), (3,)),
        ("observation.state[0:2]", ("state", [0, 1]), (0, 1)),
        ("action", ("action", [0, 1]), None),
        ("action[1]", ("action", [1]), None),
    ],
)
def test_goals_are_dimensions_of_the_state_or_another_column(rng, tmp_path, phi, kept, indices):
    path, content, _ = write_log(tmp_path, "lerobot-v21", rng)
    data = load(path, phi=phi)
    np.testing.assert_array_equal(data.achieved_goals, content[kept[0]][:, kept[1]])
    assert data.phi == indices
    assert load(data.source).phi == indices


def test_images_are_a_state_of_their_own(rng, tmp_path):
    path, content, _ = write_log(tmp_path, "zarr", rng)
    images = rng.integers(0, 256, (sum(LENGTHS), 6, 5, 3), dtype=np.uint8)
    write_zarr_array(path / "data" / "img", images, (4, 6, 5, 3), numcodecs.Zlib())
    data = load(path, state="img", phi="state")
    assert data.has_images
    np.testing.assert_array_equal(data.observations, images)
    np.testing.assert_array_equal(data.achieved_goals, content["state"])
    for said in ({}, {"phi": "0:2"}):
        with pytest.raises(MerlinError, match="name the column"):
            load(path, state="img", **said)
    with pytest.raises(MerlinError, match="an image cannot be joined"):
        load(path, state="img,state", phi="state")


def test_a_list_of_files_in_an_order_of_its_own(rng, tmp_path):
    path, content, said = write_log(tmp_path, "npy", rng)
    names = sorted(file.name for file in path.iterdir())
    (path / "list.txt").write_text("\n".join([names[2], "", names[0]]))
    data = load(path / "list.txt", **said)
    assert data.lengths.tolist() == [LENGTHS[2], LENGTHS[0]]
    np.testing.assert_array_equal(data.observations[: LENGTHS[2]], content["state"][ENDS[1] :])


@pytest.mark.parametrize(
    ("form", "arguments", "said"),
    [
        ("csv", "--state nope", "--state nope: {path} has no such column; "),
        ("csv", "--state timestmp", "did you mean 'timestamp'?"),
        ("csv", "--state 3:99", "--state 3:99: {path} has columns 0 to 6"),
        ("csv", "--episode timestampp", "has no column of numbers timestampp"),
        ("zarr", "--phi 7", "--phi 7: {path} has states of only 4 numbers"),
        ("zarr", "--phi nothing", "--phi nothing: {path} has no such column"),
        ("zarr", "--state state[2:9]", "has no such column"),
        ("zarr", "--episode state", "--episode: "),
        ("npy", "", "choose another with --state; it has data"),
        ("npz", "--state note", "has no such column"),
        ("lerobot-v3", "--state x,y", "has no such column"),
        ("lerobot-v3", "--episode nope", "has no column nope"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_said(rng, tmp_path, capsys, form, arguments, said):
    path, _, _ = write_log(tmp_path, form, rng)
    assert said.format(path=path) in refuse(["info", str(path), *arguments.split()], capsys)


def test_logs_are_not_written(point_folder, tmp_path, capsys):
    said = refuse(["convert", str(point_folder), str(tmp_path / "log.csv")], capsys)
    assert "log.csv: this format cannot be written; name a folder" in said
    assert list(tmp_path.iterdir()) == []


def test_columns_are_for_logs_alone(point_folder, capsys):
    assert "--state: is for robot logs" in refuse(
        ["info", str(point_folder), "--state", "x"], capsys
    )
    refused = refuse(["train", "PointReach", "--action", "x", "--out", "nowhere"], capsys)
    assert "--action: PointReach is a task, whose data has its own columns" in refused


TABLE = "episode,x,a\n" + "0,1,2\n" * 5
NAMED = ["--state", "x", "--action", "a"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("0,,2", "x in line 7 is empty, not a number; repair or drop the row"),
        ("0,abc,2", "x in line 7 is 'abc', not a number"),
        ("0,1", "a in line 7 is empty"),
    ],
)
def test_the_line_of_a_table_that_lacks_a_number_is_named(tmp_path, capsys, row, said):
    path = tmp_path / "log.csv"
    path.write_text(f"{TABLE}{row}\n0,1,2\n")
    assert f"{path}: {said}" in refuse(["info", str(path), *NAMED], capsys)


def test_tables_with_tabs_may_be_named_so(tmp_path, call):
    (tmp_path / "log.tsv").write_text(TABLE.replace(",", "\t"))
    assert "1 episodes of 5 states" in call("info", tmp_path / "log.tsv", *NAMED).out


def test_columns_of_a_file_that_is_missing_or_unknown_do_not_hide_that(tmp_path, capsys):
    assert "log.cvs: no such dataset" in refuse(["info", str(tmp_path / "log.cvs"), *NAMED], capsys)
    (tmp_path / "log.dat").write_text(TABLE)
    said = refuse(["info", str(tmp_path / "log.dat"), *NAMED], capsys)
    assert "log.dat: is a file, not a dataset folder, and of no known format" in said


@pytest.mark.parametrize("asked", [[], ["--state", "state"]])
@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((9, 4), "state has the shape (9, 3) in 0.npz and (9, 4) in 1.npz"),
        ((8, 3), "state has 8 rows in 1.npz, others 9"),
    ],
)
def test_arrays_that_differ_among_episodes_are_named(tmp_path, capsys, asked, shape, said):
    others = {"action": np.zeros((9, 2)), "reward": np.zeros(9)}
    np.savez(tmp_path / "0.npz", state=np.zeros((9, 3)), **others)
    np.savez(tmp_path / "1.npz", state=np.zeros(shape), **others)
    assert f"{tmp_path}: {said}" in refuse(["info", str(tmp_path), *asked], capsys)


@pytest.mark.parametrize("form", ["lerobot-v3", "parquet", "zarr"])
def test_a_missing_package_is_said_in_one_sentence(rng, tmp_path, monkeypatch, form):
    path, _, _ = write_log(tmp_path, form, rng)
    for name in [n for n in sys.modules if n.split(".")[0] in ("pyarrow", "numcodecs")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("pyarrow", "numcodecs"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MerlinError, match=r"not installed; .*pip install 'merlin-rl\[formats\]'"):
        load(path)


def test_a_table_whose_episodes_are_mixed_up_is_refused(rng, tmp_path):
    content = columns(rng)
    content["episode_index"] = np.arange(len(content["state"])) % 3
    write_csv(tmp_path / "log.csv", flat(content))
    with pytest.raises(MerlinError, match="the rows of episode 0 are not together; sort"):
        load(tmp_path / "log.csv")


# What looks wrong


def walk(rng, steps=400):
    states = np.cumsum(rng.normal(size=(steps, 3)), 0)
    return Episode(states, np.diff(states, axis=0)[:, :2], states)


def test_findings_name_what_is_wrong_and_are_silent_else(rng):
    bounds = {"action_low": -9.0, "action_high": 9.0}
    good = [walk(rng) for _ in range(3)]
    assert findings(Dataset.from_episodes(good, **bounds)) == []
    states = good[1].observations.copy()
    states[120:, 1] += 400.0
    odd = [good[0], good[1]._replace(observations=states), good[2]]
    odd = [e._replace(observations=np.c_[e.observations, np.ones(400)]) for e in odd]
    odd = [e._replace(actions=np.clip(e.actions, -9, 1.0)) for e in odd]
    constant, jump, *clipped = findings(Dataset.from_episodes(odd, **bounds))
    assert constant == "observations: 1 of 4 dimensions never change (3)"
    assert "1 jumps by more than half its range in 1 steps, first at step 119 of episode 1" in jump
    assert len(clipped) == 2
    assert "0 is at 1 in 1" in clipped[0]


def test_actions_look_like_targets_or_like_changes(rng):
    bounds = {"action_low": -999.0, "action_high": 999.0}
    changes = [walk(rng) for _ in range(3)]
    assert action_kind(Dataset.from_episodes(changes, **bounds)) == "delta"
    targets = [e._replace(actions=e.observations[1:, :2]) for e in changes]
    assert action_kind(Dataset.from_episodes(targets, **bounds)) == "absolute"
    noise = [e._replace(actions=rng.normal(size=(399, 2))) for e in changes]
    assert action_kind(Dataset.from_episodes(noise, **bounds)) is None


def test_odd_clocks(rng):
    ends = np.array([50, 100])
    even = np.tile(np.arange(50) / 10, 2)
    assert odd_clocks({"t": even, "camera_time": even + 7.0}, ends, 10.0) == []
    late, back = even.copy(), even.copy()
    late[30:50] += 0.4
    back[10] -= 0.5
    assert odd_clocks({"t": late}, ends, 10.0) == [
        "t steps by 0.1, but unevenly in 1 of 98 steps (the longest: 0.5)"
    ]
    assert "runs backwards in 1 of 98 steps" in odd_clocks({"t": back}, ends, None)[0]
    assert odd_clocks({"t": even}, ends, 30.0) == ["t steps by 0.1, but the log says 30 Hz"]
    (drift,) = odd_clocks({"t": even, "u": even * 1.02}, ends, None)
    assert drift == "u and t drift apart by 0.098 in episode 0"
    assert odd_clocks({"t": even * np.nan}, ends, None) == [
        "t does not hold one finite time per row"
    ]


def test_info_prints_what_looks_odd_and_writes_a_page(rng, tmp_path, call, capsys):
    content = columns(rng, (60, 60))
    content["timestamp"][:60] = np.arange(60) / 10
    content["timestamp"][60:] = np.arange(60) / 10 * 3
    content["state"][:, 1] = 5.0
    content["<b>bold</b>"] = content["state"][:, 0]
    write_csv(tmp_path / "log.csv", flat(content))
    page = tmp_path / "pages" / "log.html"
    asked = ["info", str(tmp_path / "log.csv"), "--state", "state,<b>bold</b>", "--html", str(page)]
    said = call(*asked).out
    for text in (said, page.read_text()):
        assert "1 of 5 dimensions never change (1 (state_1))" in text
        assert "timestamp steps by" in text
    assert "4 <b>bold</b>" in said
    assert "<b>" not in page.read_text()
    assert "http://" not in page.read_text().replace("http-equiv", "")
    assert "cannot be written" in refuse([*asked[:-1], str(page / "x.html")], capsys)


# The recordings beside the project


@pytest.mark.parametrize(
    ("name", "sizes", "arguments"),
    [
        ("pusht", (206, 25650, 5, 2, 3), ["--phi", "2:5"]),
        ("so101-lerobot-v3", (4, 1492, 6, 6, 1), ["--phi", "gripper.pos"]),
        ("g1-lerobot-v21", (2, 872, 26, 26, 26), []),
    ],
)
def test_real_recordings_train_and_act(tmp_path, call, name, sizes, arguments):
    home = recordings()
    if home is None:
        pytest.skip("the recordings are not here")
    path, run = str(home / name), tmp_path / "run"
    about = json.loads(call("info", path, *arguments, "--json").out.splitlines()[-1])
    dims = about["observation_shape"][0], about["action_dim"], about["goal_dim"]
    assert (about["episodes"], about["states"], *dims) == sizes
    assert about["actions_look"] == "absolute"
    call("train", path, *arguments, "--algo", "merlin", *FEW, "--out", run)
    data = load(path, **({"phi": arguments[1]} if arguments else {}))
    policy = merlin.runtime.load(run)
    action = policy(data.observations[0], data.achieved_goals[5])
    assert (data.action_low - 1e-3 <= action).all()
    assert (action <= data.action_high + 1e-3).all()
    call("train", "--out", run, "--resume", "--updates", "6")


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 1000])
def test_the_range_of_actions_is_that_of_every_row(rng, rows):
    actions = rng.normal(size=(rows, 3)).astype(np.float32)
    low, high = action_range(actions)
    alone = np.float32(rows == 1)  # a constant gets one unit on either side
    assert np.allclose([low + alone, high - alone], [actions.min(0), actions.max(0)], atol=1e-6)
    actions[rows // 2, 1] = np.inf  # is left for validation to tell of
    low, high = action_range(actions)
    assert np.isfinite([low, high]).all()


def test_text_page_and_json_name_the_option_for_a_camera(rng, tmp_path, capsys):
    path, _, _ = write_log(tmp_path, "lerobot-v3", rng)
    info = json.loads((path / "meta" / "info.json").read_text())
    info["features"] = {"observation.images.top": {"dtype": "video", "shape": [8, 8, 3]}}
    (path / "meta" / "info.json").write_text(json.dumps(info))
    main(["info", str(path), "--html", str(tmp_path / "page.html")])
    main(["info", str(path), "--json"])
    written = (tmp_path / "page.html").read_text(), *capsys.readouterr().out.split('{"path"')
    assert all("(top); name a video with --state to learn from it" in text for text in written)
