"""An expert that acts with NumPy alone, so that worker processes need no JAX."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from jaxtyping import Float

from merlin.errors import MerlinError
from merlin.files import write_bytes

CLIP = 5.0


@dataclass(frozen=True)
class Actor:
    """A deterministic goal-conditioned policy: normaliser, ReLU layers, tanh.

    The same formula as `values.act`, which trains it.
    """

    observation_mean: Float[np.ndarray, " observation"]
    observation_scale: Float[np.ndarray, " observation"]
    goal_mean: Float[np.ndarray, " goal"]
    goal_scale: Float[np.ndarray, " goal"]
    weights: tuple[Float[np.ndarray, "inputs outputs"], ...]
    biases: tuple[Float[np.ndarray, " outputs"], ...]

    def __call__(
        self,
        observation: Float[np.ndarray, "batch observation"],
        goal: Float[np.ndarray, "batch goal"],
    ) -> Float[np.ndarray, "batch action"]:
        x = np.concatenate(
            [
                np.clip(
                    (observation - self.observation_mean) * self.observation_scale, -CLIP, CLIP
                ),
                np.clip((goal - self.goal_mean) * self.goal_scale, -CLIP, CLIP),
            ],
            axis=-1,
        ).astype(np.float32)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = np.maximum(x @ weight + bias, 0.0)
        return np.tanh(x @ self.weights[-1] + self.biases[-1])

    def save(self, path: Path) -> None:
        """Write as safetensors, atomically."""
        named: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("observation_mean", "observation_scale", "goal_mean", "goal_scale")
        }
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            named[f"layers.{index}.weight"], named[f"layers.{index}.bias"] = weight, bias
        named = {name: np.ascontiguousarray(array, np.float32) for name, array in named.items()}
        write_bytes(path, safetensors.numpy.save(named, {"merlin": json.dumps("actor")}))

    @classmethod
    def load(cls, path: Path) -> "Actor":
        try:
            named = safetensors.numpy.load_file(path)
        except (OSError, safetensors.SafetensorError) as error:
            raise MerlinError(f"{path}: cannot be read as an expert ({error}).") from None
        depth = sum(name.endswith(".weight") for name in named)
        return cls(
            observation_mean=named["observation_mean"],
            observation_scale=named["observation_scale"],
            goal_mean=named["goal_mean"],
            goal_scale=named["goal_scale"],
            weights=tuple(named[f"layers.{i}.weight"] for i in range(depth)),
            biases=tuple(named[f"layers.{i}.bias"] for i in range(depth)),
        )
