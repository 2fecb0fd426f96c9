"""Install what a release consists of into empty environments, and use it: python tools/smoke.py

Builds into a temporary folder. The wheel is installed with its dependencies alone, without any
extra; the sdist is built once more and must give the same files; the run-only wheel acts with the
policy that the first has trained.
"""

import json
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from wheels import ROOT
from wheels import main as build

TRAIN = "train PointReach --variant random --episodes 50 --updates 200 --final-episodes 20"
PLAY = "play run --out page.html"
REFUSED = {
    "collect SawyerReach --variant random --episodes 2 --out sawyer": "sawyer",
    "collect FetchReach --variant random --episodes 2 --out fetch": "robotics",
    "collect ogbench:cube-single-play-v0 --episodes 2 --out cube": "ogbench",
    "convert data minari:point/reach-v0": "formats",
    "toy point --out toy": "plots",
    "report run": "plots",
    "eval run --video film.gif": "plots",
    "export run --out policy.onnx": "export",
    "bench smoke --engine ray --out bench": "ray",
}
"""Commands that need an extra, and which."""
ACT = """
import sys
import merlin.runtime
policy = merlin.runtime.load("run")
print(policy([0.0, 0.0], [3.0, 3.0]))
assert not {"jax", "scipy", "gymnasium"} & set(sys.modules)
try:
    import merlin
    merlin.train
except merlin.MerlinError as error:
    assert "pip install merlin-rl" in str(error)
else:
    raise SystemExit("merlin.train is there without JAX")
"""


def main() -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        here = Path(temporary)
        build(here / "dist")
        (wheel,) = (here / "dist").glob("merlin_rl-*.whl")
        (sdist,) = (here / "dist").glob("merlin_rl-*.tar.gz")
        (small,) = (here / "dist").glob("merlin_rl_runtime-*.whl")
        _same_from_sdist(wheel, sdist, here)
        base = _environment(here / "base", wheel)
        print(f"installed after {time.monotonic() - began:.0f} s")
        _use(base, here)
        robot = _environment(here / "robot", small)
        print("run-only: acts with", run([robot, "-c", ACT], here).strip())
        packages = json.loads(run([robot, "-m", "pip", "list", "--format", "json"], here))
        names = {package["name"] for package in packages}
        assert names <= {"merlin-rl-runtime", "numpy", "safetensors", "pip", "setuptools"}, names
    print(f"wheel, sdist and run-only wheel work: {time.monotonic() - began:.0f} s")


def _same_from_sdist(wheel: Path, sdist: Path, here: Path) -> None:
    """The sdist holds all that the wheel is made of."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", "again"]
    run([*command, str(sdist)], here)
    (again,) = (here / "again").glob("*.whl")
    first, second = (zipfile.ZipFile(path) for path in (wheel, again))
    assert set(first.namelist()) == set(second.namelist())
    assert [n for n in first.namelist() if n.endswith("page.html")]
    assert [n for n in first.namelist() if "experts/weights" in n]


def _environment(folder: Path, wheel: Path) -> str:
    """An empty environment with one wheel and what it depends on."""
    run([sys.executable, "-m", "venv", str(folder)], folder.parent)
    python = str(folder / "bin" / "python")
    constraints = ["-c", str(ROOT / "constraints.txt")]
    quick = ["--quiet", "--no-compile", "--disable-pip-version-check"]
    run([python, "-m", "pip", "install", *quick, *constraints, str(wheel)], folder.parent)
    return python


def _use(python: str, here: Path) -> None:
    """Train, evaluate and open a page; ask for every extra that is missing."""
    command = str(Path(python).with_name("merlin"))
    trained = run([command, *TRAIN.split(), "--out", "run", "--json"], here)
    assert json.loads(trained.splitlines()[-1])["final"]["success"]["mean"] >= 0
    run(
        [
            command,
            "collect",
            *["PointReach", "--variant", "random", "--episodes", "5", "--out", "data"],
        ],
        here,
    )
    run([command, *["play", "run", "--out", "page.html"]], here)
    assert (here / "page.html").stat().st_size > 10_000
    for arguments, extra in REFUSED.items():
        done = subprocess.run(
            [command, *arguments.split()], cwd=here, capture_output=True, text=True
        )
        said = done.stderr.strip()
        assert done.returncode == 2, (arguments, done.returncode, said)
        assert f"pip install 'merlin-rl[{extra}]'" in said, (arguments, said)
        assert said.count("\n") == 0, (arguments, said)
        print(f"  {said}")


def run(command: list[str], where: Path) -> str:
    """What a command prints; it must not fail."""
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
