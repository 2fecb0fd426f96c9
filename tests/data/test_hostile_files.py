"""Files that are broken, or meant to do harm: refused in one sentence, and nothing runs."""

import builtins
import codecs
import json
import os
import pickle
import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import numpy.testing
import pytest

from helpers.breaking import rewrite_array
from helpers.format_data import (
    BOX,
    SUFFIX,
    buffer,
    change_minari,
    episodes,
    maze,
    pickled,
    put,
    replace_by,
    saved,
    write,
)
from helpers.refusals import refuse
from merlin.data import load
from merlin.data.formats import FORMATS
from merlin.errors import MerlinError


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function, *arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


def nested(call):
    return {"o": {"deep": [(call,)]}, "u": 1, "g": 2, "ag": 3}


ATTACKS = {
    "system": lambda s: Call(os.system, f"touch {s}"),
    "eval": lambda s: Call(builtins.eval, f"open({str(s)!r}, 'w').close()"),
    "exec": lambda s: Call(builtins.exec, f"open({str(s)!r}, 'w').close()"),
    "nested": lambda s: nested(Call(os.system, f"touch {s}")),
    "Popen": lambda s: Call(subprocess.call, ["touch", str(s)]),
    "numpy.testing": lambda s: Call(numpy.testing.runstring, f"open({str(s)!r}, 'w').close()", {}),
    "objects": lambda s: {"o": np.array([Call(os.system, f"touch {s}")], dtype=object)},
    "codec": lambda s: Call(codecs.open, str(s), "w"),
    "numpy.save": lambda s: Call(np.save, str(s), np.zeros(3)),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_malicious_pickle_is_refused_and_nothing_runs(tmp_path, attack, protocol):
    sentinel = tmp_path / "sentinel"
    path = pickled(tmp_path / "buffer.pkl", ATTACKS[attack](sentinel), protocol)
    with pytest.raises(MerlinError, match=r"buffer\.pkl: ") as refusal:
        load(path)
    assert not any(tmp_path.glob("sentinel*"))
    # An array of objects is refused by its type before its content is looked at.
    assert attack == "objects" or "is not trusted, since it asks for '" in str(refusal.value)
    with path.open("rb") as file:
        pickle.load(file)  # the attack is a real one
    assert any(tmp_path.glob("sentinel*"))


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.",  # an attribute of what is allowed
        b"cnumpy\nload\n.",
        b"\x80\x02\x82\x01.",  # by its number in the registry of extensions
        b"Psomewhere\n.",  # by reference to something outside
        b"c_codecs\nencode\n(N}S'_function'\nI1\nstb.",  # changes what is allowed
        b"c_codecs\nencode\n(Vx\nVrot13\ntR.",
        b"(I1\nios\nsystem\n.",
        b"cnumpy\ndtype\n(VO8\nI00\nI01\ntR.",
        b"\x80\x02r\xff\xff\xff\x7f.",  # the object of number two thousand million
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x00.",  # bytes beyond any memory
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x00.",
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x00.",
        b"(" * 100_000 + b"t" * 100_000 + b".",
        b"I" + b"9" * 100_000 + b"\n.",
        b"",
        b"}.",
        b"]." ,
    ],
)  # fmt: skip
def test_programs_that_no_pickler_writes(tmp_path, program):
    path = tmp_path / "buffer.pkl"
    path.write_bytes(program)
    with pytest.raises(MerlinError, match=r"buffer\.pkl: "):
        load(path)


def test_a_malicious_npz_or_minari_runs_nothing_either(rng, tmp_path):
    sentinel = tmp_path / "sentinel"
    payload = np.array([Call(os.system, f"touch {sentinel}")], dtype=object)
    np.savez(tmp_path / "a.npz", observations=payload, actions=payload, terminals=payload)
    with pytest.raises(MerlinError, match=r"cannot be read as an \.npz"):
        load(tmp_path / "a.npz")
    home = Path(write(episodes(rng), tmp_path, "minari")) / "data" / "metadata.json"
    about = json.loads(home.read_text())
    del about["observation_space"]
    spec = {"id": "X-v0", "entry_point": "os:system", "kwargs": {"command": f"touch {sentinel}"}}
    home.write_text(json.dumps({**about, "env_spec": json.dumps(spec)}))
    with pytest.raises(MerlinError, match="has no observation_space"):
        load(tmp_path / "data")
    assert not sentinel.exists()


# OGBench's archives


DISCRETE = {"type": "Discrete", "dtype": "int64", "start": 0, "n": 3}
GOAL = "episode_1/observations/desired_goal"


@pytest.mark.parametrize(
    ("change", "metadata", "said"),
    [
        (put(GOAL, 9.0, 3), {}, "data: the desired goal of episode 1 changes at step 3"),
        (put(GOAL, np.nan, ...), {}, "data: desired_goals episode 1 is nan in dimension 0"),
        (put("episode_2/actions", 7.0, 4), {}, r"actions row 14 \(step 4 of episode 2\) is 7"),
        (replace_by(GOAL, np.zeros((6, 4), "f4")), {}, "has rows of shape"),
        (replace_by("episode_0/actions", np.zeros((4, 2))), {}, "episode 0 has 4 actions"),
        (replace_by("episode_0/actions", np.zeros((999, 2))), {}, "has 999 rows of float64"),
        (replace_by("episode_0/actions", np.full((5, 2), b"x")), {}, "rows of |S1"),
        (lambda file: file.pop("episode_1"), {}, "cannot be read"),
        (lambda file: None, {"action_space": json.dumps(DISCRETE)}, "not a Box of numbers"),
        (lambda file: None, {"observation_space": json.dumps(BOX)}, "cannot be read"),
        (lambda file: None, {"observation_space": "{}"}, "cannot be read"),
        (lambda file: None, {"total_episodes": 10**9}, "cannot be read"),
        (lambda file: None, {"total_episodes": 0}, "total_episodes is 0"),
        (lambda file: None, {"data_format": "arrow"}, "data_format is 'arrow'"),
    ],
)
def test_what_is_wrong_with_a_minari_dataset_is_said(rng, tmp_path, change, metadata, said):
    home = Path(write(episodes(rng), tmp_path, "minari"))
    change_minari(home, change, **metadata)
    with pytest.raises(MerlinError, match=said):
        load(home)


def spoil_bytes(rng, path):
    """Cut a file short, or turn up to three of its bits over; which file it was."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    file = files[rng.integers(len(files))]
    content = bytearray(file.read_bytes())
    if rng.random() < 0.3:
        content = content[: rng.integers(len(content))]
    else:
        for at in rng.integers(len(content), size=rng.integers(1, 4)):
            content[at] ^= 1 << int(rng.integers(8))
    file.write_bytes(content)
    return file


def spoil_array(rng, array):
    """One number that is none, or a shape or type that does not fit."""
    array = np.array(array)
    ways = [
        lambda: array[:-1],
        lambda: array[..., :-1],
        lambda: array[None],
        lambda: array[:0],
        lambda: array.astype("S4"),
        lambda: array.reshape(-1),
    ]
    if array.dtype.kind == "f" and rng.random() < 0.5:
        array[tuple(rng.integers(array.shape))] = rng.choice([np.nan, np.inf, -np.inf])
        return array
    return ways[rng.integers(len(ways))]()


def spoil_content(rng, path, form):
    """Write one of the arrays anew, spoilt, in a file that is otherwise sound."""

    def pick(names):
        return sorted(names)[rng.integers(len(names))]

    if form == "wgcsl":
        content = pickle.loads(path.read_bytes())
        key = pick(content)
        pickled(path, {**content, key: spoil_array(rng, content[key])})
    elif form == "ogbench":
        content = dict(np.load(path))
        key = pick(content)
        saved(path, {**content, key: spoil_array(rng, content[key])})
    elif form == "native":
        key = pick(["observations", "actions", "achieved_goals", "desired_goals", "starts"])
        rewrite_array(key, lambda array: spoil_array(rng, array))(path)
    else:

        def spoil(file):
            names = []
            file.visititems(
                lambda name, node: names.append(name) if hasattr(node, "shape") else None
            )
            key = pick([n for n in names if "observations" in n or "actions" in n])
            replace_by(key, spoil_array(rng, file[key][()]))(file)

        change_minari(path, spoil)


@pytest.mark.parametrize("form", FORMATS)
def test_200_broken_copies_are_refused_or_sound(rng, tmp_path, form):
    good = Path(write(episodes(rng), tmp_path, form, "good"))
    bad = tmp_path / f"bad{SUFFIX[form]}"
    refused = 0
    for seed in range(200):
        if bad.is_dir():
            shutil.rmtree(bad)
        (shutil.copytree if good.is_dir() else shutil.copy)(good, bad)
        mutation = np.random.default_rng(seed)
        spoilt = None
        if seed % 2:
            spoilt = spoil_bytes(mutation, bad)
        else:
            spoil_content(mutation, bad, form)
        try:
            found = load(bad)
        except MerlinError:
            refused += 1
            continue
        # What was turned over is a number that became another one; checksums see even that.
        assert spoilt is None or spoilt.suffix != ".npy", seed
        for name, array in found.arrays().items():
            assert np.isfinite(array).all(), (seed, name)
        assert found.on_device()
    print(f"{form}: {refused} of 200 refused")
    assert refused >= (190 if form == "native" else 120)


@pytest.mark.parametrize(
    ("key", "index", "value", "said"),
    [
        ("u", (0, 3, 1), np.nan, "actions row 3 (step 3 of episode 0) is nan in dimension 1"),
        ("o", (2, 1, 0), np.inf, "observations row 11 (step 1 of episode 2) is inf"),
        ("ag", (1, 0, 2), 1e300, "achieved_goals row 5 (step 0 of episode 1) is inf"),
        ("g", (1, slice(None), 2), np.nan, "desired_goals episode 1 is nan in dimension 2"),
        ("g", (1, 2, 0), 5.0, "the desired goal of episode 1 changes at step 2"),
    ],
)
def test_an_error_names_the_file_the_field_and_the_place(
    rng, tmp_path, capsys, key, index, value, said
):
    content = buffer(rng)
    content[key][index] = value
    path = pickled(tmp_path / "buffer.pkl", content)
    assert f"merlin: {path}: {said}" in refuse(["info", str(path)], capsys)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"terminals": np.zeros(7)}, "terminals do not mark the last step"),
        ({"terminals": np.full(7, 2.0)}, "terminals row 0 is 2.0"),
        ({"terminals": np.ones(7)}, "actions have the shape (0, 2)"),
        ({"terminals": np.eye(7)[0] + np.eye(7)[6]}, "episode 0 has 1 state(s)"),
        ({"actions": np.zeros((6, 2))}, "actions has the shape (6, 2)"),
        ({"observations": np.float32(1)}, "observations has the shape ()"),
        ({"observations": np.zeros((7, 5, 5, 3), np.uint8)}, "observations of shape (7, 5, 5, 3)"),
        ({"actions": np.array(["a"] * 7)}, "actions holds <U1"),
        ({"achieved_goals": np.zeros((3, 2))}, "achieved_goals has 3 rows, not the 7"),
    ],
)
def test_an_archive_that_does_not_fit_together(rng, tmp_path, capsys, change, said):
    path = saved(tmp_path / "maze.npz", {**maze(rng), **change})
    assert f"merlin: {path}: {said}" in refuse(["info", str(path)], capsys)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("info {new}.pkl", "{new}.pkl: no such dataset"),
        ("info {new}.npz", "{new}.npz: no such dataset"),
        ("info minari:none/such-v0", "minari:none/such-v0: no such dataset in "),
        ("info minari:../etc", "minari:../etc: is not a Minari id"),
        ("train {new}.npz --out {new}", "{new}.npz: no such dataset"),
        ("train {good} --out {new} --task FetchPush", "task FetchPush: "),
        ("train PointReach --variant random --phi 0:2 --out {new}", "--phi: PointReach"),
        ("train {good} --out {new} --set hindsight_ratio=0.5", "hindsight_ratio: 0.5"),
        ("info {good} --task FetchPush", "goal have dimensions (25, 4, 3)"),
        ("info {good} --phi 9", "--phi 9:10: {good} has states of only 5 numbers"),
        ("convert {good} {good}", "{good}: already exists"),
        ("convert {good} {new}.pkl", "{new}.pkl: this format needs desired goals"),
        ("convert {good} {good}/x.npz", "{good}/x.npz: cannot be written"),
        ("convert {good} minari:none", "minari:none: is not a Minari id"),
        ("convert {good} {new} --variant medium", "--variant: 'medium'"),
        ("convert {good} {new} --task Moon", "'Moon'"),
        (
            "convert {good} {new} --task Reacher",
            "goal have dimensions (11, 2, 2)",
        ),
        ("convert {good}", "DESTINATION"),
    ],
)
def test_commands_refuse_in_one_sentence(rng, tmp_path, capsys, arguments, said):
    names = {"good": saved(tmp_path / "good.npz", maze(rng)), "new": tmp_path / "new"}
    before = sorted(tmp_path.rglob("*"))
    assert said.format(**names) in refuse(arguments.format(**names).split(), capsys)
    assert sorted(tmp_path.rglob("*")) == before


# In use


@pytest.mark.parametrize("kind", ["external storage", "external link", "soft link", "virtual"])
def test_a_minari_file_stays_within_itself(rng, tmp_path, kind):
    """A dataset from a stranger must not show what other files on this machine hold."""
    home = Path(write(episodes(rng), tmp_path, "minari"))
    secret, other = tmp_path / "secret", tmp_path / "other.hdf5"
    secret.write_bytes(np.full(100, 0.25, np.float32).tobytes())
    with h5py.File(other, "w") as file:
        file["secret"] = np.full((5, 2), 0.25, np.float32)

    def elsewhere(file):
        shape = file["episode_0/actions"].shape
        del file["episode_0/actions"]
        if kind == "external storage":
            parts = [(str(secret), 0, h5py.h5f.UNLIMITED)]
            file.create_dataset("episode_0/actions", shape, "f4", external=parts)
        elif kind == "external link":
            file["episode_0/actions"] = h5py.ExternalLink(str(other), "secret")
        elif kind == "soft link":
            file["episode_0/actions"] = h5py.SoftLink("/episode_1/actions")
        else:
            layout = h5py.VirtualLayout(shape=shape, dtype="f4")
            layout[:] = h5py.VirtualSource(str(other), "secret", shape=shape)
            file["episode_0"].create_virtual_dataset("actions", layout)

    change_minari(home, elsewhere)
    with pytest.raises(MerlinError, match=r"is missing or a link|is kept in another file"):
        load(home)
