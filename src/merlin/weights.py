"""Policy files read with NumPy alone, and checked to be ones that can be run so."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from merlin.errors import MerlinError
from merlin.eye import FILTERS, Eye, Filter, Layer
from merlin.foresight import Foresight, bin_width
from merlin.tensors import metadata, open_file

CLIP = 5.0
"""Normalised inputs end here."""
HORIZON_DIM = 32


@dataclass(frozen=True)
class Weights:
    """What a policy file holds: normalisers, a ReLU network and the range of actions.

    The network sees the normalised observation, the normalised goal and, unless `horizon` is
    None, the embedded horizon. It answers with as many numbers as an action has, or twice as
    many; then the second half is the spread. Of several `components` it gives means, spreads and
    weights. `foresight` judges what they propose.

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
    components: int = 1
    foresight: Foresight | None = None

    @property
    def clips(self) -> tuple[float, float]:
        """Where a normalised observation and a normalised goal end."""
        features = self.eye is not None and not self.eye.layers
        return (np.inf if features else CLIP), (np.inf if self.goal_image else CLIP)

    @property
    def gaussian(self) -> bool:
        """Whether the network also says how sure it is."""
        return len(self.layers[-1].bias) == 2 * len(self.action_scale)

    @property
    def simple(self) -> bool:
        """Whether the first outputs of the network are the action."""
        return self.components == 1 and self.foresight is None


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
        foresight = _foresight(arrays, settings, max_period)
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
    states = shape[0] if eye is None else eye.features
    goals = goals if eye is None or not goal_image else eye.features
    weights = Weights(
        **vectors,
        layers=layers,
        horizon=settings.get("horizon") if len(layers[0].weight) > states + goals else None,
        max_period=max_period,
        about=about,
        eye=eye,
        goal_image=goal_image,
        components=settings.get("components", 1),
        foresight=foresight,
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
        readout = Layer(seeing["readout.weight"], seeing["readout.bias"])
        units = bool(about["encoder"]["units"])
    elif len(shape) == 3:  # a part of the policy's network
        convolutions, dense, readout = _layers(arrays, "net.cnn.layers."), (), None
        units = False
        own = {name.replace("net.head.", "net."): array for name, array in arrays.items()}
        mean, scale = own["observation_normaliser.mean"], own["observation_normaliser.scale"]
    else:
        return None, arrays
    filters = tuple(
        Filter(*layer, stride) for layer, (_, _, stride) in zip(convolutions, FILTERS, strict=False)
    )
    eye = Eye(tuple(shape), mean, scale, filters, dense, readout, units)
    if readout is None:
        as_they_are = np.zeros(eye.features, np.float32), np.ones(eye.features, np.float32)
        for name in ("observation", "goal") if about.get("goal_image") else ("observation",):
            for part, value in zip(("mean", "scale"), as_they_are, strict=True):
                own[f"{name}_normaliser.{part}"] = value
    return eye, own


def _foresight(
    arrays: dict[str, np.ndarray], settings: dict[str, Any], max_horizon: float
) -> Foresight | None:
    """Take what judges proposals out of the arrays, if the policy has it."""
    if "judge.square_error" not in arrays:
        return None
    return Foresight(
        distance=_layers(arrays, "judge.distance.layers."),
        model=_layers(arrays, "judge.model.layers."),
        guide=_layers(arrays, "judge.guide.layers."),
        square_error=float(arrays.pop("judge.square_error")),
        width=bin_width(max_horizon),
        **{name: settings[name] for name in ("candidates", "depth", "caution", "discount")},
    )


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
        and widths[-1] in _outputs(weights, actions)
        and (weights.foresight is None or _foresees(weights.foresight, states, goals, actions))
    )


def _outputs(weights: Weights, actions: int) -> tuple[int, ...]:
    """How many numbers the network may answer with."""
    if weights.components == 1:
        return (actions, 2 * actions)
    return (weights.components * (2 * actions + 1),)


def _foresees(foresight: Foresight, states: int, goals: int, actions: int) -> bool:
    """Whether the networks of a judge have the sizes that they must have."""
    ends = (
        (foresight.distance, states + goals, None),
        (foresight.model, states + actions, states),
        (foresight.guide, states + goals, states),
    )
    return all(
        layers
        and len(layers[0].weight) == inputs
        and (outputs is None or layers[-1].bias.size == outputs)
        and all(a.bias.size == len(b.weight) for a, b in itertools.pairwise(layers))
        and all(layer.weight.shape[1:] == layer.bias.shape for layer in layers)
        for layers, inputs, outputs in ends
    )


def frequencies(max_period: float) -> np.ndarray:
    """At which a horizon is embedded as cosines, then sines."""
    half = HORIZON_DIM // 2
    return (max_period ** (-np.arange(half) / half)).astype(np.float32)
