"""How much of the paper was measured, what its claims come to, and the summary of both."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from helpers import bench_rows
from helpers.bench_rows import parse, scored
from merlin.envs.registry import TASKS
from merlin.report import selection
from merlin.report.claims import FAILS, HOLDS, UNDECIDED, findings, totals
from merlin.report.coverage import DATASETS, METHODS, coverage
from merlin.report.render import markdown_table
from merlin.report.summary import summary

RESULTS = Path(__file__).parents[2] / "results"
ASKED = [200, 20, 20, 80, 100, 80, 100, 120, 10, 10]
"""Cells of each table and figure, as the paper has them."""
VARIANTS = ("expert", "random")


def by_title(rows):
    return {one.title: one for one in coverage(rows)}


@pytest.fixture(scope="module")
def states():
    """The whole of the main table, the diffusion methods small."""
    return parse(
        bench_rows.row(task, variant, algo, preset="small" if algo in ("dd", "beso") else None)
        for task in TASKS
        for variant in VARIANTS
        for algo in METHODS
    )


# Coverage


def test_the_committed_results_are_counted_by_the_same_function(call):
    folders = [RESULTS / "paper", RESULTS / "pixels"]
    found = coverage(selection.read(folders))
    assert [one.asked for one in found] == ASKED
    told = json.loads(call("report", *folders, "--coverage", "--json").out)["coverage"]
    assert [(one["there"], one["asked"]) for one in told] == [(c.there, c.asked) for c in found]
    page = (RESULTS.parent / "docs" / "results.md").read_text()
    for one in found:
        assert f"| {one.title} | {one.there} | {one.asked} | {one.aside} |" in page


def test_nothing_is_there_without_rows_and_everything_with_all(states):
    assert [(one.there, one.asked) for one in coverage([])] == [(0, asked) for asked in ASKED]
    found = by_title(states)
    main = found["Return and success from states"]
    assert (main.there, main.missing, main.in_words()) == (200, {}, "")
    # Rows of one table fill no other.
    assert found["Forward and backward"].there == 0


def test_what_is_missing_is_named(states):
    lacking = {("beso", "PointReach", "random"), *(("dd", "Reacher", v) for v in VARIANTS)}
    kept = [r for r in states if (r.algo, r.task, r.variant) not in lacking]
    kept = [r for r in kept if r.task != "FetchPick"]
    found = by_title(kept)["Return and success from states"]
    assert found.there == 200 - 3 - 20
    said = "dd on Reacher; all on FetchPick; beso on PointReach random"
    assert sorted(found.in_words().split("; ")) == sorted(said.split("; "))


def test_rows_on_other_data_or_after_other_updates_are_set_aside(states):
    other = {"fingerprint": "f" * 64}
    changes = {
        ("gcsl", "Reacher"): {"data": other},
        ("wgcsl", "FetchPush"): {"updates": 9},
    }
    rows = [replace(r, **changes.get((r.algo, r.task), {})) for r in states]
    found = by_title(rows)["Return and success from states"]
    assert (found.there, found.aside) == (196, 4)
    assert found.missing["Reacher expert"] == {"gcsl"}
    # Settings and presets that the paper's method does not have are other columns.
    tuned = [replace(r, settings={"horizon": "9"}) for r in states if r.algo == "merlin"]
    released = [replace(r, preset="gofar-release") for r in states if r.algo == "wgcsl"]
    assert by_title([*tuned, *released])["Return and success from states"].there == 0


def test_figures_and_times_are_counted_by_tile():
    ratios = [
        bench_rows.row("Reacher", "expert", grid="hindsight", settings={"hindsight_ratio": ratio})
        for ratio in ("0.0", "0.5")
    ]
    told = {h: {"return": 1.0, "success": 1.0} for h in ("1", "10")}
    horizons = [
        bench_rows.row("Reacher", "expert", grid="horizon", horizons=told),
        bench_rows.row("Reacher", "expert", grid="horizon", settings={"horizon": "none"}),
    ]
    timed = [bench_rows.row(algo=a, grid="timing", pixels=True) for a in ("merlin", "dd")]
    found = by_title(parse([*ratios, *horizons, *timed]))
    assert found["Hindsight ratio"].there == 2
    assert found["Hindsight ratio"].missing["Reacher expert"] == {"0.2", "0.8", "1"}
    assert found["Horizon"].there == 3
    assert "5, 20, 50 on Reacher expert" in found["Horizon"].in_words()
    assert found["Time from pixels"].there == 2
    assert found["Time from states"].there == 0


# Claims


def finding(rows, claim):
    every = [one for _, own in findings(rows) for one in own]
    return next(one for one in every if one.claim.startswith(claim))


def returns(values, **changes):
    """One row per dataset and method; `values` maps methods to their return."""
    return parse(
        scored(value, task=task, variant=variant, algo=algo, **changes)
        for task in TASKS
        for variant in VARIANTS
        for algo, value in values.items()
    )


def test_a_claim_holds_or_does_not_by_its_interval():
    rows = returns({"merlin": 20.0, "gcsl": 15.0, "wgcsl": 25.0, "am": 20.0})
    held = finding(rows, "merlin returns more than gcsl")
    assert (held.verdict, held.value.value, held.there) == (HOLDS, 1.0, 20)
    assert finding(rows, "merlin returns more than wgcsl").verdict == FAILS
    equal = finding(rows, "merlin returns more than am")
    assert equal.in_words() == "undecided: the interval includes no difference"


def test_few_rows_decide_nothing():
    rows = returns({"merlin": 20.0, "gcsl": 15.0})
    few = [row for row in rows if row.task in ("Reacher", "PointReach", "FetchPush", "FetchPick")]
    found = finding(few, "merlin returns more than gcsl")
    assert (found.verdict, found.value) == (UNDECIDED, None)
    assert found.in_words() == "undecided: 8 of 20 cells"
    assert totals(findings([])) == "Of 40 claims 0 hold, 0 do not, and 40 are undecided."


def test_rows_on_different_data_are_never_compared():
    """Nor those of another seed: what is left of them decides nothing."""
    rows = returns({"merlin": 20.0, "am": 18.0, "gcsl": 15.0})
    elsewhere = [
        replace(row, data={"fingerprint": "f" * 64}) if row.algo == "gcsl" else row for row in rows
    ]
    assert finding(elsewhere, "merlin returns more than gcsl").there == 0
    assert finding(elsewhere, "merlin returns more than am").there == 20
    other_seed = [replace(row, seed=1) if row.algo == "gcsl" else row for row in rows]
    assert finding(other_seed, "merlin returns more than gcsl").there == 0


def test_pairs_are_of_the_same_seed():
    """Seeds differ by more than methods do; of each pair Merlin is ahead."""
    rows = [
        row
        for seed, base in enumerate((5.0, 15.0))
        for row in returns({"merlin": base + 1.0, "gcsl": base}, seed=seed)
    ]
    assert finding(rows, "merlin returns more than gcsl").value.value == 1.0


def test_the_best_on_average_is_compared_with_the_second():
    values = dict.fromkeys(METHODS, 10.0) | {"merlin-np": 12.0, "gofar": 11.0}
    found = finding(returns(values), "merlin-np has the highest return")
    assert (found.verdict, found.value.value) == (HOLDS, 1.0)
    assert finding(returns(values | {"gofar": 13.0}), "merlin-np has the highest").verdict == FAILS


def test_settings_are_compared_within_kinds_of_data():
    rows = [
        row
        for ratio in ("0.2", "0.5", "0.8", "1")
        for row in returns(
            {"merlin": 10.0 * float(ratio)}, grid="hindsight", settings={"hindsight_ratio": ratio}
        )
    ]
    assert finding(rows, "On expert data a low").verdict == FAILS
    assert finding(rows, "On random data a high").verdict == HOLDS
    told = {
        h: {"return": 30.0 - float(h) / 5, "success": 1.0} for h in ("1", "5", "10", "20", "50")
    }
    rows = [
        *returns({"merlin": 20.0}, grid="horizon", horizons=told),
        *returns({"merlin": 10.0}, grid="horizon", settings={"horizon": "none"}),
    ]
    assert finding(rows, "Merlin is better with a horizon").verdict == HOLDS
    easier, harder = (finding(rows, f"On {kind} tasks") for kind in ("easier", "harder"))
    assert (easier.verdict, easier.there) == (HOLDS, 12)
    assert (harder.verdict, harder.there) == (FAILS, 8)


def test_times_are_compared_on_the_same_task_at_the_sizes_of_releases():
    def timed(algo, update, action, **changes):
        times = {"update_ms": update, "action_us": {"1": action}}
        return bench_rows.row(algo=algo, grid="timing", timing=times, **changes)

    rows = [timed("merlin", 5.0, 50.0), timed("g-dql", 25.0, 3000.0)]
    rows += [timed("dd", 40.0, 4000.0, preset="small"), timed("beso", 99.0, 9e9, task="Reacher")]
    found = parse(rows)
    update = finding(found, "An update of g-dql from states")
    assert (update.verdict, update.value.value) == (FAILS, pytest.approx(5.0))
    assert finding(found, "An action of g-dql from states").verdict == HOLDS
    for name in ("dd", "beso"):
        assert finding(found, f"An update of {name} from states").in_words() == (
            "undecided: 0 of 1 cells"
        )


# The summary


def test_the_summary_averages_what_all_methods_have():
    rows = [
        *returns({"merlin": 20.0, "gcsl": 10.0}),
        *parse([scored(30.0, task="Reacher", algo="am")]),
    ]
    text = markdown_table(summary(rows))
    assert "|  | merlin | gcsl |\n" in text  # am is on one of ten tasks
    expert = "| Expert (10): return | **20.00** | 10.00 |\n| success | **1.00** | **1.00** |\n"
    assert f"{expert}| rank | **1.00** | 2.00 |\n| Random (10): return | **20.00** |" in text
    (lone,) = returns({"merlin": 20.0})[:1]
    alone = markdown_table(summary([lone]))
    assert "| Expert (1): return | 20.00 |\n| success | 1.00 |\n| rank | 1.00 |" in alone
    assert "Random" not in alone
    assert len(DATASETS) == 20
