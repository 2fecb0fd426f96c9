"""Rows to tables, heat maps and times, by hand."""

import numpy as np
import pytest

from helpers import bench_rows
from helpers.bench_rows import parse, scored
from merlin.evaluation import evaluate as evaluation
from merlin.report import (
    ablations,
    aggregates,
    content,
    paper,
    render,
    selection,
    tables,
    text_tables,
)


def plain(page: str) -> str:
    """A page without its no-break spaces."""
    return page.replace("\N{NO-BREAK SPACE}", " ")


def table(made, metric="return", grid="paper", pixels=False):
    return tables.build(selection.select(parse(made)), grid=grid, pixels=pixels, metric=metric)


def test_a_cell_by_hand():
    """Final 28 and 29: mean 28.5, deviation 0.71; best 30 and 30; the paper has 29.26."""
    found = table([scored(28.0, best=30.0), scored(29.0, best=30.0, seed=1)])
    ((variant, (line,)),) = found.groups
    (cell,) = line.cells
    assert (variant, line.name) == ("random", "PointReach")
    assert (text_tables.number(cell.final), text_tables.number(cell.best)) == (
        "28.50 ± 0.71",
        "30.00 ± 0.00",
    )
    assert cell.paper == tables.Score(29.26, 0.04)
    assert (
        text_tables.mark(cell.difference("final")),
        text_tables.mark(cell.difference("best")),
    ) == (
        f"▼ {text_tables.MINUS}0.76",
        "▲ +0.74",
    )


def test_one_seed_has_no_deviation_and_equal_numbers_no_difference():
    ((_, (line,)),) = table([scored(29.262)]).groups
    assert text_tables.number(line.cells[0].final) == "29.26"
    assert text_tables.mark(line.cells[0].difference("final")) == "= 0.00"


def test_averages_ranks_and_winners_by_hand():
    made = [
        scored(10.0, algo="merlin"),
        scored(20.0, algo="gcsl"),
        scored(10.0, algo="merlin", task="Reacher"),
        scored(10.0, algo="gcsl", task="Reacher"),
    ]
    ((_, (first, second, average, rank)),) = table(made).groups
    assert first.winners("final") == {1}
    assert second.winners("final") == {0, 1}
    assert [text_tables.number(c.final) for c in average.cells] == ["10.00", "15.00"]
    assert [text_tables.number(c.final) for c in rank.cells] == ["1.75", "1.25"]
    assert rank.winners("final") == {1}
    numbers = paper.tables()["state_return"]["random"]
    mean = np.mean([numbers[task]["gcsl"][0] for task in ("PointReach", "Reacher")])
    assert average.cells[1].paper.mean == pytest.approx(mean)


def test_a_method_with_few_datasets_takes_no_part_in_averages():
    tasks = ("PointReach", "Reacher", "FetchReach")
    made = [scored(10.0, task=t, algo=a) for t in tasks for a in ("merlin", "gcsl")]
    made += [
        scored(99.0, algo="am"),
        scored(5.0, algo="beso"),
        scored(5.0, task="Reacher", algo="beso"),
    ]
    ((_, (*_, average, _rank)),) = table(made).groups
    assert average.name == "Average, 2 of 3 datasets"
    assert [text_tables.number(c.final) for c in average.cells] == [
        "10.00",
        "10.00",
        text_tables.NONE,
        "5.00",
    ]


def test_each_grid_is_compared_with_its_own_table_of_the_paper():
    get = paper.table
    assert get("paper", pixels=False, metric="success") is paper.tables()["state_success"]
    assert get("smoke", pixels=True, metric="return") is paper.tables()["pixel_return"]
    assert get("stitching", pixels=False, metric="return")["random"]["Reacher"].keys() == {
        *("merlin", "merlin-np", "gcsl", "gcsl-ts")
    }
    assert get("forward-backward", pixels=False, metric="success") == {}
    assert get("stitching", pixels=True, metric="return") == {}


def test_the_highest_return_follows_from_the_length_of_episodes():
    """At the goal in every step: 1 + 0.98 + 0.98^2 in three steps; 31.79 in the paper's 50."""
    assert evaluation.DISCOUNT == 0.98
    fifty, three, unknown = parse(
        [
            scored(1.0),
            scored(1.0) | {"task": "somebody:Else-v0", "episode_steps": 3},
            scored(1.0) | {"task": "somebody:Else-v0"},
        ]
    )
    assert aggregates.highest_return(fifty) == pytest.approx(31.79, abs=0.005)
    assert aggregates.highest_return(three) == pytest.approx(1 + 0.98 + 0.9604)
    assert aggregates.highest_return(unknown) is None
    short = [{"task": f"E{i}", "episode_steps": 3} for i in range(2)]
    found = aggregates.aggregate(
        parse([scored(1.4702) | task for task in short]), "final", source="states"
    )
    assert found.returns["merlin"].value == pytest.approx(0.5, abs=1e-4)
    text = content.build(parse([scored(1.0) | task for task in short])).sections[1].blocks[0]
    assert "the highest possible one, 2.94." in text


def test_a_cell_with_other_updates_than_its_row_is_marked():
    """Two methods with 9,000 updates and one with 2,000; elsewhere all have 500."""
    made = [scored(10.0, algo=a, updates=9000) for a in ("merlin", "gcsl")]
    made += [scored(20.0, algo="am", updates=2000)]
    made += [scored(5.0, algo=a, task="Reacher", updates=500) for a in ("merlin", "gcsl", "am")]
    report = content.build(parse(made))
    assert report.updates == "500; on PointReach 9,000; a cell with another number says so"
    assert ("Updates", report.updates) in report.facts
    line = next(
        li for li in plain(render.headline(report)).splitlines() if li.startswith("| PointReach")
    )
    ours, other, third = line.split(" | ")[1:]
    assert third == "**20.00 (25.55 ▼) after 2k updates** |"
    assert "updates" not in ours + other
    assert render.headline(report).count("after 2k updates") == 2  # return and success
    assert '<span class="updates">after 2k updates</span>' in render.html(report)
    assert "20.00 (25.55 $\\downarrow$) after 2k updates" in render.latex(report)
    both = [scored(1.0), scored(1.0, variant="expert", updates=7), scored(1.0, task="Reacher")]
    assert content.build(parse(both)).updates == "5,000; on PointReach expert 7"
    # An encoder's updates are part of those of the method that learns from its latents.
    latents = {"pixels": True, "updates": 7, "settings": {"latent_updates": "4993"}}
    assert content.build(parse([scored(1.0, pixels=True), scored(1.0, **latents)])).updates == (
        "5,000"
    )
    grids = [scored(1.0), scored(1.0, grid="stitching", updates=7)]
    facts = dict(content.build(parse(grids)).facts)
    assert (facts["Updates, paper"], facts["Updates, stitching"]) == ("5,000", "7")


def test_a_cell_on_other_data_than_its_row_is_marked_and_not_ranked():
    """am would win on Reacher, but was trained on data that nobody else had."""
    tasks = ("PointReach", "Reacher", "FetchReach")
    made = [scored(10.0, task=t, algo=a) for t in tasks for a in ("merlin", "gcsl", "am")]
    other = scored(30.0, algo="am", task="Reacher", data={"fingerprint": "f00"})
    made = [r for r in made if (r["algo"], r["task"]) != ("am", "Reacher")] + [other]
    report = content.build(parse(made))
    line = next(
        li for li in plain(render.headline(report)).splitlines() if li.startswith("| Reacher")
    )
    assert line.split(" | ")[3].startswith("30.00 (23.70 ▲) on other data")
    ((_, (*_, reacher, _fetch, average, _rank)),) = table(made).groups
    assert reacher.winners("final") == {0, 1}
    assert average.name == "Average, 2 of 3 datasets"
    assert text_tables.number(average.cells[2].final) == "10.00"


def test_settings_and_presets_make_a_method_of_their_own():
    made = [scored(1.0), scored(2.0, preset="small"), scored(3.0, settings={"hidden": "32"})]
    assert table(made).methods == ("merlin", "merlin (hidden=32)", "merlin (small)")


# Ablations and timing


def test_the_heat_maps_by_hand():
    made = [
        scored(10.0, grid="hindsight", settings={"hindsight_ratio": "0.2"}),
        scored(20.0, grid="hindsight", settings={"hindsight_ratio": "1.0"}),
        scored(30.0, grid="hindsight", settings={"hindsight_ratio": "1.0"}, seed=1),
        scored(0.0, grid="hindsight", settings={"hindsight_ratio": "0.2"}, task="Reacher"),
    ]
    found = ablations.hindsight(parse(made))
    assert (found.columns, found.names) == (("0.2", "1"), ("PointReach random", "Reacher random"))
    np.testing.assert_allclose(found.values, [[10, 25], [0, np.nan]])
    np.testing.assert_allclose(found.normalised, [[0.4, 1], [0, np.nan]])


def test_the_horizon_none_comes_from_rows_of_its_own():
    told = {h: {"return": float(h), "success": 1.0} for h in ("10", "1", "5")}
    made = [
        bench_rows.row(grid="horizon", horizons=told),
        scored(20.0, grid="horizon", settings={"horizon": "none"}),
    ]
    found = ablations.horizon(parse(made))
    assert found.columns == ("1", "5", "10", "None")
    np.testing.assert_allclose(found.values, [[1, 5, 10, 20]])


def test_times_are_means_over_tasks():
    costs = [
        {"update_ms": 2.0, "action_us": {"100": 9.0, "1": 3.0}},
        {"update_ms": 4.0, "before_s": 50.0},
    ]
    made = [bench_rows.row("Reacher", timing=costs[0]), bench_rows.row(timing=costs[1])]
    update, one, hundred, before = ablations.timing(parse(made))
    assert (before.name, before.costs) == ("Before the first update", {"merlin": 50.0})
    assert (update.costs, update.unit) == ({"merlin": 3.0}, "ms")
    assert (one.costs, one.name) == ({"merlin": 3.0}, "One action")
    assert hundred.costs == {"merlin": 9.0}
