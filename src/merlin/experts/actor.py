"""The policy of an expert in NumPy, so that worker processes do not need JAX."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from merlin.errors import MerlinError
from merlin.io import tensors

CLIP = 5.0
STANDARDISERS = ("observation_mean", "observation_scale", "goal_mean", "goal_scale")


@dataclass(frozen=True)
class Actor:
    """A deterministic goal-conditioned policy: normaliser, ReLU layers, tanh.

    It computes the same function as `nets.td.act` on `ddpg.Scaling`, with which it is trained, but
    in float64: float32 rounds differently on different processors, and an episode amplifies the
    difference.
    """

    observation_mean: Float[np.ndarray, " observation"]
    observation_scale: Float[np.ndarray, " observation"]
    goal_mean: Float[np.ndarray, " goal"]
    goal_scale: Float[np.ndarray, " goal"]
    weights: tuple[Float[np.ndarray, "inputs outputs"], ...]
    biases: tuple[Float[np.ndarray, " outputs"], ...]

    def __post_init__(self) -> None:
        exact = lambda x: np.asarray(x, np.float64)  # noqa: E731
        for name in STANDARDISERS:
            object.__setattr__(self, name, exact(vars(self)[name]))
        for name in ("weights", "biases"):
            object.__setattr__(self, name, tuple(map(exact, vars(self)[name])))

    def __call__(
        self,
        observation: Float[np.ndarray, "batch observation"],
        goal: Float[np.ndarray, "batch goal"],
    ) -> Float[np.ndarray, "batch action"]:
        state = (observation - self.observation_mean) * self.observation_scale
        wanted = (goal - self.goal_mean) * self.goal_scale
        x = np.concatenate([state, wanted], axis=-1).clip(-CLIP, CLIP)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = np.maximum(x @ weight + bias, 0.0)
        return np.tanh(x @ self.weights[-1] + self.biases[-1])

    def save(self, path: Path) -> None:
        """Write the weights as safetensors, atomically."""
        named = {name: vars(self)[name] for name in STANDARDISERS}
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            named[f"layers.{index}.weight"], named[f"layers.{index}.bias"] = weight, bias
        named = {name: np.ascontiguousarray(array, np.float32) for name, array in named.items()}
        tensors.write(path, named, {"kind": "actor"})

    @classmethod
    def load(cls, path: Path) -> "Actor":
        named, _ = tensors.read(path)
        depth = sum(name.endswith(".weight") for name in named)
        layers = {f"layers.{i}.{part}" for i in range(depth) for part in ("weight", "bias")}
        if set(named) != {*STANDARDISERS, *layers}:
            raise MerlinError(f"{path}: does not contain an expert; train it again.")
        return cls(
            **{name: named[name] for name in STANDARDISERS},
            weights=tuple(named[f"layers.{i}.weight"] for i in range(depth)),
            biases=tuple(named[f"layers.{i}.bias"] for i in range(depth)),
        )
