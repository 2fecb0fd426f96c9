"""The machine on which a result was measured."""

import functools
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    *("jax", "jaxlib", "equinox", "optax", "numpy"),
    *("gymnasium", "gymnasium-robotics", "mujoco", "metaworld"),
)


@functools.cache
def machine() -> dict[str, Any]:
    """Processor, memory and versions; nothing that identifies a person or a place."""
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
