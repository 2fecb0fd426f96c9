"""A trained policy with nothing but NumPy: for robots, and wherever one action is wanted fast.

    policy = merlin.runtime.load("runs/push")
    action = policy({"observation": state, "desired_goal": goal})

Reads the policy file of a run as it is; neither JAX nor Gymnasium is imported.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from merlin.errors import MerlinError
from merlin.folders import policy_file
from merlin.tensors import metadata, open_file

CLIP = 5.0
"""Normalised inputs end here."""
HORIZON_DIM = 32
MIN_STD = 1e-5


class Layer(NamedTuple):
    """An affine map of row vectors: x @ weight + bias."""

    weight: np.ndarray  # (inputs, outputs)
    bias: np.ndarray  # (outputs,)


@dataclass(frozen=True)
class Weights:
    """What a policy file holds: normalisers, a ReLU network and the range of actions.

    The network sees the normalised observation, the normalised goal and, unless `horizon` is
    None, the embedded horizon. It answers with as many numbers as an action has, or twice as
    many; then the second half is the spread.
    """

    observation_mean: np.ndarray
    observation_scale: np.ndarray
    goal_mean: np.ndarray
    goal_scale: np.ndarray
    layers: tuple[Layer, ...]
    action_centre: np.ndarray
    action_scale: np.ndarray
    horizon: int | None
    max_period: float
    about: dict[str, Any]

    @property
    def gaussian(self) -> bool:
        """Whether the network also says how sure it is."""
        return len(self.layers[-1].bias) == 2 * len(self.action_scale)


def load(path: str | Path, *, seed: int | None = None, checkpoint: str = "final") -> "Policy":
    """The policy in a file, or in a run folder: of its first seed and of the end of training,
    unless told otherwise."""
    path = Path(path)
    return Policy(read(policy_file(path, seed, checkpoint) if path.is_dir() else path))


def read(path: Path) -> Weights:
    """Read a policy file and check that it is one that can be run here."""
    with open_file(path) as file:
        about = metadata(file, path)
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    try:
        method, settings = about["algo"], about["settings"]
        shape, goals, actions = about["observation_shape"], about["goal_dim"], about["action_dim"]
        max_period = float(about["max_horizon"])
    except KeyError as error:
        raise MerlinError(f"{path}: lacks {error}, so it is not a policy; train anew.") from None
    if len(shape) != 1:
        raise MerlinError(f"{path}: sees images, which the NumPy runtime does not run.")
    normalisers = {
        f"{kind}_normaliser.{part}": (size,)
        for kind, size in (("observation", shape[0]), ("goal", goals))
        for part in ("mean", "scale")
    }
    bounds = {"action_centre": (actions,), "action_scale": (actions,)}
    depth = sum(name.startswith("net.layers.") for name in arrays) // 2
    names = [f"net.layers.{i}.{part}" for i in range(depth) for part in ("weight", "bias")]
    if depth < 2 or set(arrays) != {*normalisers, *bounds, *names}:
        raise MerlinError(
            f"{path}: a policy of {method} is more than one feed-forward network; "
            "act with it through merlin.load_run."
        )
    layers = tuple(
        Layer(arrays[w], arrays[b]) for w, b in zip(names[::2], names[1::2], strict=True)
    )
    sizes = [layer.weight.shape for layer in layers]
    embedded = sizes[0][0] - shape[0] - goals if len(sizes[0]) == 2 else -1
    horizon = settings.get("horizon") if embedded else None
    fits = (
        all(arrays[name].shape == size for name, size in (normalisers | bounds).items())
        and all(len(s) == 2 and (s[1],) == x.bias.shape for s, x in zip(sizes, layers, strict=True))
        and all(a[1] == b[0] for a, b in itertools.pairwise(sizes))
        and sizes[-1][1] in (actions, 2 * actions)
        and (embedded == 0 or (embedded == HORIZON_DIM and horizon is not None))
        and all(array.dtype == np.float32 for array in arrays.values())
    )
    if not fits:
        raise MerlinError(f"{path}: the sizes of its arrays do not fit together; train anew.")
    return Weights(
        observation_mean=arrays["observation_normaliser.mean"],
        observation_scale=arrays["observation_normaliser.scale"],
        goal_mean=arrays["goal_normaliser.mean"],
        goal_scale=arrays["goal_normaliser.scale"],
        layers=layers,
        action_centre=arrays["action_centre"],
        action_scale=arrays["action_scale"],
        horizon=horizon,
        max_period=max_period,
        about=about,
    )


def frequencies(max_period: float) -> np.ndarray:
    """At which a horizon is embedded as cosines, then sines."""
    half = HORIZON_DIM // 2
    return (max_period ** (-np.arange(half) / half)).astype(np.float32)


class Policy:
    """Acts on the mean. Keeps its intermediate results, so each thread needs one of its own.

    What does not change from call to call is folded into the weights: the scale of the normalisers
    and, as the bias of the first layer, the embedded horizon. Every bias is a last row of its
    weight, met by a 1 that stands behind the layer's input, so a layer is one product and one
    maximum.
    """

    def __init__(self, weights: Weights):
        self.weights = weights
        first, *others = weights.layers
        states, goals = len(weights.observation_mean), len(weights.goal_mean)
        scale = np.concatenate([weights.observation_scale, weights.goal_scale])
        self._sizes = states, goals
        self._shift = np.concatenate([weights.observation_mean, weights.goal_mean])
        self._limit = CLIP / scale
        self._floor = -self._limit
        self._first_bias = first.bias
        self._embedding_weight = first.weight[states + goals :]
        self._told: float | None = None
        last = len(weights.action_scale)
        folded = [
            Layer(first.weight[: states + goals] * scale[:, None], first.bias),
            *others[:-1],
            *(Layer(layer.weight[:, :last], layer.bias[:last]) for layer in others[-1:]),
        ]
        self._layers = [np.vstack([layer.weight, layer.bias]) for layer in folded]
        self._inputs = [np.ones(len(weight), np.float32) for weight in self._layers]
        self._outputs = [x[:-1] for x in self._inputs[1:]]
        self._x = self._inputs[0][:-1]
        self._state, self._goal = self._x[:states], self._x[states:]
        self._hidden = list(zip(self._inputs, self._layers, self._outputs, strict=False))
        self._last = self._inputs[-1], self._layers[-1]
        centre, reach = weights.action_centre, weights.action_scale
        self._plain = bool((centre == 0).all() and (reach == 1).all())

    def __call__(self, observation: Mapping[str, Any], horizon: float | None = None) -> np.ndarray:
        """The action for a Gymnasium observation with `observation` and `desired_goal`.

        A horizon replaces the one that the policy was made with.
        """
        state, goal = observation["observation"], observation["desired_goal"]
        if (len(state), len(goal)) != self._sizes:
            raise self._misfit(state, goal)
        if horizon is None:
            horizon = self.weights.horizon
        if horizon != self._told:
            self._tell(horizon)
        self._state[:] = state
        self._goal[:] = goal
        x = self._x
        np.subtract(x, self._shift, out=x)
        np.maximum(x, self._floor, out=x)
        np.minimum(x, self._limit, out=x)
        for inputs, weight, outputs in self._hidden:
            np.dot(inputs, weight, out=outputs)
            np.maximum(outputs, 0.0, out=outputs)
        action = np.tanh(np.dot(*self._last))
        if not self._plain:
            action *= self.weights.action_scale
            action += self.weights.action_centre
        return action

    def _tell(self, horizon: float | None) -> None:
        """Set what the network is told as horizon, until it is told another."""
        bias = self._first_bias
        if self.weights.horizon is not None:
            angles = np.float32(horizon) * frequencies(self.weights.max_period)
            bias = bias + np.concatenate([np.cos(angles), np.sin(angles)]) @ self._embedding_weight
        self._layers[0][-1] = bias
        self._told = horizon

    def _misfit(self, state: Any, goal: Any) -> MerlinError:
        return MerlinError(
            f"observation: its state and goal are {np.shape(state)} and {np.shape(goal)}, but this "
            f"policy takes one of each with {self._sizes[0]} and {self._sizes[1]} numbers."
        )
