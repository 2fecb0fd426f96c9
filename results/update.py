"""Make the pages of the committed results anew, from their rows.

    python results/update.py

Writes the report of results/state, and the parts of README.md and docs/results.md between the
markers. Nothing there is written by hand, and a test fails when a page is out of date.
"""

import shutil
from pathlib import Path

from merlin.report import rows
from merlin.report.content import build
from merlin.report.markdown import headline, with_headline
from merlin.report.write import write_report

ROOT = Path(__file__).parents[1]
STATE = ROOT / "results" / "state"
FIGURES = ROOT / "docs" / "images" / "results"


def pages() -> dict[Path, str]:
    """Every page that shows results, as it should be."""
    block = headline(build(rows.read([STATE])))
    shown = sorted(path.name for path in FIGURES.glob("*.svg"))
    drawn = "\n\n".join(f"![{Path(name).stem}](images/results/{name})" for name in shown)
    blocks = {
        ROOT / "README.md": block,
        ROOT / "docs" / "results.md": f"{block}\n{drawn}",
    }
    return {path: with_headline(path.read_text(), text) for path, text in blocks.items()}


def main() -> None:
    write_report([STATE], STATE)
    shutil.rmtree(FIGURES, ignore_errors=True)
    shutil.copytree(STATE / "figures", FIGURES)
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
