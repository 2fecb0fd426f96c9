"""Write the files of a report from benchmark folders."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from merlin.errors import MerlinError
from merlin.io.files import refuse_links, write_bytes
from merlin.report import content, render, selection


def write_report(folders: Sequence[Path], out: Path | None = None) -> dict[str, Any]:
    """Write report.html, report.md, headline.md, tables.tex and figures/*.svg.

    They go to the first folder unless `out` is given. The same rows give the same bytes.
    """
    everything = selection.read(folders)
    report = content.build(everything)
    target = folders[0] if out is None else out
    refuse_links(target)
    files = {
        "report.html": render.html(report),
        "report.md": render.markdown(report),
        "headline.md": render.headline(report),
        "tables.tex": render.latex(report),
    }
    files |= {f"figures/{figure.name}.svg": render.svg(figure) for figure in report.figures}
    try:
        for name, text in files.items():
            write_bytes(target / name, text.encode())
    except OSError as error:
        raise MerlinError(f"out {target}: cannot be written ({error.strerror}).") from None
    counted = selection.select(everything)
    return {
        "page": str(target / "report.html"),
        "markdown": str(target / "report.md"),
        "headline": str(target / "headline.md"),
        "latex": str(target / "tables.tex"),
        "figures": [str(target / name) for name in files if name.startswith("figures/")],
        "grids": sorted({row.grid for row in everything}),
        "rows": len(everything),
        "counted": len(counted),
        "failed": len(selection.failures(everything)),
    }
