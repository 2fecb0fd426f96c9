"""The tasks become Gymnasium environments as soon as there is a Gymnasium to know them.

Importing Gymnasium takes longer than all that a robot needs of merlin, so `import merlin` does not
do it; and Gymnasium has no entry points that would ask us. So we wait for its import.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

REGISTRY = "merlin.envs.registry"
"""Registers the tasks when it is imported."""


def register_with_gymnasium() -> None:
    """Register the tasks now if Gymnasium is imported, else when it will be.

    A run-only install (merlin-rl-runtime) has no tasks.
    """
    if importlib.util.find_spec(REGISTRY) is None:
        return
    if "gymnasium" in sys.modules:
        importlib.import_module(REGISTRY)
    else:
        sys.meta_path.insert(0, _WaitForGymnasium())


class _WaitForGymnasium:
    """Finds Gymnasium where it is anyway, once, and has the registry imported after it.

    A `MetaPathFinder` in all but name: importing `importlib.abc` would take a tenth of the time
    that `import merlin.runtime` takes.
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
