"""A trained policy with nothing but NumPy: for robots, and wherever one action is wanted fast.

    policy = merlin.runtime.load("runs/push")
    action = policy({"observation": state, "desired_goal": goal})

Reads the policy file of a run as it is; neither JAX nor Gymnasium is imported.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from merlin.errors import MerlinError
from merlin.eye import FILTERS, Eye, Filter, Layer
from merlin.folders import policy_file
from merlin.tensors import metadata, open_file

CLIP = 5.0
"""Normalised inputs end here."""
HORIZON_DIM = 32
MIN_STD = 1e-5


@dataclass(frozen=True)
class Weights:
    """What a policy file holds: normalisers, a ReLU network and the range of actions.

    The network sees the normalised observation, the normalised goal and, unless `horizon` is
    None, the embedded horizon. It answers with as many numbers as an action has, or twice as
    many; then the second half is the spread.

    A policy that sees images has an eye, whose features are its observation (and its goal, if
    `goal_image`). Where the network takes them as they are, their mean is 0, their scale 1, and
    they are not clipped.
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
    eye: Eye | None = None
    goal_image: bool = False

    @property
    def clips(self) -> tuple[float, float]:
        """Where a normalised observation and a normalised goal end."""
        features = self.eye is not None and not self.eye.layers
        return (np.inf if features else CLIP), (np.inf if self.goal_image else CLIP)

    @property
    def gaussian(self) -> bool:
        """Whether the network also says how sure it is."""
        return len(self.layers[-1].bias) == 2 * len(self.action_scale)


def load(path: str | Path, *, seed: int | None = None, checkpoint: str = "final") -> "Policy":
    """The policy in a file, or in a run folder: of its first seed and of the end of training,
    unless told otherwise."""
    path = Path(path)
    if path.is_dir():
        path = policy_file(path, seed, checkpoint)
    elif seed is not None or checkpoint != "final":
        raise MerlinError(f"{path}: is no run folder, in which a seed or checkpoint can be chosen.")
    return Policy(read(path))


def read(path: Path) -> Weights:
    """Read a policy file and check that it is one that can be run here."""
    with open_file(path) as file:
        about = metadata(file, path)
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    try:
        method, settings, shape = about["algo"], about["settings"], about["observation_shape"]
        goals, actions = about["goal_dim"], about["action_dim"]
        max_period = float(about["max_horizon"])
    except KeyError as error:
        raise MerlinError(f"{path}: lacks {error}, so it is not a policy; train anew.") from None
    try:
        eye, arrays = _eye(arrays, about)
        layers = _layers(arrays, "net.layers.")
        vectors = {field: arrays.pop(name) for name, field in _VECTORS.items()}
    except KeyError:
        layers = ()
    if len(layers) < 2 or arrays:
        raise MerlinError(
            f"{path}: a policy of {method} is more than one feed-forward network, and only such "
            "run without JAX; act with it through merlin.load_run."
        )
    goal_image = bool(about.get("goal_image", False))
    states = shape[0] if len(shape) == 1 or eye is None else eye.features
    goals = goals if eye is None or not goal_image else eye.features
    weights = Weights(
        **vectors,
        layers=layers,
        horizon=settings.get("horizon") if len(layers[0].weight) > states + goals else None,
        max_period=max_period,
        about=about,
        eye=eye,
        goal_image=goal_image,
    )
    if not _fit(weights, states, goals, actions) or not (eye is None or eye.fits()):
        raise MerlinError(f"{path}: the sizes of its arrays do not fit together; train anew.")
    return weights


_VECTORS = {
    "observation_normaliser.mean": "observation_mean",
    "observation_normaliser.scale": "observation_scale",
    "goal_normaliser.mean": "goal_mean",
    "goal_normaliser.scale": "goal_scale",
    "action_centre": "action_centre",
    "action_scale": "action_scale",
}
"""Names in a policy file, beside those of layers, and what they are called here."""


def _layers(arrays: dict[str, np.ndarray], prefix: str) -> tuple[Layer, ...]:
    """Take the layers of a network out of the arrays."""
    depth = sum(name.startswith(prefix) for name in arrays) // 2
    return tuple(
        Layer(arrays.pop(f"{prefix}{i}.weight"), arrays.pop(f"{prefix}{i}.bias"))
        for i in range(depth)
    )


def _eye(
    arrays: dict[str, np.ndarray], about: dict[str, Any]
) -> tuple[Eye | None, dict[str, np.ndarray]]:
    """What the policy sees with, and the arrays of one that is given features for images."""
    shape = about["observation_shape"]
    if "encoder" in about:  # before a policy on latents
        seeing = {k.removeprefix("encoder."): v for k, v in arrays.items() if "encoder." in k}
        own = {k.removeprefix("policy."): v for k, v in arrays.items() if "encoder." not in k}
        mean, scale = seeing["inputs.mean"], seeing["inputs.scale"]
        convolutions = _layers(seeing, "net.cnn.layers.")
        dense, shape = _layers(seeing, "net.head.layers."), about["encoder"]["shape"]
    elif len(shape) == 3:  # a part of the policy's network
        convolutions, dense = _layers(arrays, "net.cnn.layers."), ()
        own = {name.replace("net.head.", "net."): array for name, array in arrays.items()}
        mean, scale = own["observation_normaliser.mean"], own["observation_normaliser.scale"]
    else:
        return None, arrays
    filters = tuple(
        Filter(*layer, stride) for layer, (_, _, stride) in zip(convolutions, FILTERS, strict=False)
    )
    eye = Eye(tuple(shape), mean, scale, filters, dense)
    if not dense:
        as_they_are = np.zeros(eye.features, np.float32), np.ones(eye.features, np.float32)
        for name in ("observation", "goal") if about.get("goal_image") else ("observation",):
            for part, value in zip(("mean", "scale"), as_they_are, strict=True):
                own[f"{name}_normaliser.{part}"] = value
    return eye, own


def _fit(weights: Weights, states: int, goals: int, actions: int) -> bool:
    """Whether all arrays have the sizes that they must have."""
    vectors = [
        *((array, states) for array in (weights.observation_mean, weights.observation_scale)),
        *((array, goals) for array in (weights.goal_mean, weights.goal_scale)),
        *((array, actions) for array in (weights.action_centre, weights.action_scale)),
    ]
    arrays = [*(array for array, _ in vectors), *itertools.chain(*weights.layers)]
    inputs = states + goals + (0 if weights.horizon is None else HORIZON_DIM)
    widths = [inputs, *(layer.bias.size for layer in weights.layers)]
    return (
        all(array.dtype == np.float32 for array in arrays)
        and all(array.shape == (size,) for array, size in vectors)
        and all(
            layer.weight.shape == sizes and layer.bias.shape == sizes[1:]
            for layer, sizes in zip(weights.layers, itertools.pairwise(widths), strict=True)
        )
        and widths[-1] in (actions, 2 * actions)
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
        self._eye = weights.eye
        self._shift = np.concatenate([weights.observation_mean, weights.goal_mean])
        self._limit = np.repeat(np.array(weights.clips, np.float32), (states, goals)) / scale
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
        if self._eye is not None:
            state, goal = self._look(self._eye, state, goal)
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

    def _look(self, eye: Eye, state: Any, goal: Any) -> tuple[np.ndarray, Any]:
        """Features in place of images."""
        images = [np.asarray(state)] + ([np.asarray(goal)] if self.weights.goal_image else [])
        for image in images:
            if image.shape != eye.shape or image.dtype != np.uint8:
                size = "x".join(map(str, eye.shape))
                raise MerlinError(
                    f"observation: this policy takes images of {size} in uint8, not an array of "
                    f"shape {image.shape} in {image.dtype}."
                )
        seen = [eye(image) for image in images]
        return seen[0], seen[-1] if self.weights.goal_image else goal

    def _misfit(self, state: Any, goal: Any) -> MerlinError:
        return MerlinError(
            f"observation: its state and goal are {np.shape(state)} and {np.shape(goal)}, but this "
            f"policy takes one of each with {self._sizes[0]} and {self._sizes[1]} numbers."
        )
