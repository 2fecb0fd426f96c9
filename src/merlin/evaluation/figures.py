"""The style of all figures."""

import io
from pathlib import Path

from matplotlib.figure import Figure

from merlin.io.files import write_bytes

INK, BLUE, GREEN, RED, GREY = "#22272e", "#2f6fb7", "#2e9e5b", "#c8443a", "#9aa3ad"


def save(figure: Figure, path: Path) -> Path:
    """Write a figure. Without pyplot, it needs no window system and is freed after use."""
    content = io.BytesIO()
    kind = path.suffix.lstrip(".")
    figure.savefig(content, format=kind, dpi=150, bbox_inches="tight", metadata={"Software": None})
    write_bytes(path, content.getvalue())
    return path
