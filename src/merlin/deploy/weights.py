"""Read policy files with NumPy alone, and check that NumPy can run them."""

import math
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from merlin.deploy.networks import (
    ACTIVATIONS,
    Cnn,
    Filter,
    Layer,
    Standardiser,
    fits,
    forward,
    with_length,
)
from merlin.errors import MerlinError
from merlin.io.schema import read_as
from merlin.training.policy_schema import read_policy

if TYPE_CHECKING:  # imported on first use: a plain policy, as most are, needs none of them
    from merlin.deploy.map import Map
    from merlin.deploy.mixture import Critic, Gaussians, Judge

MOST_STEP = 4096
"""Upper bound on strides, padding and numbers of bins."""


@dataclass(frozen=True, eq=False, repr=False)
class Constants:
    """Constants of a policy's arithmetic, as stored in its file.

    The defaults apply to files written before constants were stored.
    """

    clip: float = 5.0  # clipping range of normalised inputs, if not given per dimension
    horizon_dim: int = 32  # size of the horizon embedding
    activation: str = "relu"  # or gelu
    squash: str = "tanh"  # or clip: how outputs are brought within the action bounds
    min_std: float = 1e-5
    strides: tuple[int, ...] = (4, 2, 1)  # of the convolutions
    padding: int = 1
    narrow: float = 0.05
    haste: tuple[float, ...] = (1.0, 2.0)
    soon: float = 1.0  # horizon of the aggressive proposals
    log_odds: float = 60.0
    walk_weights: tuple[float, ...] = (0.2, 0.8)
    max_bins: int = 64  # maximum number of classes of the temporal distance


@dataclass(frozen=True, eq=False, repr=False)
class Weights:
    """The content of a policy file: normalisers, a network and the action range.

    The network takes the normalised observation, the normalised goal and, unless `horizon` is None,
    the embedded horizon. Its output has the size of an action, or twice that, where the second half
    is the standard deviation. With several `components`, it contains means, standard deviations and
    weights. `judge` evaluates their proposals. With a `map`, the goal and the horizon are those of
    the next waypoint; near goals have no horizon, and `critic` chooses among proposals.

    A hierarchical policy also has `low`. The first network then outputs a subgoal direction, and
    `low` maps the normalised observation and that direction to the action.

    An image policy has a CNN, whose features are its observation (and its goal, if `goal_image`).
    If the network takes raw features, their mean is 0, their scale is 1, and they are not clipped.
    """

    observation: Standardiser
    goal: Standardiser
    layers: tuple[Layer, ...]
    action_centre: np.ndarray
    action_scale: np.ndarray
    horizon: int | None
    max_period: float
    about: dict[str, Any]
    constants: Constants
    cnn: Cnn | None = None
    goal_image: bool = False
    components: int = 1
    judge: "Judge | None" = None
    low: tuple[Layer, ...] = ()
    map: "Map | None" = None
    critic: "Critic | None" = None

    @property
    def gaussian(self) -> bool:
        """Whether the network also predicts a standard deviation."""
        return not self.low and len(self.layers[-1].bias) == 2 * len(self.action_scale)

    @property
    def simple(self) -> bool:
        """Whether there is a single component, no judge and no map."""
        return self.components == 1 and self.judge is None and self.map is None

    @property
    def clipped(self) -> bool:
        """Whether outputs are clipped to the action bounds instead of squashed."""
        return self.constants.squash == "clip"

    def outputs(self, state: Any, *others: Any) -> Any:
        """The outputs of the network; of the lower level in a hierarchical policy."""
        activation = ACTIVATIONS[self.constants.activation]
        x = forward(self.layers, state, *others, activation=activation)
        if self.low:
            x = forward(self.low, state, self.direction(x), activation=activation)
        return x

    def direction(self, x: Any) -> Any:
        """The upper level's output, normalised for the lower level."""
        return with_length(x, math.sqrt(x.shape[-1]))

    def within_bounds(self, x: Any) -> Any:
        """Bring outputs within the action bounds, scaled to [-1, 1]."""
        return np.clip(x, -1.0, 1.0) if self.clipped else np.tanh(x)

    @cached_property
    def gaussians(self) -> "Gaussians":
        """The interpretation of the network's outputs as a mixture."""
        from merlin.deploy.mixture import Gaussians

        constants = self.constants
        haste = np.array(constants.haste, np.float32)
        told = constants.min_std, constants.narrow, haste
        return Gaussians(self.components, self.action_scale, *told)

    @cached_property
    def frequencies(self) -> np.ndarray:
        """Frequencies of the horizon embedding, first for cosines, then for sines."""
        half = self.constants.horizon_dim // 2
        return (self.max_period ** (-np.arange(half) / half)).astype(np.float32)

    def embed(self, horizons: Any) -> Any:
        """Horizon embeddings along a new last axis."""
        angles = horizons[..., None] * self.frequencies
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=-1)

    @cached_property
    def untold(self) -> np.ndarray:
        """The embedding used without a horizon, and that of the aggressive proposals."""
        soon = self.embed(np.array([self.constants.soon], np.float32))
        return np.concatenate([np.zeros_like(soon), soon]).astype(np.float32)

    def fits(self) -> bool:
        """Whether all arrays have consistent types and sizes."""
        states, goals, actions = map(
            len, (self.observation.mean, self.goal.mean, self.action_centre)
        )
        bounds = self.action_centre, self.action_scale
        heads = (
            (actions, 2 * actions)
            if self.components == 1
            else (self.components * (2 * actions + 1),)
        )
        embedded = 0 if self.horizon is None else self.constants.horizon_dim
        judge, image = self.judge, self.about["observation_shape"]
        told = math.prod(image) if self.cnn is None else self.cnn.features
        return (
            self.observation.fits(states)
            and self.goal.fits(goals)
            and all((array.dtype, array.shape) == (np.float32, (actions,)) for array in bounds)
            and states == told
            and goals == (told if self.goal_image else self.about["goal_dim"])
            and actions == self.about["action_dim"]
            and fits(self.layers, states + goals + embedded, () if self.low else heads)
            and (not self.low or fits(self.low, states + self.layers[-1].bias.size, (actions,)))
            and (self.cnn is None or self.cnn.fits())
            and (judge is None or judge.fits(states, goals, actions, self.max_period))
            and (self.map is None or self.map.fits(states, goals))
            and (self.critic is None or fits(self.critic.layers, states + goals + actions, (1,)))
        )


@dataclass(frozen=True, eq=False, repr=False)
class Settings:
    """The settings of a method that acting depends on, if it has them."""

    horizon: int | None = None
    components: int = 1
    candidates: int = 0
    depth: int = 0
    caution: float = 0.0
    distance: str = "classes"  # files of earlier versions do not say
    discount: float = 0.0
    max_horizon: int | None = None
    lags: tuple[int, ...] = ()
    temperature: float = 0.0


def read(path: Path) -> Weights:
    """Read a policy file and check that it can be run with NumPy."""
    arrays, about = read_policy(path)
    settings: Settings = read_as(Settings, about["settings"], path)
    constants = _constants(about, path)
    misfit = MerlinError(f"{path}: the sizes of its arrays do not fit together; train again.")
    try:
        weights = _weights(arrays, about, settings, constants)
        fits = weights is None or weights.fits()
    except (TypeError, ValueError, IndexError, ArithmeticError):
        raise misfit from None
    if weights is None:
        raise MerlinError(
            f"{path}: a policy of {about['algo']} is not a single feed-forward network, and only "
            "those run without JAX; use merlin.load_run instead."
        )
    if not fits:
        raise misfit
    return weights


def _constants(about: dict[str, Any], path: Path) -> Constants:
    told = about.get("constants", {})
    if unknown := sorted(told.keys() - {field.name for field in fields(Constants)}):
        raise MerlinError(f"{path}: was written by another version of merlin ({unknown[0]!r}).")
    constants: Constants = read_as(Constants, told, path)
    if constants.activation not in ACTIVATIONS or constants.squash not in ("tanh", "clip"):
        told = f"{constants.activation}, {constants.squash}"
        raise MerlinError(f"{path}: was written by another version of merlin ({told}).")
    steps = (*constants.strides, constants.padding + 1, constants.max_bins)
    if not all(1 <= step <= MOST_STEP for step in steps):
        raise MerlinError(f"{path}: its constants are invalid; train again.")
    return constants


def _weights(
    arrays: dict[str, np.ndarray], about: dict[str, Any], settings: Settings, constants: Constants
) -> Weights | None:
    """The weights; None if the policy is more than one feed-forward network."""
    max_period, goal_image = float(about["max_horizon"]), about.get("goal_image", False)
    if settings.max_horizon is not None:  # the longest horizon in training
        max_period = min(max_period, float(settings.max_horizon))
    try:
        cnn, arrays = _cnn(arrays, about, constants)
        policy_map, arrays = _map(arrays, settings)
        judge = _judge(arrays, settings, max_period, constants)
        critic = None if policy_map is None else _critic(arrays, settings)
        layers, low = _layers(arrays, "net.layers."), _layers(arrays, "net.low.layers.")
        layers = layers or _layers(arrays, "net.high.layers.")
        observation, goal = (
            _standardiser(arrays, f"{name}_normaliser", constants.clip)
            for name in ("observation", "goal")
        )
        bounds = {name: arrays.pop(name) for name in ("action_centre", "action_scale")}
    except KeyError:
        return None
    if len(layers) < 2 or arrays:
        return None
    states = about["observation_shape"][0] if cnn is None else cnn.features
    goals = about["goal_dim"] if cnn is None or not goal_image else cnn.features
    horizon = settings.horizon if policy_map is None else policy_map.least
    return Weights(
        observation=observation,
        goal=goal,
        **bounds,
        layers=layers,
        horizon=horizon if len(layers[0].weight) > states + goals else None,
        max_period=max_period,
        about=about,
        constants=constants,
        cnn=cnn,
        goal_image=goal_image,
        components=settings.components,
        judge=judge,
        low=low,
        map=policy_map,
        critic=critic,
    )


def _standardiser(arrays: dict[str, np.ndarray], prefix: str, clip: float) -> Standardiser:
    """Remove a normaliser from the arrays and return it; old files do not state its limit."""
    mean, scale = arrays.pop(f"{prefix}.mean"), arrays.pop(f"{prefix}.scale")
    return Standardiser(mean, scale, arrays.pop(f"{prefix}.limit", np.full_like(mean, clip)))


def _layers(arrays: dict[str, np.ndarray], prefix: str) -> tuple[Layer, ...]:
    """Remove the layers of a network from the arrays and return them."""
    depth = sum(name.startswith(prefix) for name in arrays) // 2
    return tuple(
        Layer(arrays.pop(f"{prefix}{i}.weight"), arrays.pop(f"{prefix}{i}.bias"))
        for i in range(depth)
    )


def _cnn(
    arrays: dict[str, np.ndarray], about: dict[str, Any], constants: Constants
) -> tuple[Cnn | None, dict[str, np.ndarray]]:
    """The CNN of an image policy, and the arrays of the policy on its features."""
    shape = about["observation_shape"]
    if "encoder" in about:  # of a policy on latents
        encoder = {k.removeprefix("encoder."): v for k, v in arrays.items() if "encoder." in k}
        own = {k.removeprefix("policy."): v for k, v in arrays.items() if "encoder." not in k}
        return Cnn(
            tuple(about["encoder"]["shape"]),
            encoder["inputs.mean"],
            encoder["inputs.scale"],
            _filters(encoder, constants),
            _layers(encoder, "net.head.layers."),
            Layer(encoder["readout.weight"], encoder["readout.bias"]),
            bool(about["encoder"]["units"]),
        ), own
    if len(shape) != 3:
        return None, arrays
    # The CNN is part of the policy's network.
    filters = _filters(arrays, constants)
    own = {name.replace("net.head.", "net."): array for name, array in arrays.items()}
    mean, scale = own["observation_normaliser.mean"], own["observation_normaliser.scale"]
    cnn = Cnn(tuple(shape), mean, scale, filters)
    for name in ("observation", "goal") if about.get("goal_image") else ("observation",):
        own[f"{name}_normaliser.mean"] = np.zeros(cnn.features, np.float32)
        own[f"{name}_normaliser.scale"] = np.ones(cnn.features, np.float32)
        own[f"{name}_normaliser.limit"] = np.full(cnn.features, np.inf, np.float32)
    return cnn, own


def _filters(arrays: dict[str, np.ndarray], constants: Constants) -> tuple[Filter, ...]:
    """Remove the convolutions from the arrays; return none, which fails later, without strides."""
    layers, strides = _layers(arrays, "net.cnn.layers."), constants.strides
    if len(layers) != len(strides):
        return ()
    pairs = zip(layers, strides, strict=True)
    return tuple(Filter(*layer, stride, constants.padding) for layer, stride in pairs)


def _judge(
    arrays: dict[str, np.ndarray],
    settings: Settings,
    max_horizon: float,
    constants: Constants,
) -> "Judge | None":
    """Remove the judge from the arrays and return it, if the policy has one."""
    if "judge.square_error" not in arrays:
        return None
    from merlin.deploy.mixture import Judge

    hazards = settings.distance == "hazards"
    return Judge(
        distance=_layers(arrays, "judge.distance.layers."),
        model=_layers(arrays, "judge.model.layers."),
        guide=_layers(arrays, "judge.guide.layers."),
        square_error=float(arrays.pop("judge.square_error")),
        hazards=hazards,
        bin_width=1 if hazards else math.ceil(max_horizon / constants.max_bins),
        log_odds=constants.log_odds,
        walk_weights=np.array(constants.walk_weights, np.float32),
        candidates=settings.candidates,
        depth=settings.depth,
        caution=settings.caution,
        discount=settings.discount,
    )


def _critic(arrays: dict[str, np.ndarray], settings: Settings) -> "Critic":
    """Remove the critic of a map's executor from the arrays and return it."""
    from merlin.deploy.mixture import Critic

    layers, error = _layers(arrays, "critic.layers."), float(arrays.pop("square_error"))
    return Critic(layers, error, settings.caution)


def _map(
    arrays: dict[str, np.ndarray], settings: Settings
) -> "tuple[Map | None, dict[str, np.ndarray]]":
    """The map, if the policy has one, and the arrays of the executor."""
    if "map.centres" not in arrays:
        return None, arrays
    from merlin.deploy.map import Hazard, Map

    own: dict[str, np.ndarray] = {}
    others: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        part, _, rest = name.partition(".")
        (others if part == "executor" else own)[rest if part != "hazard" else name] = array
    inputs = Standardiser(*(own.pop(f"hazard.inputs.{part}") for part in Standardiser._fields))
    hazard = Hazard(inputs, own.pop("hazard.phi"), _layers(own, "hazard.net.layers."))
    # Files of earlier versions have none: their distances are those between goals.
    own.setdefault("projection", np.eye(own["centres"].shape[1], dtype=np.float32))
    least, temperature = min(settings.lags), settings.temperature
    return Map(**own, hazard=hazard, least=least, temperature=temperature), others
