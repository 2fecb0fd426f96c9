"""The order of layers, the size of files, and what `import merlin` costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
MODULES = sorted(path.relative_to(SOURCE) for path in (SOURCE / "merlin").rglob("*.py"))
MAX_LINES = 400

# From the bottom up: a module may import from its own entry and from those above it in this
# list, never from one below. A new module must be given its place here. The package itself
# stands where its own imports allow; the names it exports are imported when they are used.
LAYERS = [
    "merlin.errors",
    "merlin.plugin",
    "merlin.files",
    "merlin.folders",
    "merlin.tensors",
    "merlin.eye",
    "merlin.foresight",
    "merlin.weights",
    "merlin.runtime",
    "merlin.types",
    "merlin.checkpoint",
    "merlin.progress",
    "merlin.signals",
    "merlin.tasks",
    "merlin.engines",
    "merlin",
    "merlin.data",
    "merlin.nets",
    "merlin.vision",
    "merlin.values",
    "merlin.unet",
    "merlin.transformer",
    "merlin.diffusion",
    "merlin.augment",
    "merlin.experts",
    "merlin.learners",
    "merlin.latents",
    "merlin.methods",
    "merlin.stats",
    "merlin.evaluation",
    "merlin.runs",
    "merlin.streaming",
    "merlin.loop",
    "merlin.preparing",
    "merlin.training",
    "merlin.figures",
    "merlin.video",
    "merlin.toys",
    "merlin.bench",
    "merlin.report",
    "merlin.graph",
    "merlin.mixture_graph",
    "merlin.export",
    "merlin.play",
    "merlin.cli",
]


def dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer(module: str) -> int:
    """Index of the entry that a module belongs to, the package itself only by its full name."""
    for index, entry in enumerate(LAYERS):
        if module == entry or (entry != "merlin" and module.startswith(entry + ".")):
            return index
    raise AssertionError(f"{module} has no place in LAYERS")


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports(path: Path) -> set[str]:
    """Modules of ours that a file imports, anywhere in it."""
    tree = ast.parse((SOURCE / path).read_text())
    if dotted(path) == "merlin":
        tree.body = [node for node in tree.body if not is_type_checking(node)]
    known = {dotted(module) for module in MODULES}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by full name"
            base = node.module or ""
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= {name if name in known else base for name in names}
    return {name for name in found if name == "merlin" or name.startswith("merlin.")}


def test_there_is_something_to_check():
    assert "merlin.learners.base" in imports(Path("merlin/runs.py")) | imports(
        Path("merlin/evaluation.py")
    )
    assert len(MODULES) > 20


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_nothing_imports_what_stands_above_it(path):
    own = layer(dotted(path))
    above = {name for name in imports(path) if layer(name) > own}
    assert not above, f"{dotted(path)} imports {sorted(above)}"


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_file_of_more_than_400_lines_is_two_files(path):
    assert len((SOURCE / path).read_text().splitlines()) <= MAX_LINES


def test_import_merlin_is_light():
    program = "import sys, merlin; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    loaded = set(done.stdout.decode().split())
    heavy = {"jax", "matplotlib", "equinox", "optax", "torch", "gymnasium", "numpy"}
    assert not loaded & (heavy | {"merlin.training", "merlin.tasks.registry"})


@pytest.mark.parametrize("order", ["merlin, gymnasium", "gymnasium, merlin"])
def test_gymnasium_knows_the_tasks_whichever_is_imported_first(order):
    program = f"import {order}; gymnasium.make('merlin/PointReach-v0').reset(seed=0)"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_every_exported_name_exists():
    import merlin

    for name in merlin.__all__:
        assert getattr(merlin, name) is not None
    assert set(dir(merlin)) == set(merlin.__all__)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = merlin.nothing_like_it
