"""Registers the tasks with Gymnasium as soon as Gymnasium is imported.

Importing Gymnasium takes longer than everything a robot needs from merlin, so `import merlin` does
not import it. Gymnasium has no entry points for plugins, so an import hook waits for it.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

REGISTRY = "merlin.envs.registry"
"""Importing this module registers the tasks."""


def register_with_gymnasium() -> None:
    """Register the tasks now if Gymnasium is imported, else when it is imported.

    A run-only install (merlin-rl-runtime) has no tasks.
    """
    if importlib.util.find_spec(REGISTRY) is None:
        return
    if "gymnasium" in sys.modules:
        importlib.import_module(REGISTRY)
    else:
        sys.meta_path.insert(0, _WaitForGymnasium())


class _WaitForGymnasium:
    """Finds Gymnasium as usual, once, and imports the registry after it.

    It does not derive from `MetaPathFinder`, because importing `importlib.abc` would take a tenth
    of the time of `import merlin.runtime`.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                importlib.import_module(REGISTRY)

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec
