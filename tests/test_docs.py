"""What README and docs tell people to type works."""

import dataclasses
import importlib
import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

import merlin
from helpers import bench_rows
from helpers.pages import blocks, cheaper

ROOT = Path(__file__).parent.parent


def code(page, language):
    return [content for name, content in blocks(ROOT / page) if name == language]


@pytest.mark.parametrize("page", ["README.md", "docs/data.md"])
def test_python_examples_run(page, small_hazard, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = code(page, "python")
    names = {}
    exec(cheaper(block), names)
    assert isinstance(names["run"], merlin.Run)


def test_the_method_in_contributing_trains(tmp_path, monkeypatch):
    """One file and one line in LEARNERS are enough."""
    (block,) = code("CONTRIBUTING.md", "python")
    (tmp_path / "median_cloning.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    learner = importlib.import_module("median_cloning").MedianCloning
    assert '"median": MedianCloning,' in (ROOT / "CONTRIBUTING.md").read_text()
    monkeypatch.setitem(merlin.LEARNERS, "median", learner)
    states = np.random.default_rng(0).uniform(-0.5, 0.5, (4, 6, 2))
    episodes = [
        merlin.Episode(observations=s, actions=np.diff(s, axis=0), achieved_goals=s) for s in states
    ]
    data = merlin.Dataset.from_episodes(episodes)
    run = merlin.train("median", data, updates=20, out=tmp_path / "run")
    again = merlin.load_run(tmp_path / "run").policy
    np.testing.assert_array_equal(again(states[0, 0], states[0, 1]), run.policy(*states[0, :2]))


def test_commands_in_the_readme_exist():
    from merlin.cli.app import COMMANDS

    lines = [line for block in code("README.md", "") for line in block.splitlines()]
    used = {line.split()[1] for line in lines if line.startswith("merlin ")}
    assert used >= {"tasks", "train", "eval"}
    assert used <= set(COMMANDS)


def test_links_and_pictures_are_there():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        targets = re.findall(r"\]\(([^)#]+)\)", page.read_text())
        for target in (t for t in targets if not t.startswith("http")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_table_of_experts_is_that_of_their_cards():
    from merlin.experts import library

    page = (ROOT / "docs" / "experts.md").read_text()
    shipped = sorted(path.stem for path in library.folder().glob("*.json"))
    assert len(shipped) >= 9
    for task in map(merlin.TASKS.__getitem__, shipped):
        card = library.card(task)
        assert f"| {task.name} | {card['success']:.2f} | {card['return']:.2f} |" in page


PARTS = ("Idea", "Usage", "Settings", "Results", "When to use it")


@pytest.mark.parametrize("method", merlin.METHODS)
def test_every_method_has_a_page(method):
    """With its idea, a command that trains it, settings, results and advice."""
    row = re.search(rf"^\| `{method}` \|.*\]\(([\w-]+\.md)\)", methods_page(), re.MULTILINE)
    assert row, "it is not in the table of docs/methods.md"
    page = (ROOT / "docs" / row[1]).read_text()
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert [part for part in PARTS if part not in headings] == []
    trained = method if method != merlin.DEFAULT_METHOD else ""
    assert re.search(rf"merlin train .*{trained and f'--algo {trained} '}", page)
    if method in merlin.LEARNERS:
        named = re.findall(r"`(\w+)`", page[page.index("## Settings") :])
        fields = {field.name for field in dataclasses.fields(merlin.LEARNERS[method])}
        assert [name for name in fields if name not in named] == []


def methods_page():
    return (ROOT / "docs" / "methods.md").read_text()


@pytest.fixture
def update(monkeypatch):
    """`results/update.py` as a module."""
    monkeypatch.syspath_prepend(ROOT / "results")
    place = importlib.util.spec_from_file_location("update", ROOT / "results" / "update.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_pages_show_the_committed_results(update):
    """README and docs are what `python results/update.py` makes of the rows."""
    for path, text in update.pages().items():
        assert path.read_text() == text, f"{path.name}: run `python results/update.py`"
    for figure in (update.STATE / "figures").glob("*.svg"):
        assert (update.FIGURES / figure.name).read_bytes() == figure.read_bytes()


def test_pages_are_made_of_few_rows_as_well(update, tmp_path, monkeypatch):
    for name in ("STATE", "PIXELS", "FIGURES"):
        monkeypatch.setattr(update, name, tmp_path / name)
    pages = update.pages()
    for name in ("README.md", "docs/results.md", "docs/pixels.md", "docs/merlin.md"):
        assert f"<!-- results -->\n\n{update.NOTHING}" in pages[ROOT / name]
    assert "undecided: 0 of 20 cells" in pages[ROOT / "docs/claims.md"]
    bench_rows.write(tmp_path / "STATE", [bench_rows.row("Reacher", "expert", "merlin")])
    pages = update.pages()
    assert "| merlin |" in pages[ROOT / "README.md"]
    assert "| Return and success from states | 1 | 200 | 0 |" in pages[ROOT / "docs/results.md"]
    assert update.NOTHING in pages[ROOT / "docs/gcsl.md"]


def test_every_committed_row_can_be_traced():
    folders = [path.parent for path in (ROOT / "results").glob("*/bench.json")]
    assert folders
    for folder in folders:
        commands = json.loads((folder / "bench.json").read_text())["commands"]
        assert all(command.startswith("merlin bench ") for command in commands)
        for line in (folder / "rows.jsonl").read_text().splitlines():
            row = json.loads(line)
            assert row["status"] == "done", row["cell"]
            assert row["command"].startswith("NPROC=1 merlin train ")
            assert row["data"]["command"].startswith("merlin collect ")
            assert row["version"]
            assert row["machine"]["packages"]["jax"]
