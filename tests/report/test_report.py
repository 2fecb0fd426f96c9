"""Rows to tables, and the same tables as Markdown and LaTeX."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from markupsafe import escape

from helpers import bench_rows
from helpers.bench_rows import parse, scored
from merlin.errors import MerlinError
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
    write_report,
)


@pytest.fixture(scope="module")
def everything():
    return parse(bench_rows.everything(seeds=2))


@pytest.fixture(scope="module")
def report(everything):
    return content.build(everything)


# Tables


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
    line = next(li for li in render.headline(report).splitlines() if li.startswith("| PointReach"))
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
    line = next(li for li in render.headline(report).splitlines() if li.startswith("| Reacher"))
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


# What a report holds


def test_sections_are_there_when_their_rows_are(report):
    assert [section.key for section in report.sections] == [
        "scores-paper",
        "aggregates",
        "curves-states",
        "scores-paper-pixels",
        "aggregates-pixels",
        "curves-pixels",
        "scores-forward-backward",
        "scores-stitching",
        "ablations",
        "timing",
        "failures",
        "provenance",
    ]
    names = [figure.name for figure in report.figures]
    assert len(names) == len(set(names))


def test_one_row_makes_a_report():
    small = content.build(parse([scored(27.414, best=28.926, grid="smoke")]))
    assert [s.key for s in small.sections] == ["scores-smoke", "curves-states", "provenance"]
    assert small.title == "merlin on PointReach"
    less = f"▼ {text_tables.MINUS}"
    ours = (f"27.41 {less}1.85", f"28.93 {less}0.33", "29.26 ± 0.04")
    assert f"| PointReach | {' | '.join(ours)} |" in render.headline(small).splitlines()
    assert f"| PointReach | {' | '.join(ours)} |" in render.markdown(small).splitlines()
    assert "PointReach & " + " & ".join(map(render.escape_tex, ours)) in render.latex(small)
    page = render.html(small)
    for shown in (">27.41</a>", ">28.93</a>", "</i> 29.26", f">{less}1.85<", f">{less}0.33<"):
        assert shown in page


def test_nothing_but_failures_makes_a_report():
    page = render.html(content.build(parse([bench_rows.failed("It broke.")])))
    assert "It broke." in page


def test_final_and_best_never_meet_in_one_number():
    """Final is 10 in every row, best 20: no mean, rank or aggregate lies between them."""
    made = [
        scored(10.0, best=20.0, success=0.5, task=t, algo=a, seed=s)
        for t in ("PointReach", "Reacher")
        for a in ("merlin", "gcsl", "am")
        for s in (0, 1)
    ]
    found = content.build(parse(made))
    for line in (li for t in found.tables for _, lines in t.groups for li in lines):
        if t_is_return(line):
            assert {c.final.mean for c in line.cells} == {10.0}
            assert {c.best.mean for c in line.cells} == {20.0}
    flats = {
        b.protocol: b
        for s in found.sections
        for b in s.blocks
        if isinstance(b, text_tables.TextTable) and b.key.startswith("aggregates")
    }
    assert flats["final"].groups[0].rows[0][1].text.startswith(f"{10 / 31.79:.3f}")
    assert flats["best"].groups[0].rows[0][1].text.startswith(f"{20 / 31.79:.3f}")


def t_is_return(line):
    return not line.lowest_wins and line.cells[0].final.mean > 1


def test_every_number_leads_to_its_rows(report, everything):
    page = render.html(report)
    links = set(re.findall(r'href="#(rows-[^"]+)"', page))
    anchors = re.findall(r'<tbody id="(rows-[^"]+)"', page)
    assert len(links) > 100
    assert links <= set(anchors)
    assert len(anchors) == len(set(anchors))
    assert all(f"<code>{escape(row.command)}</code>" in page for row in everything)


def test_the_page_asks_for_nothing_and_escapes_everything(everything):
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    made = [
        bench_rows.row() | {"command": evil, "settings": {evil: evil}, "version": evil},
        bench_rows.row(task="Reacher") | {"task": evil, "variant": evil, "algo": evil},
        bench_rows.failed(evil) | {"cell": evil, "machine": {"cpu": evil}, "data": {"name": evil}},
    ]
    found = content.build(parse(made))
    page = render.html(found)
    assert evil not in page
    assert page.count("<script") == 1
    assert "<img" not in page
    assert not re.search(r"(src|href)=\"(?!#|data:,)", page)
    assert "url(" not in page
    text = render.markdown(found)
    assert "<script" not in text.replace(f"`{' '.join(evil.split())}`", "")
    assert all("<script" not in render.svg(figure) for figure in found.figures)


# Markdown and LaTeX


def test_markdown_tables_are_whole(report):
    text = render.markdown(report)
    widths = []
    for line in text.splitlines():
        if line.startswith("|"):
            widths.append(len(re.findall(r"(?<!\\)\|", line)))
        elif widths:
            assert len(set(widths)) == 1, line
            widths = []
    for figure in report.figures:
        assert f"(figures/{figure.name}.svg)" in text
    assert "▼" in text


def test_the_headline_goes_between_its_markers(report):
    block = render.headline(report)
    assert "Discounted return from states, final" in block
    assert "best (in brackets" not in block
    page = f"# A\n{render.START}\nold\n{render.END}\nrest\n"
    new = render.with_headline(page, block)
    assert "old" not in new
    assert new.endswith(f"{render.END}\nrest\n")
    assert render.with_headline(new, block) == new
    with pytest.raises(MerlinError, match="each once"):
        render.with_headline("# A", block)


def test_latex_is_balanced_and_escaped(report):
    text = render.latex(report)
    opened = re.findall(r"\\begin\{(\w+)\}", text)
    assert opened.count("table") == opened.count("tabular") > 4
    assert sorted(opened) == sorted(re.findall(r"\\end\{(\w+)\}", text))
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == opened.count("table")
    assert re.sub(r"\\.", "", text).count("{") == re.sub(r"\\.", "", text).count("}")
    for block in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end", text, re.DOTALL):
        for line in (li for li in block[1].splitlines() if "&" in li):
            assert line.count("&") == len(block[0]) - 1
            assert line.endswith(r"\\")
    assert text.isascii()
    assert render.escape_tex("50 % of a_b & {x}\\~") == (
        r"50 \% of a\_b \& \{x\}\textbackslash{}\textasciitilde{}"
    )


# The command


def test_the_command_writes_all_files(call, tmp_path):
    one = bench_rows.write(tmp_path / "one", [scored(27.0 + s, seed=s) for s in (0, 1)])
    two = bench_rows.write(tmp_path / "two", [bench_rows.row("Reacher")])
    assert str(one / "report.html") in call("report", one, two).out
    page = (one / "report.html").read_bytes()
    found = json.loads(call("report", one, two, "--out", tmp_path / "out", "--json").out)
    assert (found["rows"], found["counted"], found["failed"]) == (3, 3, 0)
    assert found["page"] == str(tmp_path / "out" / "report.html")
    assert (tmp_path / "out" / "report.html").read_bytes() == page  # nothing but the rows matters
    report = content.build(selection.read([one, two]))
    files = {"report.md": render.markdown, "headline.md": render.headline}
    for name, made in (files | {"tables.tex": render.latex}).items():
        assert (tmp_path / "out" / name).read_text() == made(report)
        assert "27.50" in made(report), name  # the mean of the two seeds
    names = ("aggregates-states-final", "aggregates-states-best", "curves-states-return")
    assert {*names} < {Path(figure).stem for figure in found["figures"]}
    for path, figure in zip(found["figures"], report.figures, strict=True):
        assert path == str(tmp_path / "out" / "figures" / f"{figure.name}.svg")
        assert Path(path).read_text() == render.svg(figure)
        assert Path(path).read_text().startswith("<svg ")
        # The profiles and both curves are of one method, the aggregates of it as well.
        drawn = ElementTree.parse(path).findall(".//*[@class='drawn']")
        assert len(drawn) == (1 if figure.name.startswith("profiles") else 2), path


def test_the_command_answers_bad_input_with_a_sentence(capsys, tmp_path):
    from merlin.cli import main

    for arguments in ([], [tmp_path / "nothing"]):
        with pytest.raises(SystemExit) as stopped:
            main(["report", *map(str, arguments)])
        assert stopped.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_report_that_cannot_be_written(tmp_path):
    folder = bench_rows.write(tmp_path / "rows", [bench_rows.row()])
    (tmp_path / "file").write_text("")
    with pytest.raises(MerlinError, match="cannot be written"):
        write_report([folder], tmp_path / "file")
