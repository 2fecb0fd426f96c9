"""What all tests share: strict checks, a private data folder, a small dataset and a small run."""

# ruff: noqa: E402 (the order of imports matters here)

import atexit
import gc
import os
import shutil
import tempfile
from pathlib import Path

# Most of a short run is compilation. What one test compiled, other tests and the processes that
# they start find here; set before JAX is imported, since it reads the environment only once.
if "MERLIN_TESTS_SCRATCH" not in os.environ:  # else a worker of pytest-xdist: shared with all
    os.environ["MERLIN_TESTS_SCRATCH"] = tempfile.mkdtemp(prefix="merlin-tests-")
    atexit.register(shutil.rmtree, os.environ["MERLIN_TESTS_SCRATCH"], ignore_errors=True)
_SCRATCH = os.environ["MERLIN_TESTS_SCRATCH"]
os.environ["JAX_COMPILATION_CACHE_DIR"] = f"{_SCRATCH}/compiled"
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
# Compiled with little optimisation: few tests run long enough to earn back the time of more.
# XLA's older way to emit fused loops takes half as long to compile as its present one.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
)
os.environ["MERLIN_DATA"] = f"{_SCRATCH}/data-{os.getpid()}"
# Environments are stepped in the test's own process unless it asks for workers: each of those
# takes seconds of processor time to start.
os.environ["MERLIN_CORES"] = "1"

import jaxtyping

# Shapes and types of these modules are checked at every call. Not merlin.data.dataset: a Dataset
# may hold anything until `validate` has said in words what is wrong with it.
_NETS = ("layers", "cnn", "unet", "transformer", "diffusion", "td", "checkpoint", "hazard")
_CHECKED = ("data.goals", "data.spec", *(f"nets.{name}" for name in _NETS), "policies", "augment")
_LEARNERS = ("base", "actor_critic", "judge", "merlin", "plus", "gcsl", "wgcsl", "am", "gofar")
_CHECKED += tuple(f"learners.{name}" for name in (*_LEARNERS, "distance", "dd", "gdql", "beso"))
_OGBENCH = ("ogbench", "gcbc", "gcivl", "gciql", "qrl", "crl", "hiql")
_CHECKED += tuple(f"learners.{name}" for name in _OGBENCH)
_CHECKED += ("evaluation.statistics",)
jaxtyping.install_import_hook([f"merlin.{name}" for name in _CHECKED], "beartype.beartype")

import sys

import jax
import numpy as np
import optax
import pytest

import merlin
from helpers import browsers
from helpers.pixel_data import POINT
from helpers.sizes import SCHEDULE, SMALL
from merlin.cli import main
from merlin.data import Dataset
from merlin.data.rendering import with_images
from merlin.learners import Merlin, distance

# The extra `ogbench` cannot be installed on Python 3.13 and later: see pyproject.toml.
if sys.version_info >= (3, 13):
    collect_ignore = [
        "bench/test_ogbench_grid.py",
        "collection/test_ogbench_data.py",
        "envs/test_ogbench.py",
    ]
jax.config.update("jax_numpy_dtype_promotion", "strict")
_bias_correction = optax.tree.bias_correction


def _lenient_bias_correction(*arguments):
    """Adam's own, which raises a float to an integer; everything else stays strict."""
    with jax.numpy_dtype_promotion("standard"):
        return _bias_correction(*arguments)


optax.tree.bias_correction = _lenient_bias_correction


@pytest.fixture(scope="session")
def point_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random PointReach dataset on disk; never written to."""
    folder = tmp_path_factory.mktemp("data") / "point"
    return merlin.save(merlin.collect("PointReach", "random", episodes=30), folder)


@pytest.fixture(scope="session")
def point_data(point_folder: Path) -> Dataset:
    return merlin.load(point_folder)


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory, point_data: Dataset) -> Path:
    """A finished run of two seeds; never written to."""
    folder = tmp_path_factory.mktemp("runs") / "point"
    merlin.train(Merlin(**SMALL), point_data, updates=60, seeds=2, out=folder, **SCHEDULE)
    return folder


@pytest.fixture(scope="module")
def small_hazard():
    """A small net for the steps to a goal: most of the time of a short run goes into this model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distance, "HIDDEN", (64, 64))
        yield


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory):
    """One browser for all tests."""
    driver = browsers.start(tmp_path_factory.mktemp("browser"))
    yield driver
    driver.quit()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def minari_store(tmp_path, monkeypatch):
    """A store of its own for every test."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def call(capsys):
    """Run a command; what it printed to stdout and to stderr."""

    def run(*arguments):
        main([str(argument) for argument in arguments])
        return capsys.readouterr()

    return run


@pytest.fixture(scope="session")
def point_states():
    return merlin.collect("PointReach", "random", episodes=6)


@pytest.fixture(scope="session")
def image_folder(point_states, tmp_path_factory):
    path = tmp_path_factory.mktemp("pixels") / "data"
    return merlin.save(with_images(point_states, POINT), path)


@pytest.fixture(scope="session")
def images(image_folder):
    return merlin.load(image_folder)


def pytest_collection_modifyitems(items):
    """Tests in a browser are among those that take longer."""
    for item in items:
        if "browser" in item.fixturenames:
            item.add_marker(pytest.mark.more)


def pytest_collection_finish():
    """What was imported stays, so the garbage collector need not look at it again and again."""
    gc.freeze()
