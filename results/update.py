"""Make the pages of the committed results anew, from their rows.

    python results/update.py

Writes the reports of results/paper and results/pixels, and the parts of README.md, docs/results.md,
docs/claims.md, docs/pixels.md and the pages of methods that are between markers. Nothing there is
written by hand, and a test fails when a page is out of date.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import ablate_plus
import numpy as np

from merlin.bench.rows import Row, read_rows
from merlin.report import selection
from merlin.report.claims import as_tables, findings, totals
from merlin.report.content import build
from merlin.report.coverage import as_table, coverage
from merlin.report.paper import ogbench as published
from merlin.report.render import headline, markdown_table, with_headline
from merlin.report.summary import summary
from merlin.report.tables import METRICS, by_dataset, scores
from merlin.report.text_tables import NONE
from merlin.report.write import write_report

ROOT = Path(__file__).parents[1]
STATE = ROOT / "results" / "paper"
PIXELS = ROOT / "results" / "pixels"
ROOMS = ROOT / "results" / "six"
OGBENCH = ROOT / "results" / "ogbench"
FIGURES = ROOT / "docs" / "images" / "results"


METHODS = (
    *("merlin", "merlin-p", "merlin-np", "merlin-plus", "merlin-map"),
    *("gcsl", "wgcsl", "am", "gofar", "dd", "g-dql", "beso"),
)
"""Those whose page shows what they scored; it has the method's name."""
SIX = ("gcbc", "gcivl", "gciql", "qrl", "crl", "hiql")
"""OGBench's, whose pages show our scores on PointRooms and the published ones."""
FORWARD = ("merlin-mb", "merlin-p", "merlin-ts", "merlin-np", "gcsl-ts", "gcsl")
"""Those that docs/forward.md compares: generated forwards, backwards, or not at all."""


RELEASED = "gofar-release"
"""The preset of weaker variants of baselines, which the README leaves to the full tables."""
NOTHING = "Nothing was measured yet."
FIGURE = "aggregates-states-final"
"""The one that the README shows."""


def rows_of(*folders: Path) -> list[Row]:
    """The rows of those folders that have any."""
    found = [folder for folder in folders if read_rows(folder / "rows.jsonl")]
    return selection.read(found) if found else []


def pages() -> dict[Path, str]:
    """Every page that shows results, as it should be."""
    states, images = rows_of(STATE), rows_of(PIXELS)
    blocks = {
        ROOT / "README.md": short(states, states + images),
        ROOT / "docs" / "results.md": full(states, states + images),
        ROOT / "docs" / "claims.md": decided(states + images),
        ROOT / "docs" / "pixels.md": headline(build(images)) if images else NOTHING,
    }
    for method in METHODS:
        own = [row for row in states if row.algo == method and not row.settings]
        shown = " and ".join(sorted({f"`{row.method}`" for row in own}))
        text = f"Of {shown}.\n\n{headline(build(own))}" if own else NOTHING
        blocks[ROOT / "docs" / f"{method}.md"] = text
    for method in SIX:
        blocks[ROOT / "docs" / f"{method}.md"] = with_published(method, rows_of(ROOMS, OGBENCH))
    blocks[ROOT / "docs" / "forward.md"] = forwards(states)
    blocks[ROOT / "docs" / "merlin-plus.md"] += f"\n{ablations()}"
    return {path: with_headline(path.read_text(), text) for path, text in blocks.items()}


def short(states: Sequence[Row], everything: Sequence[Row]) -> str:
    """One table, one figure, and how many of the paper's claims hold."""
    if not any(row.grid == "paper" for row in states):
        return NOTHING
    states = [row for row in states if row.preset != RELEASED]
    report = build(states)
    _, _, table = markdown_table(summary(states)).partition("\n\n")  # without its title
    held = totals(findings(everything)).replace("Of", "of", 1)
    few = " A dash means fewer than half of the tasks on the same data." if NONE in table else ""
    block = (
        f"{table}\n"
        "Final policies from states, averaged over the tasks that all methods have (their number "
        "in brackets). The return is at most 31.79; rank 1 is the highest. Updates: "
        f"{report.updates.partition('; a cell')[0]}.{few} **What holds:** {held} [The list]"
        "(docs/claims.md) has the statistic that decides each.\n"
    )
    figure = next((figure for figure in report.figures if figure.name == FIGURE), None)
    if figure is None:
        return block
    return f"{block}\n![{figure.title}](docs/images/results/{FIGURE}.svg)"


def full(states: Sequence[Row], everything: Sequence[Row]) -> str:
    """What there is, all tables and all figures."""
    if not states:
        return NOTHING
    figures = sorted(path.name for path in FIGURES.glob("*.svg"))
    drawn = "\n\n".join(f"![{Path(name).stem}](images/results/{name})" for name in figures)
    counted = markdown_table(as_table(coverage(everything)))
    return f"{counted}\n{headline(build(states))}\n{drawn}"


def decided(everything: Sequence[Row]) -> str:
    """Every claim of the paper with what the rows say of it."""
    found = findings(everything)
    return "\n".join([totals(found), "", *map(markdown_table, as_tables(found))])


def forwards(states: Sequence[Row]) -> str:
    """Final return and success of the methods that differ in the direction of time."""
    usual = {row.cell: row for row in states if not row.settings and row.preset is None}.values()
    own = [row for row in usual if row.algo in FORWARD and row.final]
    datasets = by_dataset(own)
    shared = [d for d, found in datasets.items() if set(FORWARD) <= found.keys()]
    if not shared:
        return NOTHING
    means = {
        (dataset, method): [np.mean(scores(datasets[dataset][method], "final", m)) for m in METRICS]
        for dataset in shared
        for method in FORWARD
    }
    lines = [
        [f"{task} {variant}", *(_pair(means[(variant, task), method]) for method in FORWARD)]
        for variant, task in shared
    ]
    averages = [np.mean([means[d, method] for d in shared], axis=0) for method in FORWARD]
    lines.append(["Average", *map(_pair, averages)])
    seeds = sorted({len(datasets[d][method]) for d in shared for method in FORWARD})
    return (
        "Return / success of the policy after the last update. Updates: "
        f"{build(own).updates}. Seeds per dataset: {' to '.join(map(str, seeds))}. Made by `merlin "
        "bench forward-backward` and `merlin bench stitching`.\n\n"
        + _table(["data", *FORWARD], lines)
    )


def with_published(method: str, rows: Sequence[Row]) -> str:
    """What a method of OGBench scored here, and the success that others published."""
    own = [row for row in rows if row.algo == method and row.final]
    parts = []
    if own:
        lines = [
            [
                f"{row.task.removeprefix('ogbench:')} {row.variant}",
                f"`{row.preset or 'default'}`",
                f"{row.updates:,}",
                f"{row.final['episodes']:,.0f}",
                f"{row.final['return']:.2f} / {row.final['success']:.2f}",
            ]
            for row in own
        ]
        commands = sorted({row.command.removeprefix("NPROC=1 ") for row in own})
        parts += [
            "**Measured here**, one seed per row, the policy after the last update:",
            _table(["data", "preset", "updates", "episodes", "return / success"], lines),
            f"Made by `{commands[0]}`" + (", and so on." if len(commands) > 1 else "."),
        ]
    else:
        parts.append("Nothing was measured here yet.")
    known = published()
    lines = [
        [
            task.removeprefix("ogbench:").removesuffix("-v0"),
            *(_percent(known[budget].get(task, {}).get(method)) for budget in ("1M", "100k")),
        ]
        for task in known["1M"] | known["100k"]
        if any(method in known[budget].get(task, {}) for budget in ("1M", "100k"))
    ]
    parts += [
        "**Published**, not measured here: success in percent after 1M updates (OGBench, 8 seeds) "
        "and, where there is a number, the best evaluation within 100,000 updates (another study, "
        "10 seeds). `merlin bench ogbench` shows them beside our rows.",
        _table(["data", "1M updates", "100,000 updates"], lines),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _pair(numbers: Sequence[float]) -> str:
    return " / ".join(f"{number:.2f}" for number in numbers)


def _percent(numbers: Sequence[float] | None) -> str:
    return NONE if numbers is None else f"{100 * numbers[0]:.0f}"


def _table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(columns) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [columns, rule, *lines]) + "\n"


def ablations() -> str:
    """One setting of Merlin-plus changed at a time, if any of that was measured."""
    if not ablate_plus.read():
        return ""
    played = ", ".join(f"{one.task} {one.variant} {one.played:,}" for one in ablate_plus.DATA)
    return (
        "**Ablation: one setting changed at a time**, seed 0, return / success. 5,000 updates on "
        "2,000 episodes (FetchPush: 10,000 updates on 10,000 episodes). Seeded evaluation "
        f"episodes: {played}. `candidates=0` removes the judge; `candidates=2` keeps the two "
        "proposals for a horizon of one step and samples none. Scores marked"
        f"{ablate_plus.EARLIER} belong to earlier defaults (a classifier as the distance, the "
        "latest parameters; see the [notes](notes/merlin-plus.md)). Compare them with each other "
        "only. The rows are in results/plus-ablations.jsonl; `python results/ablate_plus.py --runs "
        "runs/ablations` computes those that are missing.\n\n"
        f"{ablate_plus.table()}\n"
    )


def main() -> None:
    shutil.rmtree(FIGURES, ignore_errors=True)
    for folder in (STATE, PIXELS):
        shutil.rmtree(folder / "figures", ignore_errors=True)
        if rows_of(folder):
            write_report([folder], folder)
    if (STATE / "figures").exists():
        shutil.copytree(STATE / "figures", FIGURES)
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
