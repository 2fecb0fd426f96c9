"""Good data, runs and benches, small enough to be copied and broken a thousand times."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from campaign.processes import Running
from helpers.bench_rows import row
from helpers.format_data import SUFFIX, episodes, write
from helpers.log_data import FORMS, write_log
from helpers.videos import film
from merlin.bench.rows import parse
from merlin.io.files import sealed, write_json

TRAIN = ["--algo", "merlin", "--set", "hidden=8,8", "batch_size=8", "--updates", "60"]
TRAIN += ["--eval-every", "20", "--eval-episodes", "2", "--final-episodes", "2"]
TRAIN += ["--log-every", "5", "--checkpoint-every", "10"]


class Material:
    """What a campaign works on, in one folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True)
        self.data = folder / "data"
        self._in_child(lambda: run_main("collect", "PointReach", "--episodes", 4, "--out", "data"))
        self.formats = {form: folder / form / f"small{SUFFIX[form]}" for form in SUFFIX}
        for form in SUFFIX:
            (folder / form).mkdir()
            write(episodes(np.random.default_rng(0)), folder / form, form, "small")
        self.logs = {form: self._log(form) for form in FORMS}
        self.filmed = self._log("lerobot-v3", "filmed")
        film(self.filmed[0], "lerobot-v3")
        self.goals = folder / "goals"
        self.goals.mkdir()
        (self.goals / "a.csv").write_text("x,y\n1,2\n3,4.5\n")
        np.save(self.goals / "b.npy", np.zeros((3, 2), np.float32))
        self.run = folder / "run"
        self._in_child(lambda: run_main("train", "data", "--out", "run", *TRAIN))
        self.bench = bench_folder(folder / "bench")

    def _log(self, form: str, name: str = "") -> tuple[Path, dict[str, str]]:
        """A robot log, and how `load` is told of its columns."""
        place = self.folder / (name or form)
        place.mkdir()
        path, _, said = write_log(place, form, np.random.default_rng(0))
        if form == "npy":
            names = [f"log/{file.name}" for file in sorted(path.iterdir())]
            path = place / "list.txt"
            path.write_text("\n".join(names))
        return path, said

    def _in_child(self, work: Callable[[], object]) -> None:
        """JAX computes only in children, see `processes`."""
        ended = Running(work, self.folder).wait()
        assert ended.code == 0, ended.err

    def copy(self, source: Path, target: Path) -> Path:
        """A fresh copy of a part of it."""
        remove(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        return target


def run_main(*arguments: object) -> None:
    import merlin.cli

    merlin.cli.main([str(argument) for argument in arguments])


def bench_folder(folder: Path) -> Path:
    """A bench of four cells, as `merlin bench` leaves it."""
    folder.mkdir()
    rows = [row(seed=seed, algo=algo) for seed in (0, 1) for algo in ("merlin", "gcsl")]
    about = {"format": "merlin-bench", "schema": 1, "commands": ["merlin bench paper --out bench"]}
    write_json(folder / "bench.json", {**about, "grids": {"paper": [r["cell"] for r in rows]}})
    lines = [json.dumps(sealed(parse(r, "row").to_json())) for r in rows]
    (folder / "rows.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def content(folder: Path, *patterns: str) -> dict[str, bytes]:
    """The bytes of the files that match."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for pattern in patterns
        for path in sorted(folder.glob(pattern))
        if path.is_file()
    }
