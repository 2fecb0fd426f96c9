"""Selection of an OpenGL backend that works on this machine."""

import functools
import os
import platform
import subprocess
import sys

from merlin.envs.registry import Task
from merlin.errors import MerlinError


@functools.cache
def pick_gl() -> str:
    """Name of the OpenGL backend to render with on Linux: egl, osmesa or glfw.

    If MUJOCO_GL is set, it decides. Otherwise the first backend that works is used, and MUJOCO_GL
    is set so that worker processes need not try again. Each backend is tried in its own process,
    because a failed one leaves PyOpenGL bound to it.
    """
    wanted = os.environ.get("MUJOCO_GL", "").strip().lower()
    if wanted in ("egl", "osmesa"):
        return wanted
    if wanted:
        return "glfw"
    for backend in ("egl", "osmesa", "glfw"):
        if _draws(backend):
            os.environ["MUJOCO_GL"] = backend
            return backend
    raise MerlinError(
        "no OpenGL backend works on this machine (tried egl, osmesa and glfw), so nothing can be "
        "rendered; install the Debian package libosmesa6 to render without a GPU or a display."
    )


def ready(task: Task) -> None:
    """Select the backend before workers render a task, so that an error is raised here."""
    if task.sees == "image" and task.film is None and platform.system() == "Linux":
        pick_gl()


def _draws(backend: str) -> bool:
    """Whether MuJoCo can open a rendering context with this backend in a new process."""
    program = (
        "import mujoco; gl = mujoco.GLContext(8, 8); gl.make_current();"
        "mujoco.MjrContext(mujoco.MjModel.from_xml_string('<mujoco/>'), 50).free(); gl.free()"
    )
    environment = os.environ | {"MUJOCO_GL": backend}
    probe = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=False
    )
    return probe.returncode == 0
