"""The learning curve of a run, and `merlin report` on one run folder."""

import json
import shutil

import pytest
from PIL import Image

from helpers.breaking import plain_json
from helpers.hidden import without
from helpers.refusals import refuse
from merlin.training.curve import draw

QUICK = "--updates 40 --eval-every 20 --eval-episodes 5 --final-episodes 5 --log-every 10"
SMALL = "--algo merlin --set hidden=8 batch_size=8"


@pytest.fixture
def finished(run_folder, tmp_path):
    return shutil.copytree(run_folder, tmp_path / "run")


def test_train_draws_the_curve(point_folder, tmp_path, call):
    told = call(
        "train", point_folder, "--out", tmp_path / "run", *f"{QUICK} {SMALL}".split(), "--json"
    )
    assert json.loads(told.out)["curve"] == str(tmp_path / "run" / "curve.png")
    with Image.open(tmp_path / "run" / "curve.png") as picture:
        assert picture.width > picture.height > 200
    figure = draw(tmp_path / "run")
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels[:2] == ["discounted return", "success"]
    (line,) = figure.axes[0].lines
    assert list(line.get_xdata()) == [20, 40]
    rows = (tmp_path / "run" / "seed-0" / "metrics.jsonl").read_text().splitlines()
    logged = [row["eval/return"] for row in map(json.loads, rows) if "eval/return" in row]
    assert list(line.get_ydata()) == logged


def test_a_run_is_reported(finished, call):
    told = call("report", finished).out
    assert str(finished / "report.html") in told
    page = (finished / "report.html").read_text()
    result = json.loads((finished / "result.json").read_text())
    assert f"{result['final']['return']['mean']:.2f}" in page
    assert "data:image/png;base64," in page
    assert "seed 1, final" in page
    assert "http" not in page.replace("http-equiv", "")
    assert len(draw(finished).axes[0].lines) == 2


@pytest.mark.parametrize("more", ["--coverage", "."])
def test_a_run_is_reported_alone(finished, capsys, more):
    assert f"{finished}: is a run, not a folder" in refuse(["report", str(finished), more], capsys)


def test_a_run_that_is_not_finished_is_refused(finished, capsys):
    (finished / "result.json").unlink()
    assert "is not finished; continue it with" in refuse(["report", str(finished)], capsys)
    assert not (finished / "report.html").exists()


@pytest.mark.more
def test_without_matplotlib_it_is_said_and_nothing_is_drawn(point_folder, tmp_path):
    asked = ["train", point_folder, "--out", "run", *f"{QUICK} {SMALL}".split()]
    command = ("-c", "from merlin.cli import main; main()")
    done = without(["matplotlib"], [*command, *asked], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no learning curve is drawn: `pip install 'merlin-rl[plots]'`" in done.stderr
    assert not (tmp_path / "run" / "curve.png").exists()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"step": 1, "loss": "x"}, "loss is 'x', not a number"),
        ({"step": 1, "loss": {"a": 1}}, "loss is a dict of 1, not a number"),
        ({"step": 1, "eval/return": None}, "eval/return is None, not a number"),
        ({"step": 2**63 - 1, "loss": 1e308}, None),
        ({"step": 1, "loss": float("inf")}, None),
    ],
)
def test_the_log_of_a_stranger(finished, call, capsys, row, said):
    (finished / "seed-0" / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    if said is None:
        call("report", finished)
    else:
        assert said in refuse(["report", str(finished)], capsys)


def test_names_in_a_run_are_neither_formulas_nor_markup(finished, call):
    name = "$\\frac{$ \x1b <b onload=x> [/x]"
    for file in ("run.json", "result.json"):
        content = {**plain_json(finished / file), "task": name}
        (finished / file).write_text(json.dumps(content))
    call("report", finished)
    assert "<b onload" not in (finished / "report.html").read_text()


def test_a_report_elsewhere_leaves_the_run_alone(finished, tmp_path, call):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    call("report", finished, "--out", tmp_path / "page")
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before
    assert {path.name for path in (tmp_path / "page").iterdir()} == {"report.html", "curve.png"}


def test_the_page_of_a_run_in_an_own_environment_names_it_in_its_commands(finished, call):
    for file in ("run.json", "result.json"):
        content = {**plain_json(finished / file), "task": "arms:own/Arm-v0?max_steps=9"}
        (finished / file).write_text(json.dumps(content))
    call("report", finished)
    page = (finished / "report.html").read_text()
    assert f"merlin eval {finished} --task arms:own/Arm-v0 --episodes 1000" in page
    assert f"merlin eval {finished} --task arms:own/Arm-v0 --video" in page
