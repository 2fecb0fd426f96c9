"""Which OpenGL back end can draw on this machine."""

import functools
import os
import platform
import subprocess
import sys

from merlin.envs.registry import Task
from merlin.errors import MerlinError


@functools.cache
def pick_gl() -> str:
    """Name of the OpenGL back end to render with on Linux: egl, osmesa or glfw.

    MUJOCO_GL decides if it is set. Otherwise the first one that draws in a process of its own is
    taken, because a back end that failed to start leaves PyOpenGL bound to it, and MUJOCO_GL is
    set so that worker processes need not try again.
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
        "no OpenGL back end starts here (tried egl, osmesa and glfw), so nothing can be rendered: "
        "install the Debian package libosmesa6 for rendering without a GPU or a display."
    )


def ready(task: Task) -> None:
    """Before workers film a task: look once for all of them, and complain here if there is none."""
    if task.sees == "image" and task.film is None and platform.system() == "Linux":
        pick_gl()


def _draws(backend: str) -> bool:
    """Whether MuJoCo can open a drawing context with this back end in a fresh process."""
    program = (
        "import mujoco; gl = mujoco.GLContext(8, 8); gl.make_current();"
        "mujoco.MjrContext(mujoco.MjModel.from_xml_string('<mujoco/>'), 50).free(); gl.free()"
    )
    environment = os.environ | {"MUJOCO_GL": backend}
    probe = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=False
    )
    return probe.returncode == 0
