"""What a report holds, as a page, Markdown and LaTeX, and the command that writes it."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markupsafe import escape

from helpers import bench_rows
from helpers.bench_rows import parse, scored
from merlin.errors import MerlinError
from merlin.report import content, render, selection, text_tables, write_report


@pytest.fixture(scope="module")
def everything():
    return parse(bench_rows.everything(seeds=2))


@pytest.fixture(scope="module")
def report(everything):
    return content.build(everything)


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
    line = f"| PointReach | {' | '.join(ours)} |"
    for page in (render.headline(small), render.markdown(small)):
        assert line in page.replace("\N{NO-BREAK SPACE}", " ").splitlines()
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
