"""Code blocks of the docs: tutorials are followed, Python runs, commands are understood."""

import re
import shutil

import numpy as np
import pytest

import merlin
from helpers.pages import PAGES, ROOT, blocks, cheaper, commands, follow
from merlin.cli.app import parse

DOCS = ROOT / "docs"
TUTORIALS = {path.stem: path for path in sorted((DOCS / "tutorials").glob("*.md"))}
RUN_ELSEWHERE = {"README.md", "data.md", "tasks.md"}
"""Pages whose Python other tests run."""
WITH_PYTHON = [
    page
    for page in PAGES
    if page.parent == DOCS
    and page.name not in RUN_ELSEWHERE
    and any(language == "python" for language, _ in blocks(page))
]
QUICK = ("methods.md", "api.md", "merlin.md", "merlin-map.md", "deploy.md")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty folder, with its own cache of datasets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MERLIN_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("NPROC", "1")
    return tmp_path


SAID = {
    "own-data": "not supported",
    "own-environment": "is_success",
    "pixels": "(48, 48, 3) uint8",
    "robot": "the goal is not ready: not supported",
}
"""Of every tutorial, words that it must print."""


@pytest.mark.more
@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_can_be_followed(name, home):
    shutil.copytree(ROOT / "examples", home / "examples")
    assert SAID[name] in "".join(follow(TUTORIALS[name], home))


@pytest.mark.more
def test_the_readme_can_be_followed(home):
    printed = follow(ROOT / "README.md", home)
    assert len(printed) == 3  # the three commands, Python, and the reference
    assert (home / "rooms.gif").stat().st_size > 1000
    assert (home / "policy.onnx").exists()
    assert (home / "runs" / "merlin" / "report.html").exists()
    assert (home / "rooms.html").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_scripts_and_targets_exist(page):
    """What a block starts with `python` or `make` is in the repository or made by the page."""
    made = {re.match(r"# (\w+\.py)", content) for _, content in blocks(page)} - {None}
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for language, content in blocks(page):
        if language in ("", "sh"):
            for script in re.findall(r"^python ([\w/.-]+)", content, re.MULTILINE):
                assert script in {one[1] for one in made} or (ROOT / script).exists(), script
            for target in re.findall(r"^make ([\w-]+)", content, re.MULTILINE):
                assert target in targets, target


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page.name in QUICK else pytest.mark.more, id=page.name)
        for page in WITH_PYTHON
    ],
)
def test_python_blocks_run(page, home, run_folder, small_hazard, monkeypatch):
    # At the sizes of its page, Decision Diffuser is compiled and denoises actions for minutes.
    presets = merlin.DecisionDiffuser.presets
    less = {"sampling_steps": 2, "channels": 8, "multipliers": (1, 2)}
    monkeypatch.setitem(presets, "small", presets["small"] | less)
    names = {"state": np.zeros(2), "goal": np.ones(2), "states": np.zeros((3, 2))}
    names["goals"] = names["states"] + 1
    before = PREPARED.get(page.name)
    if before is not None:
        before(home, run_folder)
    ran = 0
    for language, content in blocks(page):
        if language == "python":
            exec(cheaper(content), names)
            ran += 1
    assert ran


def _trained(folder, _, method="merlin-map", pixels=False):
    data = merlin.collect("PointReach", "random", episodes=10, pixels=pixels)
    less = {"updates": 5, "final_episodes": 5, "eval_episodes": 5}
    merlin.train(method, data, out=folder, **less)


PREPARED = {
    "deploy.md": lambda home, run: shutil.copytree(run, home / "runs" / "push"),
    "merlin-map.md": lambda home, run: _trained(home / "runs" / "large", run),
    "pixels.md": lambda home, run: _trained(home / "runs" / "pixels", run, "merlin", True),
}
"""Runs that a page begins with."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_understood(page):
    """Every flag and every positional argument exists."""
    for arguments in commands(page):
        parse(arguments)


def test_commands_are_found():
    """The test above does not pass for want of commands."""
    assert sum(len(commands(page)) for page in PAGES) > 100
    assert ["train", "data/rooms", "--out", "runs/rooms"] in commands(ROOT / "README.md")
    with pytest.raises(merlin.MerlinError):
        parse(["train", "data", "--no-such-flag", "1"])


def test_every_page_has_an_example():
    """A block, or a command within the text where a page is made of rows; notes are diaries, and
    the differences from the paper a list."""
    for page in PAGES:
        if page.parent.name != "notes" and page.name != "differences.md":
            assert blocks(page) or re.search("`(merlin|python) ", page.read_text()), page.name
