"""A trained policy with nothing but NumPy: for robots, and wherever one action is wanted fast.

    policy = merlin.runtime.load("runs/push")
    action = policy({"observation": state, "desired_goal": goal})

Reads the policy file of a run as it is; neither JAX nor Gymnasium is imported.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from merlin.errors import MerlinError
from merlin.eye import Eye, Layer
from merlin.folders import policy_file
from merlin.foresight import (
    HASTE,
    SOON,
    Foresight,
    Mixture,
    densest,
    drawn,
    forward,
    log_densities,
    mixture_of,
)
from merlin.weights import Weights, frequencies, read


def load(path: str | Path, *, seed: int | None = None, checkpoint: str = "final") -> "Policy":
    """The policy in a file, or in a run folder: of its first seed and of the end of training,
    unless told otherwise."""
    path = Path(path)
    if path.is_dir():
        path = policy_file(path, seed, checkpoint)
    elif seed is not None or checkpoint != "final":
        raise MerlinError(f"{path}: is no run folder, in which a seed or checkpoint can be chosen.")
    weights = read(path)
    return Policy(weights) if weights.simple else MixturePolicy(weights)


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
        state, goal = self._seen(observation)
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

    def _seen(self, observation: Mapping[str, Any]) -> tuple[Any, Any]:
        """State and goal as vectors that fit."""
        state, goal = observation["observation"], observation["desired_goal"]
        if self._eye is not None:
            state, goal = self._look(self._eye, state, goal)
        if (len(state), len(goal)) != self._sizes:
            raise self._misfit(state, goal)
        return state, goal

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


class MixturePolicy(Policy):
    """Merlin-plus: acts on the densest component, or on what is judged better than that.

    Proposals are drawn anew at every call, from a generator that `seed` starts.
    """

    def __init__(self, weights: Weights, seed: int = 0):
        super().__init__(weights)
        self._rng = np.random.default_rng(seed)
        self._scale = np.concatenate([weights.observation_scale, weights.goal_scale])

    def __call__(self, observation: Mapping[str, Any], horizon: float | None = None) -> np.ndarray:
        """The action for a Gymnasium observation with `observation` and `desired_goal`.

        A horizon that is told is used, and nothing is judged then.
        """
        foresight, dim = self.weights.foresight, len(self.weights.action_scale)
        judged = foresight is not None and horizon is None
        count = max(foresight.candidates - len(HASTE), 0) if judged and foresight else 0
        luck = self._rng.gumbel(size=(count, self.weights.components))
        noise = self._rng.standard_normal((count, dim))
        return self.choose(observation, horizon, luck, noise)

    def choose(
        self,
        observation: Mapping[str, Any],
        horizon: float | None,
        luck: np.ndarray,
        noise: np.ndarray,
    ) -> np.ndarray:
        """The same, by given Gumbel and standard normal numbers for the proposals."""
        weights = self.weights
        raw = np.concatenate([np.asarray(part, np.float32) for part in self._seen(observation)])
        x = np.clip(raw - self._shift, self._floor, self._limit) * self._scale
        if weights.foresight is None or horizon is not None:
            told = weights.horizon if horizon is None else horizon
            units = densest(self._mixtures(x, [told]), weights.action_scale)
            return weights.action_centre + weights.action_scale * units[0]
        mixtures = self._mixtures(x, [weights.horizon, SOON])
        first, quick = densest(mixtures, weights.action_scale)
        logits, means, stds = (part[:1] for part in mixtures)
        mixture = logits, means, stds
        hurried = np.clip(HASTE[:, None] * quick, -1.0, 1.0)
        proposed = drawn(mixture, weights.action_scale, luck, noise).astype(np.float32)
        units = np.concatenate([first[None], hurried, proposed])
        units = units[: 1 + weights.foresight.candidates]
        likely = log_densities(mixture, weights.action_scale, units)
        unit = self._best(weights.foresight, x, units, likely)
        return weights.action_centre + weights.action_scale * unit

    def _best(
        self, foresight: Foresight, x: np.ndarray, units: np.ndarray, likely: np.ndarray
    ) -> np.ndarray:
        """The proposal to take: the judge's word weighed against how likely each is."""
        states, goals = np.split(np.repeat(x[None], len(units), 0), [self._sizes[0]], axis=1)
        steps = foresight.steps_along(states, goals, units)
        best = int(np.argmin(steps - foresight.caution * foresight.square_error * likely))
        return units[best]

    def _mixtures(self, x: np.ndarray, horizons: list[float | None]) -> Mixture:
        """Of a standardised state and goal, one row for each horizon."""
        weights = self.weights
        angles = np.array(horizons, np.float32)[:, None] * frequencies(weights.max_period)
        rows = np.tile(x, (len(horizons), 1))
        inputs = np.concatenate([rows, np.cos(angles), np.sin(angles)], axis=1)
        logits, means, stds = mixture_of(
            forward(weights.layers, inputs), weights.components, len(weights.action_scale)
        )
        # Where the bounds leave no choice, models are told zero.
        return logits, means * (weights.action_scale > 0), stds
