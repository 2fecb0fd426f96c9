"""`merlin bench`: plans, times, and what cannot be run."""

import json
from dataclasses import replace

import pytest

from merlin.bench.cells import make_row
from merlin.bench.grid_options import GridOptions
from merlin.bench.grids import make_grid
from merlin.bench.results_folder import ResultsFolder
from merlin.errors import MerlinError


def test_an_encoder_has_half_of_the_updates():
    options = GridOptions(("PointReach",), methods=("merlin",), seeds=1, pixels=True, latents=True)
    (cell, _) = make_grid("paper", options)
    half, goals = ("latent_updates", "2500"), ("latent_units", "false")
    assert (cell.updates, cell.settings) == (2500, (half, goals))
    assert cell.command.endswith("--set latent_updates=2500 latent_units=false --out RUN")
    # A door's goal is not all of its state.
    (cell, _) = make_grid("paper", replace(options, tasks=("SawyerDoor",)))
    assert cell.settings == (half,)
    with pytest.raises(MerlinError, match="latents: are made of images; give `pixels` as well"):
        make_grid("paper", replace(options, pixels=False))


def test_dry_run_says_what_would_run_and_for_how_long(call):
    words = ("bench", "paper", "--tasks", "PointReach", "FetchPush", "--methods", "merlin")
    text = call(*words, "--seeds", 2, "--dry-run").out
    assert "PointReach-expert-merlin-s1" in text
    assert "8 cells, 8 to run, about" in text
    found = json.loads(call(*words, "--seeds", 2, "--dry-run", "--json").out)
    assert (len(found["cells"]), found["missing"]) == (8, 8)
    longer = json.loads(call(*words, "--seeds", 4, "--dry-run", "--json").out)
    assert longer["seconds"] > 1.5 * found["seconds"]


def test_a_plan_says_what_is_there_and_what_is_missing(call, tmp_path):
    words = ("bench", "paper", "--tasks", "PointReach", "--methods", "merlin", "dd")
    cells = make_grid("paper", GridOptions(tasks=("PointReach",), methods=("merlin", "dd")))
    results = ResultsFolder(tmp_path)
    results.plan("paper", cells, "merlin bench paper")
    done = next(cell for cell in cells if (cell.variant, cell.algo) == ("random", "merlin"))
    results.add(done, make_row(done, timing={"update_ms": 5.0}))
    text = call(*words, "--plan", "--out", tmp_path).out
    random = next(line for line in text.splitlines() if "PointReach random" in line)
    assert "1 of 4" in random
    assert "merlin 2 (" in random
    assert "8 cells, 7 to run, about" in text
    found = json.loads(call(*words, "--plan", "--out", tmp_path, "--json").out)
    shares = {(s["variant"], s["method"]): (s["done"], s["missing"]) for s in found["shares"]}
    assert shares == {
        ("expert", "merlin"): (0, 3),
        ("expert", "dd (small)"): (0, 1),
        ("random", "merlin"): (1, 2),
        ("random", "dd (small)"): (0, 1),
    }
    assert found["seconds"] > 0
    assert not list((tmp_path / "cells").glob("*/run"))


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["papper"], "grid: 'papper' is unknown; did you mean 'paper'?"),
        (["paper"], "--out: is missing"),
        (["paper", "--tasks", "FetchPsh"], "FetchPsh"),
        (["paper", "--variants", "medium"], "--variants: 'medium'"),
        (["paper", "--methods", "merlim"], "no method is called 'merlim'; did you mean 'merlin'"),
        (["paper", "--seeds", "0"], "--seeds: 0 is not 1 or more"),
        (["paper", "--seed", "-1"], "--seed: -1 is negative"),
        (["paper", "--preset", "huge"], "no method of the grid has a preset 'huge'"),
        (
            ["smoke", "--engine", "cloud", "--out", "OUT"],
            "--engine: 'cloud' is unknown; choose local or ray",
        ),
        (["smoke", "--address", "auto", "--out", "OUT"], "--address: applies only to --engine ray"),
        (["smoke", "--workers", "0", "--out", "OUT"], "--workers: 0 is below 1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_run_is_said_in_a_sentence(call, capsys, tmp_path, words, fragment):
    words = [word.replace("OUT", str(tmp_path / "out")) for word in words]
    with pytest.raises(SystemExit) as stop:
        call("bench", *words)
    assert stop.value.code == 2
    assert fragment in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
