"""One self-contained page: markup, style, script, and the policies as data."""

import json
import string
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from merlin.deploy.play.policy_data import policy_data
from merlin.envs.registry import choose
from merlin.errors import MerlinError
from merlin.io.files import check_free, write_bytes
from merlin.training.folder import read_config
from merlin.training.layout import policy_file

MAX_BYTES = 3_000_000
SCRIPTS = ("policy.js", "arena.js", "draw.js", "live.js", "replay.js", "page.js")


def write_page(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    seed: int | None = None,
    checkpoint: str = "final",
    episodes: int = 12,
    task: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Make a page of one policy per run; `episodes` are recorded if it cannot run in the browser.

    Name the environment of the runs as `task` if it is not one of merlin's own.
    """
    out = Path(out)
    if out.suffix not in (".html", ".htm"):
        raise MerlinError(f"out: {out} does not end in .html; give the file that ending.")
    check_free(out, overwrite)
    if not runs:
        raise MerlinError("RUN: none is given; name one or more run folders.")
    folders = [Path(run) for run in runs]
    files = [policy_file(folder, seed, checkpoint) for folder in folders]
    tasks = [_task(folder, task) for folder in folders]
    policies = [
        {"name": name, **policy_data(file, where, episodes)}
        for name, file, where in zip(_names(folders), files, tasks, strict=True)
    ]
    content = render(policies).encode()
    if len(content) > MAX_BYTES:
        raise MerlinError(
            f"{out}: would have {len(content) / 1e6:.1f} MB, more than the {MAX_BYTES / 1e6:.0f} "
            f"that every browser can open; give fewer than {len(folders)} runs."
        )
    write_bytes(out, content)
    return {
        "path": str(out),
        "bytes": len(content),
        "policies": [{k: e[k] for k in ("name", "task", "algo", "seed", "kind")} for e in policies],
    }


def render(policies: Sequence[dict[str, Any]]) -> str:
    """The page as text."""
    tasks = list(dict.fromkeys(e["task"] for e in policies))
    # A "<" could end the script that holds the data; as an escape it means the same in JSON.
    data = json.dumps({"policies": policies}, separators=(",", ":")).replace("<", "\\u003c")
    return string.Template(asset("page.html")).substitute(
        title=f"{', '.join(tasks)}, merlin".replace("<", "&lt;"),
        style=asset("page.css"),
        data=data,
        script="\n".join(map(asset, SCRIPTS)),
    )


def asset(name: str) -> str:
    return (resources.files("merlin.deploy.play") / "assets" / name).read_text()


def _task(folder: Path, asked: str | None) -> Any:
    config = read_config(folder)
    if config.task is None:
        raise MerlinError(f"{folder}: has no task, so no episodes can be played.")
    task = choose(config.task, asked)
    if task is None:
        raise MerlinError("task: episodes cannot be played without a task; name one.")
    task = task.as_seen(config.dimensions[:-2], config.goal)
    task.check_fit(list(config.dimensions), str(folder))
    return task


def _names(folders: Sequence[Path]) -> list[str]:
    """The names of the folders, with as many parents as are needed to make them distinct."""
    parts = [folder.resolve().parts for folder in folders]
    depth = next(
        (
            depth
            for depth in range(1, max(map(len, parts)))
            if len({p[-depth:] for p in parts}) == len(set(parts))
        ),
        1,
    )
    return ["/".join(p[-depth:]) for p in parts]
