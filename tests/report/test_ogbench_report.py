"""OGBench's section of a report: published numbers beside ours, and the success at each goal."""

import pytest

from helpers.bench_rows import parse, scored
from merlin.envs.registry import OGBENCH
from merlin.errors import MerlinError
from merlin.report import content, paper, render, tables, text_tables


def maze(method, seed=0, success=0.5, task="ogbench:pointmaze-medium-navigate-v0", **changes):
    """A row of the grid on OGBench, with five goals of which the first is the easiest."""
    made = scored(0.1, success=success, algo=method, seed=seed, grid="ogbench")
    goals = {"1": 1.0, "2": success, "3": 0.25, "4": 0.0, "5": 0.0}
    return made | {"task": task, "variant": "regenerated", "goals": goals} | changes


def test_ogbench_s_numbers_stand_beside_ours_marked_as_1m_updates():
    report = content.build(parse([maze("hiql", 0, 0.5), maze("hiql", 1, 0.7), maze("merlin")]))
    (section,) = (s for s in report.sections if s.key == "scores-ogbench")
    (found,) = (block for block in section.blocks if isinstance(block, tables.Table))
    assert found.metric == "success"
    ((variant, (line,)),) = found.groups
    cells = dict(zip(found.methods, line.cells, strict=True))
    assert variant == "regenerated"
    assert cells["hiql"].paper == tables.Score(0.79)
    assert cells["hiql"].final.mean == pytest.approx(0.6)
    assert cells["merlin"].paper is None
    page = render.markdown(report)
    assert "hiql 1M updates" in page
    together = f"0.60 ± 0.14 ▼ {text_tables.MINUS}0.19".replace(" ", "\N{NO-BREAK SPACE}")
    assert together in page
    assert "| 0.92 |" in page  # another study's, after 100,000 updates
    assert "1M updates" in render.html(report)
    assert render.latex(report).count("1M updates") == 2


def test_success_at_each_goal_is_a_mean_over_seeds():
    report = content.build(parse([maze("hiql", 0, 0.5), maze("hiql", 1, 0.7)]))
    (found,) = (
        b
        for s in report.sections
        for b in s.blocks
        if s.key == "scores-ogbench"
        if isinstance(b, text_tables.TextTable) and b.key == "ogbench-goals"
    )
    (row,) = found.groups[0].rows
    assert [cell.text for cell in row[1:]] == ["hiql", "2", "1.00", "0.60", "0.25", "0.00", "0.00"]


def test_the_published_numbers_are_of_datasets_that_exist():
    for numbers in paper.ogbench().values():
        assert set(numbers) <= set(OGBENCH)
        assert all(0 <= value <= 1 for found in numbers.values() for (value,) in found.values())


def test_a_goal_without_a_number_is_refused():
    with pytest.raises(MerlinError, match=r"goals\.1 is 'x'"):
        parse([maze("hiql", goals={"1": "x"})])
