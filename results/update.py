"""Make the pages of the committed results anew, from their rows.

    python results/update.py

Writes the reports of results/state and results/pixels, and the parts of README.md, docs/results.md,
docs/pixels.md and the pages of methods that are between markers. Nothing there is written by hand,
and a test fails when a page is out of date.
"""

import shutil
from pathlib import Path

import ablate_plus

from merlin.report import selection
from merlin.report.content import build
from merlin.report.render import headline, with_headline
from merlin.report.write import write_report

ROOT = Path(__file__).parents[1]
STATE = ROOT / "results" / "state"
PIXELS = ROOT / "results" / "pixels"
FIGURES = ROOT / "docs" / "images" / "results"


METHODS = (
    *("merlin", "merlin-p", "merlin-np", "merlin-plus"),
    *("gcsl", "wgcsl", "am", "gofar", "dd", "g-dql", "beso"),
)
"""Those whose page shows what they scored; it has the method's name."""


def pages() -> dict[Path, str]:
    """Every page that shows results, as it should be."""
    known = selection.read([STATE])
    block = headline(build(known))
    figures = sorted(path.name for path in FIGURES.glob("*.svg"))
    drawn = "\n\n".join(f"![{Path(name).stem}](images/results/{name})" for name in figures)
    blocks = {
        ROOT / "README.md": block,
        ROOT / "docs" / "results.md": f"{block}\n{drawn}",
        ROOT / "docs" / "pixels.md": headline(build(selection.read([PIXELS]))),
    }
    for method in METHODS:
        own = [row for row in known if row.algo == method and not row.settings]
        shown = " and ".join(sorted({f"`{row.method}`" for row in own}))
        blocks[ROOT / "docs" / f"{method}.md"] = f"Of {shown}.\n\n{headline(build(own))}"
    blocks[ROOT / "docs" / "merlin-plus.md"] += f"\n{ablations()}"
    return {path: with_headline(path.read_text(), text) for path, text in blocks.items()}


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
        f"{ablate_plus.EARLIER} belong to an earlier setting ([round 3](notes/merlin-plus.md), "
        "commit d697b1c). They are comparable with the others only for `candidates=0`, the "
        "mixture alone. The rows are in results/plus-ablations.jsonl; `python "
        "results/ablate_plus.py --runs runs/ablations` computes those that are missing.\n\n"
        f"{ablate_plus.table()}\n"
    )


def main() -> None:
    for folder in (STATE, PIXELS):
        write_report([folder], folder)
    shutil.rmtree(FIGURES, ignore_errors=True)
    shutil.copytree(STATE / "figures", FIGURES)
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
