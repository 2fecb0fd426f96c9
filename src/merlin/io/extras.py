"""Optional packages: the extra that installs each, and the error if it is missing."""

import importlib
import importlib.util
from typing import Any

from merlin.errors import MerlinError

DISTRIBUTION = "merlin-rl"
"""The name of the distribution; the import name is `merlin`."""
EXTRAS: dict[str, tuple[str, ...]] = {
    "robotics": ("mujoco", "gymnasium_robotics"),
    "sawyer": ("mujoco", "metaworld"),
    "ogbench": ("mujoco", "ogbench"),
    "formats": ("h5py", "minari", "pyarrow", "numcodecs"),
    "plots": ("matplotlib", "PIL", "jinja2", "tensorboardX"),
    "video": ("imageio_ffmpeg",),
    "export": ("onnx", "onnxruntime"),
    "ray": ("ray",),
}
"""The modules that each extra of pyproject.toml is for."""


PROJECTS = {"PIL": "Pillow"}
"""The names of projects that differ from those of their modules."""


def is_installed(module: str) -> bool:
    """Whether a top-level module could be imported."""
    return importlib.util.find_spec(module) is not None


def check(extra: str, what: str) -> None:
    """Raise an error if a module of an extra is missing; `what` names the feature that needs it."""
    for module in EXTRAS[extra]:
        if not is_installed(module):
            raise missing(module, extra, what)


def require(module: str, extra: str, what: str) -> Any:
    """Import a module of an extra; `what` names the feature that needs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise missing(module.partition(".")[0], extra, what) from None


def missing(module: str, extra: str, what: str) -> MerlinError:
    """The error for a module of an extra that is not installed."""
    return MerlinError(
        f"{what} needs {PROJECTS.get(module, module)}, which is not installed; "
        f"run `pip install '{DISTRIBUTION}[{extra}]'`."
    )
