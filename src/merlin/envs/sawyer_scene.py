"""MuJoCo models of the Sawyer tasks, and their camera.

The arm and its meshes come from the installed Meta-World package; hand, table and door are built
here. Collisions are enabled only where the task needs them: fingers and table, or hook and door.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import platform
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from merlin.envs.gl import pick_gl

ARM_JOINTS = tuple(f"right_j{i}" for i in range(7))
# Quarter turn about y: the x axis of the hand points down, its y axis away from the robot.
HAND_ORIENTATION = (1.0, 0.0, 1.0, 0.0)
DOOR_ORIGIN = np.array((0.0, 0.725, 0.1))
HINGE = np.array((0.21, 0.0, 0.0))
HANDLE = np.array((-0.05, -0.06, 0.05))
HANDLE_HALF_SIZE = (0.1085, 0.01, 0.01)

_X_ALONG_WRIST = np.array((1.0, 0.0, -1.0, 0.0))
_BOX = mujoco.mjtGeom.mjGEOM_BOX
_TOUCHES_TABLE = {"contype": 1, "conaffinity": 1}
_TOUCHES_DOOR = {
    "contype": 2,
    "conaffinity": 2,
    # Stiffer than the weld that drives the hook, so that it cannot pass through the bar.
    "solref": (0.006, 1.0),
    "solimp": (0.99, 0.999, 0.001, 0.5, 2.0),
}
_GHOST = {"contype": 0, "conaffinity": 0, "mass": 0.0}
_STEEL = (0.35, 0.35, 0.38, 1.0)
_BRASS = (0.9, 0.7, 0.15, 1.0)
_WOOD = (0.72, 0.56, 0.38, 1.0)
_DARK_WOOD = (0.42, 0.29, 0.18, 1.0)


def reach_model(width: int, height: int) -> mujoco.MjModel:
    """Sawyer with a closed two-finger hand over a table whose top is at height 0."""
    spec = _arm(width, height)
    spec.option.timestep = 0.002
    # Finger tips 0.045 m below the observed point: they rest on the table in the reset pose,
    # which lies below the workspace, and never touch it from within the workspace.
    hand = _attach_hand(spec, weld_time_constant=0.01)
    hand.add_geom(type=_BOX, pos=(-0.05, 0, 0), size=(0.005, 0.055, 0.005), rgba=_STEEL, **_GHOST)
    for side in (-1, 1):
        hand.add_geom(
            type=_BOX,
            pos=(0, 0.012 * side, 0),
            size=(0.045, 0.008, 0.015),
            rgba=(0.85, 0.85, 0.9, 1.0),
            **_TOUCHES_TABLE,
        )
    _add_table(spec, height=0.0)
    return spec.compile()


def door_model(width: int, height: int) -> mujoco.MjModel:
    """Sawyer with an L-shaped hook in front of a cabinet whose door has a bar handle.

    The door turns about joint "door", closed at 0, and swings towards the robot.
    """
    spec = _arm(width, height)
    spec.option.timestep = 0.003
    spec.joint("right_j0").range = (-1.5, 1.5)
    spec.joint("right_j6").range = (-0.01, 0.01)
    # The locked wrist holds the hook straight only if it is mounted at this angle.
    hand = _attach_hand(spec, weld_time_constant=0.005, turn=0.59)
    hand.add_geom(
        type=_BOX, pos=(0, 0.03, 0), size=(0.01, 0.03, 0.01), rgba=_BRASS, **_TOUCHES_DOOR
    )
    hand.add_geom(
        type=_BOX, pos=(0.01, 0.05, 0), size=(0.03, 0.01, 0.01), rgba=_BRASS, **_TOUCHES_DOOR
    )
    hand.add_geom(type=_BOX, pos=(-0.035, 0, 0), size=(0.035, 0.01, 0.01), rgba=_BRASS, **_GHOST)
    _add_door(spec)
    _add_table(spec, height=-0.12)
    return spec.compile()


def door_rotation(angle: float) -> NDArray[np.float64]:
    """Rotation matrix of the door opened by `angle` radians."""
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array(((cos, -sin, 0.0), (sin, cos, 0.0), (0.0, 0.0, 1.0)))


def handle_position(angle: float) -> NDArray[np.float64]:
    """World position of the middle of the handle bar with the door opened by `angle` radians."""
    return DOOR_ORIGIN + HINGE + door_rotation(angle) @ (HANDLE - HINGE)


def _assets() -> Path:
    """Folder of Meta-World's models, found without importing the package."""
    package = importlib.util.find_spec("metaworld")
    assert package is not None  # `import merlin.envs.sawyer` has checked it
    assert package.origin is not None
    return Path(package.origin).parent / "assets"


def _arm(width: int, height: int) -> mujoco.MjSpec:
    """Meta-World's arm without gripper, cameras and collisions, with simple lighting."""
    spec = mujoco.MjSpec.from_file(str(_assets() / "objects" / "xyz_base.xml"))
    spec.compiler.inertiagrouprange = (0, 5)  # our own geoms have mass in every group
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    spec.option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    spec.option.iterations = 50
    spec.detach_body(spec.body("hand"))
    for camera in list(spec.cameras):
        camera.delete()
    for geom in spec.geoms:
        geom.contype = geom.conaffinity = 0
    for name in ARM_JOINTS:
        spec.joint(name).armature = 0.1
    spec.add_texture(
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=(0.75, 0.83, 0.9),
        rgb2=(0.55, 0.62, 0.7),
        width=32,
        height=32,
    )
    spec.worldbody.add_light(
        pos=(-1.0, -1.0, 2.0), dir=(0.5, 0.7, -1.0), diffuse=(0.5, 0.5, 0.5), castshadow=False
    )
    # These take most of the time in software rendering and are invisible in small frames.
    quality, buffer = spec.visual.quality, getattr(spec.visual, "global")
    quality.shadowsize = quality.offsamples = 0
    buffer.offwidth, buffer.offheight = width, height
    spec.visual.headlight.ambient = (0.4, 0.4, 0.4)
    return spec


def _attach_hand(
    spec: mujoco.MjSpec, weld_time_constant: float, turn: float = 0.0
) -> mujoco.MjsBody:
    """Add body "hand" below the wrist and weld it to the mocap body that drives it.

    `turn` is the angle about the wrist at which the hand is mounted.
    """
    mount = np.zeros(4)
    mujoco.mju_mulQuat(
        mount, np.array((np.cos(turn / 2), 0, 0, np.sin(turn / 2))), np.sqrt(0.5) * _X_ALONG_WRIST
    )
    hand = spec.body("right_hand").add_body(name="hand", pos=(0, 0, 0.12), quat=mount)
    same_pose = np.zeros(11)
    same_pose[6] = same_pose[10] = 1.0  # no rotation between the two, full weight on orientation
    spec.add_equality(
        type=mujoco.mjtEq.mjEQ_WELD,
        objtype=mujoco.mjtObj.mjOBJ_BODY,
        name1="mocap",
        name2="hand",
        solref=(weld_time_constant, 1.0),
        data=same_pose,
    )
    return hand


def _add_table(spec: mujoco.MjSpec, height: float) -> None:
    spec.worldbody.add_geom(
        type=_BOX,
        pos=(0, 0.7, height - 0.03),
        size=(0.6, 0.45, 0.03),
        rgba=(0.8, 0.8, 0.77, 1.0),
        **_TOUCHES_TABLE,
    )


def _add_door(spec: mujoco.MjSpec) -> None:
    spec.worldbody.add_geom(
        type=_BOX,
        pos=DOOR_ORIGIN + np.array((0, 0.21, 0)),
        size=(0.22, 0.2, 0.22),
        rgba=_DARK_WOOD,
        **_GHOST,
    )
    door = spec.worldbody.add_body(name="door", pos=DOOR_ORIGIN)
    door.add_joint(
        name="door",
        type=mujoco.mjtJoint.mjJNT_HINGE,
        pos=HINGE,
        axis=(0, 0, 1),
        limited=True,
        range=(0.0, 1.0472),
        damping=0.1,
        # With the default limits the stiffer weld would push the door far into the cabinet.
        solref_limit=(0.006, 1.0),
        solimp_limit=(0.99, 0.999, 0.001, 0.5, 2.0),
    )
    door.add_geom(type=_BOX, size=(0.20, 0.01, 0.20), rgba=_WOOD, **_TOUCHES_DOOR)
    door.add_geom(type=_BOX, pos=HANDLE, size=HANDLE_HALF_SIZE, rgba=_STEEL, **_TOUCHES_DOOR)
    for x in (0.05, -0.15):
        door.add_geom(
            type=_BOX,
            pos=(x, -0.03, 0.05),
            size=(0.01, 0.03, 0.01),
            rgba=_STEEL,
            **_TOUCHES_DOOR,
        )


@dataclass(frozen=True)
class View:
    """Camera pose, in degrees and metres around the point it looks at."""

    lookat: tuple[float, float, float]
    distance: float
    azimuth: float
    elevation: float


@dataclass(frozen=True)
class Marker:
    """A shape in the frame that is not part of the simulation."""

    shape: mujoco.mjtGeom
    size: tuple[float, float, float]
    position: NDArray[np.float64]
    rotation: NDArray[np.float64]
    rgba: tuple[float, float, float, float] = (0.1, 0.8, 0.2, 0.45)


class Camera:
    """Renders a model off screen; holds an OpenGL context until `close`."""

    def __init__(self, model: mujoco.MjModel, view: View):
        buffer = model.vis.global_
        self._model = model
        self._viewport = mujoco.MjrRect(0, 0, buffer.offwidth, buffer.offheight)
        self._gl = _gl_context_class()(buffer.offwidth, buffer.offheight)
        self._gl.make_current()
        self._context: mujoco.MjrContext | None = mujoco.MjrContext(
            model, mujoco.mjtFontScale.mjFONTSCALE_50
        )
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._scene = mujoco.MjvScene(model, maxgeom=100)
        flags = mujoco.mjtRndFlag
        # The meshes have holes: with culled back faces, the sky shows through the arm.
        for flag in (flags.mjRND_SHADOW, flags.mjRND_REFLECTION, flags.mjRND_CULL_FACE):
            self._scene.flags[flag] = False
        self._option = mujoco.MjvOption()
        self._camera = mujoco.MjvCamera()
        self._camera.lookat[:] = view.lookat
        self._camera.distance = view.distance
        self._camera.azimuth = view.azimuth
        self._camera.elevation = view.elevation
        # A context that is still open when Python exits is freed too late and prints errors.
        atexit.register(_close_if_alive, weakref.ref(self))

    def frame(self, data: mujoco.MjData, markers: Iterable[Marker] = ()) -> NDArray[np.uint8]:
        """Render the scene to an array (height, width, 3), top row first; keeps the state."""
        scene = self._scene
        mujoco.mjv_updateScene(
            self._model,
            data,
            self._option,
            None,
            self._camera,
            mujoco.mjtCatBit.mjCAT_ALL,
            scene,
        )
        for marker in markers:
            mujoco.mjv_initGeom(
                scene.geoms[scene.ngeom],
                marker.shape,
                np.array(marker.size),
                marker.position,
                marker.rotation.ravel(),
                np.array(marker.rgba, dtype=np.float32),
            )
            scene.ngeom += 1
        pixels = np.empty((self._viewport.height, self._viewport.width, 3), dtype=np.uint8)
        self._gl.make_current()
        mujoco.mjr_render(self._viewport, scene, self._context)
        mujoco.mjr_readPixels(pixels, None, self._viewport, self._context)
        return np.flipud(pixels).copy()

    def close(self) -> None:
        """Free the OpenGL context; the camera cannot be used afterwards."""
        if self._context is not None:
            self._gl.make_current()
            self._context.free()
            self._gl.free()
            self._context = None

    def __del__(self) -> None:
        if hasattr(self, "_context"):  # __init__ may have failed earlier
            self.close()


_CAMERAS: weakref.WeakValueDictionary[tuple[Any, ...], Camera] = weakref.WeakValueDictionary()


def shared_camera(scene: type, model: mujoco.MjModel, view: View) -> Camera:
    """One camera for all environments of a kind and size, since opening one takes half a second.

    It lives as long as it is referenced. Models of one scene are copies of each other, so the
    camera can render any of them.
    """
    buffer = model.vis.global_
    key = (scene, int(buffer.offwidth), int(buffer.offheight))
    camera = _CAMERAS.get(key)
    if camera is None:
        camera = _CAMERAS[key] = Camera(model, view)
    return camera


def _close_if_alive(camera: weakref.ref[Camera]) -> None:
    alive = camera()
    if alive is not None:
        alive.close()


def _gl_context_class() -> Any:
    """MuJoCo's context class for the backend of `pick_gl`."""
    if platform.system() != "Linux":
        return mujoco.GLContext
    return importlib.import_module(f"mujoco.{pick_gl()}").GLContext
