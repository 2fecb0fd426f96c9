"""Whatever is wrong with the input: exit code 2, one sentence, and nothing left on disk."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import safetensors.numpy

from helpers.breaking import (
    flip_last_byte,
    garble,
    nothing_in_it,
    plain_json,
    put,
    rewrite_array,
    rewrite_file,
    rewrite_meta,
    rewrite_policy,
)
from helpers.refusals import refuse
from merlin.cli import main
from merlin.errors import MerlinError
from merlin.io.files import write_json


class Case(NamedTuple):
    """How to break a copy of good input, what to call on it, and what must be said."""

    name: str
    arguments: str  # with {data}, {run} and {new} for folders
    fragment: str  # likewise
    spoil: Callable[[Path], object] = lambda folder: None


def info(name: str, spoil: Callable[[Path], None], fragment: str) -> Case:
    return Case(name, "info {data}", fragment, spoil)


META, ARRAY = "{data}/meta.json: ", "{data}/%s.npy: "
DATASETS = [
    info("no meta", lambda d: (d / "meta.json").unlink(), META + "no such file"),
    info("meta is no JSON", rewrite_file("meta.json", lambda b: b[:-9]), META + "cannot be read"),
    info("meta is not text", rewrite_file("meta.json", lambda b: b"\xff\xfe{"), META),
    info("meta is a list", rewrite_file("meta.json", lambda b: b"[]"), META + "is not a JSON"),
    info("another format", rewrite_meta(lambda m: m.update(format="x")), META + "format"),
    info("another schema", rewrite_meta(lambda m: m.update(schema=2)), META + "schema 2"),
    info("no files listed", rewrite_meta(lambda m: m.pop("files")), META + "lists no files"),
    info("a file not listed", rewrite_meta(lambda m: m["files"].pop("actions")), "actions.npy"),
    info(
        "no checksum",
        rewrite_meta(lambda m: m["files"]["actions"].pop("sha256")),
        META + "has no checksum of actions.npy",
    ),
    info("task is a number", rewrite_meta(lambda m: m.update(task=3)), META + "task"),
    info("bounds are words", rewrite_meta(lambda m: m.update(action_low="low")), "action_low"),
    info("bounds too short", rewrite_meta(lambda m: m.update(action_low=[-1])), "action_low"),
    info("bounds too large", rewrite_meta(lambda m: m.update(action_low=[10**400, 0])), "action"),
    info("changed meta", rewrite_file("meta.json", lambda b: b.replace(b"-1.0", b"-2.0", 1)),
         META + "its checksum is wrong"),
    info("deep meta", rewrite_file("meta.json", lambda b: b"[" * 5000), META + "cannot be read"),
    info("no bounds", rewrite_meta(lambda m: m.pop("action_high")), "action_high"),
    info(
        "bounds swapped",
        rewrite_meta(lambda m: m.update(action_low=[-1, 2])),
        "{data}: action_low is not below action_high in dimension 1",
    ),
    info("no array", lambda d: (d / "actions.npy").unlink(), ARRAY % "actions" + "is missing"),
    info("cut short", rewrite_file("actions.npy", lambda b: b[:-8]), ARRAY % "actions" + "has "),
    info("flipped bit", rewrite_file("observations.npy", flip_last_byte), "checksum"),
    info("no npy", garble("actions"), ARRAY % "actions" + "is not a readable .npy"),
    info(
        "nan",
        rewrite_array("observations", put(120, 1, np.nan)),
        ARRAY % "observations" + "row 120 (step 20 of episode 2) is nan in dimension 1",
    ),
    info(
        "inf",
        rewrite_array("desired_goals", put(4, 0, -np.inf)),
        ARRAY % "desired_goals" + "episode 4 is -inf in dimension 0",
    ),
    info("nan achieved", rewrite_array("achieved_goals", put(0, 0, np.nan)), "achieved_goals"),
    info(
        "action out of bounds",
        rewrite_array("actions", put(50, 1, 1.5)),
        ARRAY % "actions" + "row 50 (step 1 of episode 1) is 1.5 in dimension 1",
    ),
    info(
        "wrong dtype",
        rewrite_array("observations", lambda a: a.astype(np.float64)),
        ARRAY % "observations" + "dtype is float64",
    ),
    info("integers", rewrite_array("actions", lambda a: a.astype(np.int32)), "dtype is int32"),
    info("objects", rewrite_array("actions", lambda a: a.astype(object)), ARRAY % "actions"),
    info(
        "float starts",
        rewrite_array("starts", lambda a: a.astype(np.float64)),
        ARRAY % "starts" + "dtype",
    ),
    info(
        "three dimensions",
        rewrite_array("observations", lambda a: a[:, None]),
        ARRAY % "observations" + "shape is",
    ),
    info("no width", rewrite_array("actions", lambda a: a[:, :0]), ARRAY % "actions"),
    info(
        "too few actions",
        rewrite_array("actions", lambda a: a[:-1]),
        ARRAY % "actions" + "has 1469 rows, not the 1470",
    ),
    info("too many goals", rewrite_array("achieved_goals", lambda a: np.r_[a, a]), "3000 rows"),
    info(
        "goals of another width",
        rewrite_array("desired_goals", lambda a: a[:, :1]),
        ARRAY % "desired_goals" + "goals have 1 dimensions, achieved ones 2",
    ),
    info(
        "an episode without an action",
        rewrite_array("starts", lambda s: np.r_[s[:1], 1, s[2:]]),
        ARRAY % "starts" + "episode 0 has 1 state(s)",
    ),
    info(
        "starts that go back",
        rewrite_array("starts", lambda s: np.r_[s[:2], s[1] - 10, s[3:]]),
        ARRAY % "starts" + "episode 1",
    ),
    info(
        "starts beyond the end",
        rewrite_array("starts", lambda s: np.r_[s[:-1], s[-1] + 50]),
        ARRAY % "starts" + "spans 0 .. 1550",
    ),
    info("no episodes", nothing_in_it, "{data}/"),
    Case("no folder", "info {new}", "{new}: no such dataset; check the path."),
    Case("a run for a dataset", "info {run}", "{run}: is a run, not a dataset"),
    Case("a file", "info {data}/meta.json", "{data}/meta.json: is a file"),
    Case("training on broken data", "train {data} --out {new}", "checksum",
         rewrite_file("observations.npy", flip_last_byte)),
    Case("a task of no name", "train {data} --out {new} --updates 1", "Moon",
         rewrite_meta(lambda m: m.update(task="Moon"))),
    Case("data of another task", "train {data} --task Reacher --out {new}", "task Reacher: obs"),
    Case("no desired goals", "train {data} --out {new} --set hindsight_ratio=0.5",
         "hindsight_ratio: 0.5", rewrite_meta(lambda m: m["files"].pop("desired_goals"))),
]  # fmt: skip

# Flags

TRAIN = "train {data} --out {new} "
FLAGS = [
    Case("unknown command", "trian", "trian"),
    Case("no command", "", "merlin: "),
    Case("unknown flag", TRAIN + "--bananas 3", "--bananas"),
    Case("misspelt flag", TRAIN + "--update 3", "did you mean --updates"),
    Case("not a number", TRAIN + "--updates many", "--updates: 'many' is not an integer"),
    Case("noise on random data", "collect PointReach --out {new} --noise 0.5", "--noise"),
    Case("half a number", TRAIN + "--updates 1.5", "--updates"),
    Case("no value", TRAIN + "--updates", "--updates"),
    Case("unknown method", TRAIN + "--algo merlni", "--algo: no method is called 'merlni'; did"),
    Case("method in capitals", TRAIN + "--algo WGCSL", "did you mean 'wgcsl'?"),
    Case("no presets", TRAIN + "--preset tiny", "--preset: merlin-plus has no presets; leave"),
    Case("episodes below 1", "train PointReach --variant random --episodes -4 --out {new}",
         "merlin: --episodes: -4 is not a number of episodes"),
    Case("no images of a task", "train Reacher --variant random --pixels --out {new}",
         "merlin: --pixels: Reacher has no images"),
    Case("unknown field", TRAIN + "--set horison=3", "did you mean 'horizon'"),
    Case("malformed setting", TRAIN + "--set horizon", "--set horizon: is not of the form"),
    Case("settings in two places", TRAIN + "--set horizon=5 --set batch_size=9", "--set: is given"),
    Case("setting without a value", TRAIN + "--set horizon=", "--set horizon="),
    Case("word for a number", TRAIN + "--set learning_rate=fast", "--set learning_rate=fast"),
    Case("word in a list", TRAIN + "--set hidden=32,big", "--set hidden=32,big"),
    Case("fraction for a count", TRAIN + "--set batch_size=1.5", "--set batch_size=1.5"),
    Case("impossible ratio", TRAIN + "--set hindsight_ratio=2", "hindsight_ratio: 2.0"),
    Case("nan for a rate", TRAIN + "--set learning_rate=nan", "learning_rate: nan"),
    Case("impossible horizon", TRAIN + "--set horizon=0", "horizon: 0"),
    Case("zero updates", TRAIN + "--updates 0", "--updates: 0"),
    Case("negative updates", TRAIN + "--updates -5", "--updates: -5"),
    Case("zero seeds", TRAIN + "--seeds 0", "--seeds: 0"),
    Case("negative first seed", TRAIN + "--seed -1", "--seed"),
    Case("zero log interval", TRAIN + "--log-every 0", "--log-every: 0"),
    Case("unknown task to evaluate in", TRAIN + "--task PointRech", "did you mean PointReach"),
    Case("unknown variant", TRAIN + "--variant medium", "--variant: 'medium'"),
    Case("no out", "train {data}", "--out: is missing"),
    Case("no data", "train --out {new}", "data: is missing"),
    Case("unknown task", "train PointRech --variant random --out {new}", "did you mean PointReach"),
    Case("no variant", "train PointReach --out {new}", "--variant: is missing"),
    Case("folder not there", "train {new}/data --out {new}", "{new}/data: no such dataset"),
    Case("out in a file", "train {data} --out {data}/meta.json", "{data}/meta.json"),
    Case("out under a file", "train {data} --out {data}/meta.json/run", "{data}/meta.json/run"),
    Case("out is no run", "train {data} --out {data}", "{data}: is not empty and holds no run"),
    Case("collect unknown", "collect PointMoon --out {new}", "'PointMoon'"),
    Case("million million", "collect PointReach --episodes 1000000000000 --out {new}", "--episo"),
    Case("collect nowhere", "collect PointReach", "--out"),
    Case("negative episodes", "collect PointReach --episodes -3 --out {new}", "--episodes: -3"),
    Case("negative seed of data", "collect PointReach --seed -3 --out {new}", "--seed: -3"),
    Case("unknown data", "collect PointReach --variant medium --out {new}", "--variant: 'medium'"),
    Case("out exists", "collect PointReach --episodes 1 --out {data}", "{data}: already exists"),
    Case("collect under a file", "collect PointReach --episodes 1 --out {data}/meta.json/x",
         "{data}/meta.json/x: cannot be created"),
    Case("overwrite other data", "collect PointReach --episodes 1 --out {data} --overwrite",
         "{data}: holds rooms, so it is more than a dataset", lambda d: (d / "rooms").mkdir()),
    Case("overwrite a folder", "convert {data} {data}/rooms --overwrite",
         "{data}/rooms: has no meta.json",
         lambda d: [(d / "rooms").mkdir(), (d / "rooms" / "1.npy").touch()]),
    Case("overwrite a file", "collect PointReach --episodes 1 --out {data}/meta.json --overwrite",
         "{data}/meta.json: is not a dataset folder"),
    Case("no workers", "convert {data} {new} --pixels --workers 0", "--workers: 0 is below 1"),
    Case("a task, not data", "info PointRooms", "PointRooms: is a task, whose data is not here"),
    Case("steps of data", TRAIN + "--max-steps 5", "--max-steps: applies only to your own"),
    Case("episodes of data", TRAIN + "--episodes 5", "--episodes: is for collecting the data"),
    Case("negative seed", TRAIN + "--seed -1", "--seed: -1 is negative"),
]  # fmt: skip

# Run folders


def rewrite_config(**values: object) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        config = plain_json(run / "run.json")
        config.update(values)
        kept = {key: value for key, value in config.items() if value is not Ellipsis}
        (run / "run.json").write_text(json.dumps(kept))

    return spoil


def narrower(arrays: dict, about: dict) -> None:
    name = next(name for name in arrays if name.endswith("weight"))
    arrays[name] = np.ascontiguousarray(arrays[name][:, :-1])


def renamed(arrays: dict, about: dict) -> None:
    for name in list(arrays):
        arrays[f"other.{name}"] = arrays.pop(name)


def not_a_number(arrays: dict, about: dict) -> None:
    next(array for name, array in arrays.items() if name.endswith("bias"))[0] = np.nan


def somebody_elses(run: Path) -> None:
    file = run / "seed-0" / "policy.safetensors"
    safetensors.numpy.save_file({"x": np.zeros(3, np.float32)}, file)


def damaged_checkpoints(run: Path) -> None:
    for kind in ("checkpoint", "previous"):
        rewrite_file(f"{kind}-0.safetensors", lambda b: b[:-100])(run)


def write_unsealed(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**plain_json(path), **values}))


def write_json_as_it_is(path: Path, change: Callable[[dict], object]) -> None:
    """Change a JSON object without telling its checksum."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


POLICY = "seed-0/policy.safetensors"
RESUME = "train --out {run} --resume"
RUNS = [
    Case("no run", "eval {new}", "{new}: no such run folder"),
    Case("nothing to trust", "trust {new}", "{new}: no such run or dataset; check the path."),
    Case("not a run", "eval {data}", "{data}: is a dataset, not a run"),
    Case("run.json is no JSON", "eval {run}", "{run}/run.json: cannot be read",
         rewrite_file("run.json", lambda b: b[:-9])),
    Case("run of another version", "eval {run}", "{run}/run.json: was written by another",
         rewrite_config(schema=99)),
    Case("run.json lacks", "eval {run}", "{run}/run.json: lacks 'seeds'",
         rewrite_config(seeds=...)),
    Case("method of another version", "eval {run}", "'mirlen' is not known",
         rewrite_policy(lambda arrays, about: about.update(algo="mirlen"))),
    Case("unfinished", "eval {run}", "{run}/" + POLICY + ": is not there yet; finish the run",
         lambda run: (run / POLICY).unlink()),
    Case("second seed unfinished", "eval {run}", "{run}/seed-1/policy.safetensors",
         lambda run: (run / "seed-1" / "policy.safetensors").unlink()),
    Case("policy cut short", "eval {run}", "{run}/" + POLICY + ": is damaged",
         rewrite_file(POLICY, lambda b: b[:-100])),
    Case("policy is garbage", "eval {run}", "{run}/" + POLICY + ": is damaged",
         rewrite_file(POLICY, lambda b: b"garbage" * 9)),
    Case("policy is empty", "eval {run}", "{run}/" + POLICY + ": is damaged",
         rewrite_file(POLICY, lambda b: b"")),
    Case("policy of other shapes", "eval {run}", "it belongs to another run",
         rewrite_policy(narrower)),
    Case("policy of other names", "eval {run}", "not match the run's", rewrite_policy(renamed)),
    Case("policy of NaN", "eval {run}", POLICY + ": net.layers.0.bias contains NaN",
         rewrite_policy(not_a_number)),
    Case("policy with a flipped bit", "eval {run}", "{run}/" + POLICY + ": is damaged",
         rewrite_file(POLICY, flip_last_byte)),
    Case("policy of many layers", "eval {run}", POLICY + ": its setting hidden is too large",
         rewrite_policy(lambda arrays, about: about["settings"].update(hidden=[8] * 20_000))),
    Case("policy of huge images", "eval {run}", "observation_shape is [3000000000]",
         rewrite_policy(lambda arrays, about: about.update(observation_shape=[3_000_000_000]))),
    Case("seeds are words", "eval {run}", "run.json: seeds is '0', not a whole number",
         rewrite_config(seeds=["0"])),
    Case("no seeds", "eval {run}", "run.json: names no seeds", rewrite_config(seeds=[])),
    Case("data is nothing", "eval {run}", "run.json: data is None", rewrite_config(data=None)),
    Case("method is a number", "eval {run}", "run.json: algo is 5", rewrite_config(algo=5)),
    Case("changed run.json", "eval {run}", "run.json: its checksum is wrong", lambda run:
         write_json_as_it_is(run / "run.json", lambda c: c["settings"].update(horizon=9))),
    Case("deep run.json", "eval {run}", "nested too deeply",
         rewrite_file("run.json", lambda b: b"[" * 5000 + b"]" * 5000)),
    Case("garbled metrics", RESUME + " --updates 70", "seed-0/metrics.jsonl line 2: is not JSON",
         rewrite_file("seed-0/metrics.jsonl", lambda b: b.replace(b'\n{"', b"\n{", 1))),
    Case("garbled result", "eval {run}", "result.json: it is 3, not",
         lambda run: write_unsealed(run / "result.json", seeds=[3])),
    Case("a million million episodes", "eval {run} --episodes 1000000000000", "--episodes: 1000"),
    Case("somebody else's file", "eval {run}", POLICY + ": was not written by merlin",
         somebody_elses),
    Case("horizon 0", "eval {run} --horizon 0", "--horizon: 0"),
    Case("negative horizon", "eval {run} --horizon 5 -1", "--horizon: -1"),
    Case("temperature nan", "eval {run} --temperature nan", "--temperature: nan"),
    Case("negative temperature", "eval {run} --temperature -1", "--temperature: -1"),
    Case("steps of no environment", "eval {run} --max-steps 5", "--max-steps: applies only"),
    Case("no episodes to play", "eval {run} --episodes 0", "--episodes: 0"),
    Case("negative episodes to play", "eval {run} --episodes -3", "--episodes: -3"),
    Case("unknown checkpoint", "eval {run} --checkpoint last", "--checkpoint: 'last'"),
    Case("eval in an unknown task", "eval {run} --task PointRech", "did you mean PointReach"),
    Case("option of another command", "eval {run} --seed 3", "unknown option --seed; see"),
    Case("eval in a task of other sizes", "eval {run} --task Reacher", "task Reacher: obs"),
    Case("resume with other looks", "train --out {run} --resume --eval-every 7", "--eval-every:"),
    Case("eval of a run without a task", "eval {run}", "{run}: does not name its task",
         rewrite_config(task=None)),
    Case("out holds a run", "train {data} --out {run}", "{run}: holds a run already"),
    Case("resume of nothing", "train --out {new} --resume", "{new}: no such run folder"),
    Case("resume of no run", "train --out {data} --resume", "{data}: is a dataset, not a run"),
    Case("resume without out", "train --resume", "--out: is missing"),
    Case("resume to fewer", RESUME + " --updates 5", "{run}: has already done 60 updates"),
    Case("resume with other settings", "train {data} --out {run} --resume --set horizon=9",
         "{run}: was started with settings="),
    Case("resume with data gone", RESUME, "{data}: no such dataset",
         lambda run: shutil.rmtree(run.parent / "data")),
    Case("resume on other data", RESUME, "{run}: was started on other data",
         lambda run: rewrite_array("actions", lambda a: a / 2)(run.parent / "data")),
    Case("resume from damaged checkpoints", RESUME + " --updates 70",
         "{run}/previous-0.safetensors: is damaged", damaged_checkpoints),
    Case("resume lacks a schedule", RESUME, "{run}/run.json: lacks 'eval_every'",
         rewrite_config(eval_every=...)),
]  # fmt: skip


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder, hidden ones too, with its content."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def names(case: Case) -> str:
    return case.name.replace(" ", "-")


@pytest.fixture
def folders(tmp_path, monkeypatch, point_folder, run_folder):
    """Copies to break: a dataset, a run that was trained on it, and a place that is free."""
    monkeypatch.setenv("MERLIN_DATA", str(tmp_path / "cache"))
    data, run = tmp_path / "data", tmp_path / "run"
    shutil.copytree(point_folder, data)
    shutil.copytree(run_folder, run)
    config = plain_json(run / "run.json")
    config["data"]["path"] = str(data)
    write_json(run / "run.json", config)
    return {"data": data, "run": run, "new": tmp_path / "new"}


@pytest.mark.parametrize("case", [*DATASETS, *FLAGS, *RUNS], ids=names)
def test_broken_input_is_refused_in_one_sentence(case, folders, tmp_path, capsys):
    case.spoil(folders["run"] if case in RUNS else folders["data"])
    before = tree(tmp_path)
    said = refuse(case.arguments.format(**folders).split(), capsys)
    assert case.fragment.format(**folders) in said
    assert tree(tmp_path) == before


def test_the_copies_are_good_until_they_are_broken(folders, capsys):
    """Otherwise the cases above might be refused for another reason."""
    main(["info", str(folders["data"])])
    main(["eval", str(folders["run"]), "--episodes", "1"])
    main(["train", "--out", str(folders["run"]), "--resume"])
    assert capsys.readouterr().out


@pytest.mark.parametrize("case", DATASETS[:3], ids=names)
def test_in_python_the_same_sentence_is_an_exception(case, folders):
    import merlin

    case.spoil(folders["data"])
    with pytest.raises(MerlinError, match=r"meta\.json"):
        merlin.load(folders["data"])


def test_case_names_are_unique():
    found = [case.name for case in (*DATASETS, *FLAGS, *RUNS)]
    assert len(found) == len(set(found)) >= 24
