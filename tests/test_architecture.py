"""The order of layers, the size of files, and what `import merlin` costs."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
MODULES = sorted(path.relative_to(SOURCE) for path in (SOURCE / "merlin").rglob("*.py"))
MAX_LINES = 400

# The flow, from left to right: a module imports from its own layer and from those before it.
LAYERS = [
    {"merlin.errors", "merlin.types"},
    {"merlin.io"},
    {"merlin.parallel"},
    {"merlin.envs", "merlin"},  # the package itself registers the tasks with Gymnasium
    {"merlin.data"},
    {"merlin.nets"},
    {"merlin.experts", "merlin.collection"},
    {"merlin.policies"},
    {"merlin.augment"},
    {"merlin.learners"},
    {"merlin.evaluation"},
    {"merlin.training"},
    {"merlin.deploy", "merlin.runtime"},
    {"merlin.bench", "merlin.report", "merlin.toys"},
    {"merlin.cli"},
]


def dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer(module: str) -> int:
    """Index of the layer that a module belongs to."""
    top = ".".join(module.split(".")[:2])
    return next(index for index, names in enumerate(LAYERS) if top in names)


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
    assert "merlin.learners.base" in imports(Path("merlin/training/runs.py")) | imports(
        Path("merlin/learners/merlin.py")
    )
    assert len(MODULES) > 20


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_nothing_imports_what_stands_above_it(path):
    own = layer(dotted(path))
    above = {name for name in imports(path) if layer(name) > own}
    assert not above, f"{dotted(path)} imports {sorted(above)}"


def test_the_runtime_is_independent_of_training():
    """One reads policy files, the other writes them: neither imports the other's arithmetic."""
    reached, waiting = set(), {"merlin.runtime"}
    while waiting:
        reached |= waiting
        paths = [p for p in MODULES if dotted(p) in waiting]
        waiting = set().union(*map(imports, paths)) - reached
    assert "merlin.deploy.mixture" in reached
    packages = {".".join(name.split(".")[:2]) for name in reached}
    assert not packages & {"merlin.nets", "merlin.policies", "merlin.learners", "merlin.augment"}
    for name in ("merlin.deploy.mixture", "merlin.deploy.networks", "merlin.deploy.graph"):
        assert {n.split(".")[1] for n in imports(Path(*name.split(".")).with_suffix(".py"))} <= {
            "deploy",
            "errors",
            "io",
        }


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_file_of_more_than_400_lines_is_two_files(path):
    assert len((SOURCE / path).read_text().splitlines()) <= MAX_LINES


COMMANDS = {  # files that write whole commands: `merlin train --out DIR --resume`
    *("bench/grids.py", "bench/rows.py", "collection/collect.py", "data/formats/ogbench.py"),
    *("envs/frames.py", "experts/library.py", "experts/training.py", "report/run.py"),
    *("training/layout.py", "training/loop.py"),
}


@pytest.mark.parametrize("path", [p for p in MODULES if p.parts[1] != "cli"], ids=dotted)
def test_flags_are_named_only_on_the_command_line(path):
    """A caller of a function reads the names of its arguments; `cli` writes them as flags."""
    strings = [
        node.value
        for node in ast.walk(ast.parse((SOURCE / path).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    flags = [text for text in strings if re.search(r"(?<![\w(-])--[a-z]", text)]
    assert bool(flags) == (str(Path(*path.parts[1:])) in COMMANDS), flags


def test_import_merlin_is_light():
    program = "import sys, merlin; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    loaded = set(done.stdout.decode().split())
    heavy = {"jax", "matplotlib", "equinox", "optax", "torch", "gymnasium", "numpy"}
    assert not loaded & (heavy | {"merlin.training.train", "merlin.envs.registry"})


@pytest.mark.parametrize("order", ["merlin, gymnasium", "gymnasium, merlin"])
def test_gymnasium_knows_the_tasks_whichever_is_imported_first(order):
    program = f"import {order}; gymnasium.make('merlin/PointReach-v0').reset(seed=0)"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_help_works_before_anything_is_imported():
    program = "import merlin; print(dir(merlin)); help(merlin)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    text = done.stdout.decode()
    assert "WGCSL" in text.splitlines()[0]
    for line in ("run = merlin.train(", "class WGCSL(", "train(method", "evaluate(policy"):
        assert line in text


def test_every_exported_name_exists():
    import merlin

    for name in merlin.__all__:
        assert getattr(merlin, name) is not None
    assert set(dir(merlin)) == {*merlin.__all__, "__version__"}
    for name, kind in merlin.LEARNERS.items():
        assert getattr(merlin, kind.__name__) is getattr(merlin.learners, kind.__name__) is kind
        assert re.search(rf"^ +{kind.__name__} +{name} ", merlin.__doc__, re.MULTILINE)
        assert name in merlin.METHODS
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = merlin.nothing_like_it


def test_no_test_file_imports_another():
    for path in Path(__file__).parent.rglob("test_*.py"):
        imported = [
            node.module or ""
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
        ]
        assert not [name for name in imported if name.startswith(("test_", "conftest"))], path
