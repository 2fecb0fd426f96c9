"""One run as a self-contained page: settings, scores and learning curve."""

import base64
import shlex
from pathlib import Path
from typing import Any

from merlin.envs.names import parse
from merlin.envs.registry import own
from merlin.errors import MerlinError
from merlin.io.files import read_json, refuse_links, write_bytes
from merlin.report import render
from merlin.training.curve import save_curve
from merlin.training.folder import RunConfig, read_config
from merlin.training.results import Result


def write_run_report(folder: Path, out: Path | None = None) -> dict[str, Any]:
    """Write report.html and curve.png for a finished run, into its folder unless `out` is given."""
    config, target = read_config(folder), folder if out is None else out
    at = folder / "result.json"
    if not at.exists():
        raise MerlinError(
            f"{folder}: is not finished; continue it with "
            f"`merlin train --out {shlex.quote(str(folder))} --resume`."
        )
    result = Result.from_json(read_json(at, "a result"), at)
    refuse_links(target)
    curve = save_curve(folder, target)
    picture = base64.b64encode(curve.read_bytes()).decode()
    text = render.page(
        "run.html",
        title=str(folder),
        result=result,
        facts=_facts(config, result),
        picture=picture,
        commands=_commands(folder, config),
    )
    write_bytes(target / "report.html", text.encode())
    return {"page": str(target / "report.html"), "curve": str(curve), "run": str(folder)}


def _facts(config: RunConfig, result: Result) -> dict[str, str]:
    settings = ", ".join(f"{name}={value}" for name, value in config.settings.items())
    return {
        "method": result.algo,
        "task": result.task or "none",
        "data": f"{result.variant or 'own'} data, {config.data.path or 'in memory'}",
        "updates": f"{result.updates:,}",
        "seed" if len(config.seeds) == 1 else "seeds": ", ".join(map(str, config.seeds)),
        "settings": settings,
        "version": result.version or "",
    }


def _commands(folder: Path, config: RunConfig) -> list[str]:
    name = shlex.quote(str(folder))
    if config.task is None:
        return [f"merlin trust {name}", f"merlin export {name} --out policy.onnx"]
    # The code of other environments runs only if the user names them.
    task = "" if own(config.task) else f" --task {shlex.quote(parse(config.task).base)}"
    again = f"merlin eval {name}{task}"
    return [
        f"{again} --episodes 1000",
        f"{again} --video {name}/film.gif",
        f"merlin export {name} --out policy.onnx",
    ]
