"""Build what a release consists of: python tools/wheels.py dist

merlin_rl-V.tar.gz and merlin_rl-V-py3-none-any.whl are the package. merlin_rl_runtime-V-*.whl holds
the modules that `import merlin.runtime` reaches, and needs NumPy and safetensors alone: an extra
can add dependencies to a package but not take any away.
"""

import ast
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
RUNTIME = "merlin.runtime"
RUNTIME_NEEDS = ("numpy", "safetensors")
PYPROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "merlin-rl-runtime"
dynamic = ["version"]
description = "Act with policies that merlin-rl trained, with NumPy alone."
readme = "README.md"
requires-python = "{python}"
license = "MIT"
license-files = ["LICENSE"]
dependencies = {dependencies}

[tool.setuptools.dynamic]
version = {{ attr = "merlin.__version__" }}

[tool.setuptools.packages.find]
where = ["src"]
"""
README = """# merlin-rl-runtime

`merlin.runtime` of merlin-rl without the rest: it reads policy files and acts with them. Install it
on a robot in place of merlin-rl, not beside it; both bring the same files.
"""


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        # From a copy: setuptools leaves a build folder, and adds old files in it to new wheels.
        whole, small = Path(temporary) / "whole", Path(temporary) / "runtime"
        whole.mkdir()
        for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
            shutil.copy(ROOT / name, whole)
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(SOURCE, whole / "src", ignore=ignored)
        _build(whole, out)
        _write_runtime(small)
        _build(small, out, "--wheel")


def _build(tree: Path, out: Path, *options: str) -> None:
    command = [sys.executable, "-m", "build", *options, "--outdir", str(out.resolve()), str(tree)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    print(done.stdout.strip().splitlines()[-1])


def _write_runtime(tree: Path) -> None:
    """A source tree of the modules that the runtime reaches."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [text for text in about["dependencies"] if text.startswith(RUNTIME_NEEDS)]
    for path in reached():
        target = tree / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    text = PYPROJECT.format(python=about["requires-python"], dependencies=needed)
    (tree / "pyproject.toml").write_text(text)
    (tree / "README.md").write_text(README)
    shutil.copy(ROOT / "LICENSE", tree)


def reached() -> list[Path]:
    """The files of the runtime and of all that it imports, now or later."""
    known = {_dotted(path): path for path in SOURCE.rglob("*.py")}
    found: set[str] = set()
    waiting = {RUNTIME}
    while waiting:
        name = waiting.pop()
        found.add(name)
        parents = {name.rpartition(".")[0]} - {""}
        waiting |= (parents | (_imports(known[name]) & known.keys())) - found
    return sorted(known[name] for name in found)


def _dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path) -> set[str]:
    """Names of modules that a file imports, except for type checkers alone."""
    tree = ast.parse(path.read_text())
    tree.body = [n for n in tree.body if not (isinstance(n, ast.If) and _for_types(n))]
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module or ""} | {f"{node.module}.{a.name}" for a in node.names}
    return names


def _for_types(node: ast.If) -> bool:
    return ast.unparse(node.test) == "TYPE_CHECKING"


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
