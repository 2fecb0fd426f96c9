"""The installed command on environments that nobody here wrote, in a folder of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import merlin
from helpers import own_envs

SLOW = """
import time
import gymnasium
from line_world import Line

class Slow(Line):
    def step(self, action):
        time.sleep(0.005)
        return super().step(action)

gymnasium.register("own/Slow-v0", entry_point=Slow, max_episode_steps=20)
"""
INTERRUPTIBLE = """
import signal
from merlin.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in background
main()
"""
COMMAND = str(Path(sys.executable).with_name("merlin"))
QUIET = {**os.environ, "PYTHONWARNINGS": "ignore"}


def with_modules(place):
    """A folder with modules of the user, one of which is called like a library."""
    shutil.copy(own_envs.__file__, place / "line_world.py")
    page = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
    code = next(c for c in page.split("```python\n")[1:] if c.startswith("# ring_world.py"))
    (place / "ring_world.py").write_text(code.split("```")[0])
    (place / "exit_world.py").write_text("import sys\nsys.exit(4)\n")
    (place / "syntax_world.py").write_text("def f(:\n")
    (place / "slow_world.py").write_text(SLOW)
    (place / "numpy.py").write_text("open('replaced', 'w')\nraise SystemExit('not NumPy')\n")
    return place


@pytest.fixture
def folder(tmp_path):
    return with_modules(tmp_path)


def run(folder, *arguments, code=0):
    done = subprocess.run(
        [COMMAND, *map(str, arguments)], cwd=folder, capture_output=True, text=True, env=QUIET
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_a_module_of_the_working_directory_is_found(folder):
    """In the command and in its workers, without replacing what is installed."""
    run(
        folder,
        *[
            "collect",
            "ring_world:own/Ring-v0",
            "--episodes",
            "45",
            "--out",
            "data",
            "--workers",
            "2",
        ],
    )
    assert len(merlin.load(folder / "data")) == 45
    assert not (folder / "replaced").exists()


def test_an_environment_is_checked(folder):
    told = run(folder, "tasks", "check", "line_world:own/Ends-v0", "--json")
    about = json.loads(told.stdout.splitlines()[-1])
    assert about["reached"] == {"success": "info['is_success']", "return": "info['is_success']"}
    assert (about["episode_steps"], about["ends_when_terminated"]) == (20, True)
    assert about["drawing"].startswith("none: ")
    assert len(about["episodes_played"]) == 3
    words = run(folder, "tasks", "check", "line_world:own/Ends-v0").stdout
    assert "info['is_success'], after the last step" in words


UNCLEAR = [
    (["line_world:own/Dense-v0"], "--goal-reward"),
    (["line_world:own/Endless-v0"], "--max-steps"),
    (["line_world:own/Keyed-v0", "--env-args", "size"], "key=value"),
    (["line_world:own/Keyed-v0", "--env-args", "no_such=1"], "no_such"),
    (["line_world:own/Keyed-v0", "--success-key", "no_such"], "--success-key"),
    (["line_world:own/Keyed-v0", "--max-steps", "0"], "--max-steps: 0 is below 2"),
    (["line_world:own/Keyed-v0", "--max-steps", "1"], "--max-steps: 1 is below 2"),
    (["line_world:own/Keyed-v0", "--env-args", "size=x"], "reset(seed=...) failed (TypeError"),
    (["line_world:own/Keyed-v0", "--goal-reward", "nan"], "--goal-reward: nan is not"),
    (["line_world:own/No-v0"], "`No` doesn't exist"),
    (["exit_world:own/Exit-v0"], "SystemExit: 4, in line 2 of"),
    (["syntax_world:own/Syntax-v0"], "SyntaxError: invalid syntax, in line 1 of"),
    (["no_world:own/Keyed-v0"], "no_world"),
    (["FetchReach", "--max-steps", "3"], "merlin's tasks"),
]
REFUSING = """
import contextlib, io, json, sys
from merlin.cli import main
told = []
for arguments in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            code = main(arguments) or 0
        except SystemExit as stop:
            code = stop.code
    told.append([code, said.getvalue()])
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """Exit code and words for each of UNCLEAR, all from one process."""
    place = with_modules(tmp_path_factory.mktemp("unclear"))
    commands = [["collect", *a, "--episodes", "2", "--out", "data"] for a, _ in UNCLEAR]
    done = subprocess.run(
        [sys.executable, "-P", "-c", REFUSING],
        cwd=place,
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        env=QUIET,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not (place / "data").exists()
    return json.loads(done.stdout)


@pytest.mark.parametrize("index", range(len(UNCLEAR)), ids=[" ".join(a) for a, _ in UNCLEAR])
def test_what_is_unclear_is_refused(refusals, index):
    code, said = refusals[index]
    assert code == 2
    assert UNCLEAR[index][1] in said
    assert len(said.strip().splitlines()) == 1


def test_options_are_kept_with_the_data(folder):
    options = ["--max-steps", 7, "--env-args", "size=5", "--goal-reward", -0.25]
    name = "line_world:own/Dense-v0"
    run(folder, "collect", name, *options, "--episodes", 5, "--out", "data")
    data = merlin.load(folder / "data")
    assert data.task == f"{name}?max_steps=7&goal_reward=-0.25&args.size=5"
    assert data.lengths.tolist() == [7] * 5
    assert np.abs(data.desired_goals).max() > 1


@pytest.mark.more
def test_ctrl_c_during_a_collection(folder):
    """One sentence, nothing at the destination, and the same command goes on."""
    asked = ["collect", "slow_world:own/Slow-v0", "--episodes", "200", "--out", "data"]
    with subprocess.Popen(
        [sys.executable, "-P", "-c", INTERRUPTIBLE, *asked, "--workers", "1"],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not list(folder.glob(".data.parts/*.npz")):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "merlin: stopped; run the same command again to resume.\n"
    assert not (folder / "data").exists()
    run(folder, *asked)
    whole = merlin.collect("helpers.own_envs:own/Keyed-v0", "random", episodes=200)
    data = merlin.load(folder / "data")
    np.testing.assert_array_equal(data.actions, whole.actions)
    np.testing.assert_array_equal(data.observations, whole.observations)


def test_info_tells_what_the_environment_said_of_success(folder):
    asked = ["line_world:own/Ends-v0", "--episodes", 60, "--out", "data", "--workers", 1]
    run(folder, "collect", *asked)
    told = merlin.load(folder / "data").provenance["success"]["at_the_end"]
    text = run(folder, "info", "data").stdout
    assert f"at the end of {told:.1%} of them (reported by info['is_success'])" in text
    assert "not counted" not in text


@pytest.mark.more
def test_the_documented_commands(folder):
    """docs/tasks.md word for word, with less training; a film is refused before it plays."""
    page = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
    block = next(b for b in page.split("```\n") if b.startswith("merlin collect ring_world"))
    collect, train, evaluate = (line.split()[1:] for line in block.splitlines()[:3])
    run(folder, *collect)
    small = [
        "--algo",
        "merlin",
        "--set",
        "hidden=32,32",
        "--final-episodes",
        16,
        "--eval-episodes",
        16,
    ]
    done = run(folder, *train, *small)
    assert "merlin eval runs/ring --episodes 1000 --task ring_world:own/Ring-v0" in done.stdout
    told = run(folder, *evaluate, "--episodes", 16, "--json")
    assert json.loads(told.stdout.splitlines()[-1])["success"]["mean"] > 0.5
    refused = run(folder, *evaluate, "--episodes", 16, "--video", "x.gif", code=2)
    assert "cannot be rendered" in refused.stderr
    assert "return" not in refused.stdout  # nothing was played
    # Neither data nor runs make us run their environment's code.
    for command in (["train", "data/ring", "--out", "other"], ["eval", "runs/ring"]):
        assert "pass --task ring_world:own/Ring-v0 to" in run(folder, *command, code=2).stderr
    assert not (folder / "other").exists()
    # But the data can be trained on without it.
    nowhere = ["--task", "none", "--updates", 20, "--out", "nowhere"]
    assert (
        "evaluated on held-out episodes"
        in run(folder, "train", "data/ring", *small, *nowhere).stdout
    )
