"""What the distribution is called, what each extra brings, and what is said without it."""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import merlin
from helpers.hidden import without
from merlin.io.extras import DISTRIBUTION, EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MORE = pytest.mark.more
COMMAND = ("-c", "from merlin.cli import main; main()")


def names(requirements):
    """The distributions that requirements name, as pip compares them."""
    return {normal(re.split(r"[\[<>=!~ ]", text)[0]) for text in requirements}


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_version_stands_in_one_place():
    assert PROJECT["name"] == DISTRIBUTION
    assert "version" not in PROJECT
    assert re.fullmatch(r"\d+\.\d+\.\d+", merlin.__version__)
    assert f"## {merlin.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_pinned_version_has_hashes():
    pins = re.findall(r"^\S+==\S+$", (ROOT / "constraints.txt").read_text(), re.M)
    text = (ROOT / "hashes.txt").read_text()
    listed = re.findall(r"^(\S+==\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", text, re.M)
    assert [pin for pin, _ in listed] == pins
    assert "http" not in text


def test_every_extra_brings_its_modules():
    extras = PROJECT["optional-dependencies"]
    owners = packages_distributions()
    for extra, modules in EXTRAS.items():
        if extra == "ogbench" and sys.version_info >= (3, 13):
            continue  # not for this Python: see pyproject.toml
        brought = names(extras[extra])
        for module in modules:
            assert brought & {normal(owner) for owner in owners[module]}, (extra, module)
    everything = re.search(r"\[(.*)\]", *extras["all"])[1]
    assert set(everything.split(",")) == set(EXTRAS)


def test_the_base_install_is_small():
    """Not one package that only some tasks, formats or pictures need."""
    optional = set().union(*(names(PROJECT["optional-dependencies"][extra]) for extra in EXTRAS))
    assert not names(PROJECT["dependencies"]) & optional
    assert len(PROJECT["dependencies"]) == 10


def test_pages_name_extras_that_exist():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text() for page in pages)
    assert "merlin[" not in text
    named = {e for found in re.findall(r"merlin-rl\[([\w,]+)\]", text) for e in found.split(",")}
    assert set(EXTRAS) <= named <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ("collect SawyerReach --variant random --episodes 1 --out new", "sawyer"),
        pytest.param(
            "collect Reacher --variant random --episodes 1 --out new",
            "robotics",
            marks=pytest.mark.more,
        ),
        pytest.param(
            "collect ogbench:cube-single-play-v0 --episodes 1 --out new",
            "ogbench",
            marks=pytest.mark.more,
        ),
        ("convert {data} minari:point/reach-v0", "formats"),
        ("toy point --out new", "plots"),
        pytest.param("report {run}", "plots", marks=MORE),
        pytest.param("info {data} --html new", "plots", marks=MORE),
        pytest.param("eval {run} --video new.gif", "plots", marks=MORE),
        pytest.param("eval {run} --video new.mp4", "video", marks=MORE),
        ("export {run} --out new.onnx", "export"),
        pytest.param("bench smoke --engine ray --out new", "ray", marks=MORE),
    ],
)
def test_without_an_extra_one_sentence_names_it(
    arguments, extra, point_folder, run_folder, tmp_path
):
    asked = arguments.format(data=point_folder, run=run_folder).split()
    done = without(EXTRAS[extra], [*COMMAND, *asked], tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"pip install 'merlin-rl[{extra}]'" in done.stderr
    assert "which is not installed" in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("task", "extra"), [("SawyerDoor", "sawyer"), ("FetchPush", "robotics")])
def test_gymnasium_says_it_too(task, extra, tmp_path):
    program = f"import gymnasium, merlin\ngymnasium.make('merlin/{task}-v0')"
    done = without(EXTRAS[extra], ["-c", program], tmp_path)
    assert f"pip install 'merlin-rl[{extra}]'" in done.stderr.splitlines()[-1]


@pytest.mark.more
def test_training_needs_no_extra(point_folder, tmp_path):
    hidden = set().union(*EXTRAS.values())
    quick = "--updates 20 --final-episodes 5 --eval-episodes 5 --set hidden=8 batch_size=8"
    asked = ["train", point_folder, "--out", "run", *quick.split()]
    done = without(hidden, [*COMMAND, *asked], tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "seed-0" / "metrics.jsonl").exists()
    assert not list((tmp_path / "run" / "seed-0").glob("events*"))
    evaluated = without(hidden, [*COMMAND, "eval", "run", "--episodes", "5"], tmp_path)
    assert evaluated.returncode == 0, evaluated.stderr


def test_the_runtime_acts_without_jax_and_without_the_rest(run_folder, tmp_path, monkeypatch):
    """The modules of the run-only wheel, alone in a folder."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    import wheels

    for path in wheels.reached():
        target = tmp_path / path.relative_to(wheels.SOURCE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import merlin.runtime
print(merlin.runtime.load({str(run_folder)!r})([0.0, 0.0], [1.0, 1.0]).shape)
ours = {{name.split(".")[0] for name in sys.modules}} - set(sys.stdlib_module_names)
print(sorted(name for name in ours if name in ("jax", "scipy", "gymnasium", "safetensors")))
import gymnasium
try:
    merlin.train
except merlin.MerlinError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    shape, loaded, refused = done.stdout.splitlines()
    assert shape == "(2,)"
    assert loaded == "['safetensors']"
    assert "merlin.train is not part of merlin-rl-runtime" in refused
