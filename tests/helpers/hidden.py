"""Commands in a process in which some packages are not installed."""

import os
import subprocess
import sys
from pathlib import Path

_HIDE = """
import sys
from importlib.machinery import PathFinder

HIDDEN = set({modules!r})

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            return None
        return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""


def without(modules, arguments, folder: Path) -> subprocess.CompletedProcess:
    """What Python does with these arguments where none of the modules can be found."""
    site = folder / "hidden"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(_HIDE.format(modules=tuple(modules)))
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": path},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
