"""Attacks by hand beyond the first findings: what a stranger's files could reach or exhaust.

An attack gets the material and an empty folder, and returns what went wrong, or None.
"""

import html.parser
import json
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from campaign.material import TRAIN, Material
from campaign.processes import Running, run, start
from campaign.refusals import refused, say
from helpers.format_data import change_minari

EVIL = "\"><evil onload=alert(1) x=' onclick=evil() $\\frac{ </script>"
EVIL += "\x1b[2J\x9b\r [/x] {{7*7}} ${a}"


def files_elsewhere(material: Material, folder: Path) -> str | None:
    """Data that names other files of this machine: HDF5, lists, runs, paths in metadata."""
    secret = folder / "secret"
    secret.write_bytes(np.full(1000, 0.25, np.float32).tobytes())
    parts = [(str(secret), 0, h5py.h5f.UNLIMITED)]

    def actions(file: h5py.File) -> None:
        shape = file["episode_0/actions"].shape
        del file["episode_0/actions"]
        file.create_dataset("episode_0/actions", shape, "f4", external=parts)

    minari = material.copy(material.formats["minari"], folder / "minari")
    change_minari(minari, actions)
    robot = material.copy(material.logs["robomimic"][0], folder / "log.hdf5")
    with h5py.File(robot, "r+") as file:
        shape = file["data/demo_0/obs/pose"].shape
        del file["data/demo_0/obs/pose"]
        file["data/demo_0/obs"].create_dataset("pose", shape, "f4", external=parts)
    for data in (minari, robot):
        if problem := refused(run(["info", data], folder)):
            return f"{data.name}: {problem}"
    copy = material.copy(material.run, folder / "run")
    say(copy / "run.json", task="evil:X?args.a=" + "[" * 100_000)
    if problem := run(["eval", copy, "--episodes", 1], folder).problem(2):
        return f"a task of many brackets: {problem}"
    for path in ("/dev/zero", "../../../etc/passwd", "minari:../../etc-v0", "\x1b[2J", "x" * 5000):
        say(copy / "run.json", data={"path": path, "fingerprint": "x"})
        ended = run(["train", "--out", copy, "--resume", "--updates", 70], folder)
        if problem := ended.problem(1, 2):
            return f"run of {path[:20]!r}: {problem}"
    return None


def more_bombs(material: Material, folder: Path) -> str | None:
    """Small files that unpack to gigabytes, and text without an end."""
    copy = material.copy(material.run, folder / "run")
    policy = copy / "seed-0" / "policy.safetensors"
    data = material.copy(material.data, folder / "data")

    def make() -> None:  # in a child, so that what is made takes no memory here
        values = pa.array(np.zeros(10**8, np.float32))
        states = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        table = pa.table({"state": states, "action": [[0.0, 1.0]], "episode_index": [0]})
        pq.write_table(table, folder / "a.parquet")
        row = b"episode,state,action\n0,1,2\n0," + b"1" * 10**8 + b",2\n"
        (folder / "a.csv").write_bytes(row)
        (data / "meta.json").write_bytes(b'{"a":[' + b"[]," * 20_000_000 + b"[]]}")
        one = '":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
        head = ("{" + ",".join(f'"{i}{one}' for i in range(900_000)) + "}").encode()
        policy.write_bytes(len(head).to_bytes(8, "little") + head)

    if problem := Running(make, folder).wait().problem(0):
        return problem
    zarr = material.copy(material.logs["zarr"][0], folder / "b.zarr")
    say(zarr / "data" / "state" / ".zarray", shape=[2**39, 4], chunks=[2**39, 4])
    for path in (folder / "a.parquet", folder / "a.csv", zarr, data):
        if problem := refused(run(["info", path], folder)):
            return f"{path.name}: {problem}"
    return refused(run(["eval", copy, "--episodes", 1], folder))


def names_that_command(material: Material, folder: Path) -> str | None:
    """Escape sequences, markup, formulas and scripts in every name that is shown."""
    data = material.copy(material.data, folder / "data")
    about = {EVIL: EVIL, "log": {"state_names": [EVIL] * 2, "x": EVIL}}
    say(data / "meta.json", variant=EVIL, provenance=about)
    own = material.copy(material.run, folder / f"run {EVIL[:12]}")
    copy = material.copy(material.run, folder / "run")
    say(copy / "run.json", task=EVIL)
    say(copy / "result.json", task=EVIL, algo=EVIL, variant=EVIL, version=EVIL)
    bench = material.copy(material.bench, folder / "bench")
    rows = [json.loads(line) for line in (bench / "rows.jsonl").open()]
    for row in rows:
        row.pop("sha256")
        row.update(grid=EVIL, task=EVIL, variant=EVIL, algo=EVIL, command=EVIL, version=EVIL)
    (bench / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    say(bench / "bench.json", grids={EVIL: [row["cell"] for row in rows]}, commands=[EVIL])
    for words in (
        *(["info", data, "--html", "info.html"], ["info", f"{EVIL}.csv"], ["report", copy]),
        *(["report", bench], ["report", bench, "--coverage"], ["eval", own, "--episodes", 1]),
        ["play", own, "--out", "play.html"],
    ):
        ended = run(words, folder)
        if problem := ended.problem(0, 2):
            return f"{words[0]}: {problem}"
        if set("\x1b\x9b\r\x07") & set(ended.out + ended.err):
            return f"{words[0]}: printed a control character"
    pages = [path for path in folder.rglob("*") if path.suffix in (".html", ".svg")]
    for page in pages:
        found = _Scripts()
        found.feed(page.read_text())
        if found.bad:
            return f"{page.name}: {found.bad[0]}"
    return None if len(pages) > 4 else f"only {len(pages)} pages were written"


class _Scripts(html.parser.HTMLParser):
    """Finds elements and attributes that no page of ours has."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "evil" or any(name.startswith("on") for name, _ in attrs):
            self.bad.append(f"<{tag} {attrs}>")


def log_of_a_stranger(material: Material, folder: Path) -> str | None:
    """Rows of metrics that cannot be drawn, or are none."""
    copy = material.copy(material.run, folder / "run")
    for row in (
        *('{"step": 1, "loss": "x"}', '{"step": 1, "loss": {"a": 1}}', '{"step": 1, "loss": NaN}'),
        *('{"step": 1, "loss": 1e999}', '{"step": 9223372036854775807, "loss": 1e308}', "[]"),
        *('{"step": 1, "eval/return": null}', '{"step": 1, "loss": 1' + "0" * 5000 + "}", "{"),
    ):
        (copy / "seed-0" / "metrics.jsonl").write_text(f"{row}\n")
        if problem := run(["report", copy], folder).problem(0, 2):
            return f"{row[:50]}: {problem}"
    return None


def hard_links(material: Material, folder: Path) -> str | None:
    """A lock that is another name of a precious file."""
    copy = material.copy(material.run, folder / "run")
    (folder / "victim").write_text("precious")
    os.link(folder / "victim", copy / ".lock")
    if problem := refused(run(["train", "--out", copy, "--resume", "--updates", 70], folder)):
        return problem
    return None if (folder / "victim").read_text() == "precious" else "the victim was written to"


def many_converts(material: Material, folder: Path) -> str | None:
    """Several conversions into one place: one wins, or all one after the other."""
    store = {"MINARI_DATASETS_PATH": str(folder / "store")}
    for target in ("d", "d.npz", "d.pkl", "minari:a/b-v0"):
        for more, codes in (([], [0, 2, 2]), (["--overwrite"], [0, 0, 0])):
            words = ["convert", material.formats["native"], target, *more]
            ends = [one.wait() for one in [start(words, folder, **store) for _ in range(3)]]
            if problem := next(filter(None, (end.problem(0, 2) for end in ends)), None):
                return f"{target}: {problem}"
            if sorted(end.code for end in ends) != codes:
                return f"{target}: ended with {[end.code for end in ends]}"
        if problem := run(["info", target], folder, **store).problem(0):
            return f"{target}: {problem}"
    left = [path.name for path in folder.rglob(".*") if not path.name.startswith((".out", ".err"))]
    return f"left behind: {left[0]}" if left else None


def odd_surroundings(material: Material, folder: Path) -> str | None:
    """Variables of the environment, and numbers on the command line, that nobody would set."""
    (folder / "file").write_text("")
    small = ["collect", "Reacher", "--episodes", 1, "--out", "d"]
    cached = ["train", "Reacher", "--variant", "random", "--episodes", 1, "--out", "r", *TRAIN]
    for words, variables in (
        (small, {"MERLIN_CORES": "9" * 5000}),
        (["info", material.formats["ogbench"]], {"MERLIN_MAX_RATIO": "9" * 5000}),
        (cached, {"MERLIN_DATA": str(folder / "file")}),
        (["info", "minari:a/b-v0"], {"MINARI_DATASETS_PATH": "/dev/null"}),
        (["collect", "PointReach", "--episodes", "9" * 5000, "--out", "d"], {}),
        (["info", material.data, "--tolerance", "nan"], {}),
        (["eval", material.run, "--episodes", 1, "--seed", -1], {}),
        (["info", "\0.csv".replace("\0", "\udcff")], {}),
    ):
        if problem := run(words, folder, **variables).problem(1, 2):
            return f"{words[0]} with {list(variables)}: {problem}"
        shutil.rmtree(folder / "r", ignore_errors=True)
    return None


STRANGERS = (
    *(files_elsewhere, more_bombs, names_that_command, log_of_a_stranger, hard_links),
    *(many_converts, odd_surroundings),
)
