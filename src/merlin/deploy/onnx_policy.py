"""Call an exported policy in the same way as any other; ONNX Runtime is imported on first use."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from merlin.errors import MerlinError
from merlin.io.observations import rows_of, state_and_goal

SUFFIX = ".onnx"


class OnnxPolicy:
    """A policy that `merlin export` wrote."""

    def __init__(self, path: Path):
        try:
            runtime = importlib.import_module("onnxruntime")
        except ModuleNotFoundError:  # not the extra: the run-only wheel has none
            raise MerlinError(
                f"{path}: needs onnxruntime, which is not installed; run `pip install onnxruntime`."
            ) from None
        if not path.is_file():
            raise MerlinError(f"{path}: is not a file; write one with `merlin export`.")
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # it warns that the horizon has a default
        options.intra_op_num_threads = 1
        try:
            self._session = runtime.InferenceSession(str(path), options)
        except Exception as error:  # its exceptions have no common base class
            words = str(error).partition("\n")[0][:120]
            raise MerlinError(f"{path}: cannot be read ({words}); export it again.") from None
        inputs = {given.name: tuple(given.shape[1:]) for given in self._session.get_inputs()}
        if self._session.get_modelmeta().producer_name != "merlin" or "goal" not in inputs:
            raise MerlinError(f"{path}: is not a policy of merlin; give one of `merlin export`.")
        told = [given.name for given in self._session.get_overridable_initializers()]
        self._takes = {*inputs, *told}  # some policies take no horizon
        self._shapes = inputs | {"horizon": ()}

    def __call__(
        self, observation: Any, goal: Any = None, horizon: float | None = None
    ) -> np.ndarray:
        """The action for an observation and a goal, or one for every row of a batch.

        Takes both, or Gymnasium's dict with `observation` and `desired_goal`. A given horizon
        replaces the policy's default.
        """
        state, wanted = state_and_goal(observation, goal)
        parts, rows = rows_of(state, wanted, horizon, self._shapes)
        told = {name: x for name, x in parts.items() if name in self._takes}
        if rows is not None:
            return self._session.run(["action"], told)[0]
        (actions,) = self._session.run(["action"], {name: x[None] for name, x in told.items()})
        return actions[0]
