"""Run a trained policy with NumPy alone, for robots and for low latency.

    policy = merlin.runtime.load("runs/push")
    action = policy(state, goal)  # or policy({"observation": state, "desired_goal": goal})

Reads the policy file of a run directly, without importing JAX or Gymnasium.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from merlin.deploy.networks import ACTIVATIONS, Layer, forward
from merlin.deploy.onnx_policy import SUFFIX, OnnxPolicy
from merlin.deploy.weights import Weights, read
from merlin.errors import MerlinError
from merlin.io.observations import checked, rows_of, state_and_goal
from merlin.training.layout import policy_file

if TYPE_CHECKING:  # only mixtures and maps need them, see `weights`
    from merlin.deploy.map import Map, Reach
    from merlin.deploy.mixture import Mixture

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def load(
    path: str | Path, *, seed: int | None = None, checkpoint: str = "final"
) -> "Policy | OnnxPolicy":
    """Load the policy in a file or a run folder, by default of the first seed at the end of
    training. An exported policy (.onnx) runs in ONNX Runtime."""
    path = Path(path)
    if not path.exists():
        raise MerlinError(f"{path}: no such run folder or policy file; check the path.")
    if path.is_dir():
        path = policy_file(path, seed, checkpoint)
    elif seed is not None or checkpoint != "final":
        raise MerlinError(f"{path}: is not a run folder; leave out seed and checkpoint.")
    if path.suffix == SUFFIX:
        return OnnxPolicy(path)
    weights = read(path)
    if weights.map is not None:
        return MapPolicy(weights, weights.map)
    return Policy(weights) if weights.simple else MixturePolicy(weights)


class Policy:
    """Acts on the mean. Not thread-safe, because it reuses buffers: use one policy per thread.

    Everything constant is folded into the weights: the scale of the normalisers and, as the bias of
    the first layer, the embedded horizon. Every bias is the last row of its weight matrix,
    multiplied by a 1 appended to the layer's input, so a layer is one product and one activation.
    """

    def __init__(self, weights: Weights):
        self.weights = weights
        first, *others = weights.layers
        observation, goal = weights.observation, weights.goal
        states, goals = len(observation.mean), len(goal.mean)
        scale = np.concatenate([observation.scale, goal.scale])
        self._sizes = states, goals
        self._cnn = weights.cnn
        image = None if weights.cnn is None else weights.cnn.shape
        self._shapes: dict[str, tuple[int, ...]] = {
            "observation": image or (states,),
            "goal": image if image and weights.goal_image else (goals,),
            "horizon": (),
        }
        # The shapes of inputs that can be used as they are; images never can.
        self._states = None if weights.cnn else (states,)
        self._goals = None if weights.cnn else (goals,)
        self._ones = np.ones(states + goals, np.float32)
        self._shift = np.concatenate([observation.mean, goal.mean])
        limit = np.concatenate([observation.limit, goal.limit])
        self._limit = limit / scale
        self._floor = -self._limit
        self._first_bias = first.bias
        self._embedding_weight = first.weight[states + goals :]
        self._told: float | None = None
        last = None if weights.low else len(weights.action_scale)
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
        self._activation = ACTIVATIONS[weights.constants.activation]
        self._rectifies = weights.constants.activation == "relu"
        self._low = weights.low
        if weights.low:
            row = np.concatenate([observation.scale, np.ones(len(others[-1].bias))])
            scaled = (weights.low[0].weight * row[:, None]).astype(np.float32)
            self._low = Layer(scaled, weights.low[0].bias), *weights.low[1:]
        centre, reach = weights.action_centre, weights.action_scale
        self._plain = bool((centre == 0).all() and (reach == 1).all())

    def __call__(
        self, observation: Any, goal: Any = None, horizon: float | None = None
    ) -> np.ndarray:
        """The action for an observation and a goal, or one for every row of a batch.

        Takes both, or Gymnasium's dict with `observation` and `desired_goal`. A given horizon
        replaces the policy's default.
        """
        state, wanted = state_and_goal(observation, goal)
        if horizon is None and self._fits(state, self._states) and self._fits(wanted, self._goals):
            return self._act(state, wanted, None)
        parts, rows = rows_of(state, wanted, horizon, self._shapes)
        if rows is None:
            return self._seen(**parts)
        each = ({name: x[row] for name, x in parts.items()} for row in range(rows))
        return np.stack([self._seen(**one) for one in each])

    @staticmethod
    def _fits(x: Any, shape: tuple[int, ...] | None) -> bool:
        """Whether it is a plain vector of the right size, which needs no further checks."""
        return type(x) is np.ndarray and x.shape == shape and x.dtype in FLOATS

    def _seen(
        self, observation: np.ndarray, goal: np.ndarray, horizon: np.ndarray | None = None
    ) -> np.ndarray:
        """The action for checked inputs, after replacing images by features."""
        if self._cnn is not None:
            observation = self._cnn(observation)
            goal = self._cnn(goal) if self.weights.goal_image else goal
        return self._act(observation, goal, None if horizon is None else float(horizon))

    def _act(self, state: np.ndarray, goal: np.ndarray, horizon: float | None) -> np.ndarray:
        """The action for checked vectors."""
        if horizon is None:
            horizon = self.weights.horizon
        if horizon != self._told:
            self._tell(horizon)
        self._state[:] = state
        self._goal[:] = goal
        x = self._x
        self._check(x)
        np.subtract(x, self._shift, out=x)
        np.maximum(x, self._floor, out=x)
        np.minimum(x, self._limit, out=x)
        for inputs, weight, outputs in self._hidden:
            np.dot(inputs, weight, out=outputs)
            if self._rectifies:
                np.maximum(outputs, 0.0, out=outputs)
            else:
                outputs[:] = self._activation(outputs)
        raw = np.dot(*self._last)
        if self._low:
            direction = self.weights.direction(raw)
            raw = forward(self._low, self._state, direction, activation=self._activation)
        action = self.weights.within_bounds(raw)
        if not self._plain:
            action *= self.weights.action_scale
            action += self.weights.action_centre
        return action

    def _check(self, x: np.ndarray) -> None:
        """Raise an error for NaN and infinity, detected quickly by a sum."""
        if not math.isfinite(np.dot(x, self._ones)):
            checked(x[: self._sizes[0]], (self._sizes[0],), "observation")
            checked(x[self._sizes[0] :], (self._sizes[1],), "goal")

    def _tell(self, horizon: float | None) -> None:
        """Set the horizon that the network is conditioned on, until the next call."""
        bias = self._first_bias
        if self.weights.horizon is not None:
            told = self.weights.embed(np.array(horizon, np.float32))
            bias = bias + told @ self._embedding_weight
        self._layers[0][-1] = bias
        self._told = horizon


class MixturePolicy(Policy):
    """Merlin-plus: acts on the densest component, or on a proposal the judge prefers.

    Proposals are sampled in every call, from a generator seeded with `seed`.
    """

    def __init__(self, weights: Weights, seed: int = 0):
        super().__init__(weights)
        self._rng = np.random.default_rng(seed)
        self._scale = np.concatenate([weights.observation.scale, weights.goal.scale])

    def _act(self, state: np.ndarray, goal: np.ndarray, horizon: float | None) -> np.ndarray:
        """A given horizon is used without the judge."""
        weights, judge = self.weights, self.weights.judge
        count = 0
        if judge is not None and horizon is None:
            count = max(judge.candidates - len(weights.constants.haste), 0)
        luck = self._rng.gumbel(size=(count, weights.components))
        noise = self._rng.standard_normal((count, len(weights.action_scale)))
        return self.choose(state, goal, horizon, luck, noise)

    def choose(
        self,
        state: np.ndarray,
        goal: np.ndarray,
        horizon: float | None,
        luck: np.ndarray,
        noise: np.ndarray,
    ) -> np.ndarray:
        """Choose an action with the given Gumbel and normal noise for the proposals."""
        weights, gaussians = self.weights, self.weights.gaussians
        judge = weights.judge if horizon is None else None
        told = weights.horizon if horizon is None else horizon
        horizons = [told] if judge is None else [told, weights.constants.soon]
        x, mixtures = self._mixtures(state, goal, horizons)
        if judge is None:
            (unit,) = gaussians.densest(mixtures)
        else:
            units, likely = judge.proposals(gaussians, mixtures, luck, noise)
            state, goal = x[None, : self._sizes[0]], x[None, self._sizes[0] :]
            unit = units[judge.cost(state, goal, units, likely).argmin()]
        return weights.action_centre + weights.action_scale * unit

    def _mixtures(
        self, state: np.ndarray, goal: np.ndarray, horizons: list[float | None]
    ) -> "tuple[np.ndarray, Mixture]":
        """The standardised state and goal, and the mixture for each horizon."""
        raw = np.concatenate([state, goal], dtype=np.float32)
        self._check(raw)
        weights, x = self.weights, self._standardised(raw)
        embedded = weights.embed(np.array(horizons, np.float32))
        return x, weights.gaussians.mixture(forward(weights.layers, x[None], embedded))

    def _standardised(self, raw: np.ndarray) -> np.ndarray:
        """A checked state and goal, in one vector, as the network expects them."""
        return np.minimum(np.maximum(raw - self._shift, self._floor), self._limit) * self._scale


class MapPolicy(MixturePolicy):
    """Merlin-map: heads for the next waypoint, or for the goal itself when close to it.

    It acts with the noise it was evaluated with, from its own generator.
    """

    def __init__(self, weights: Weights, policy_map: "Map"):
        super().__init__(weights)
        self._map = policy_map
        self._sought: tuple[bytes, Any] = b"", None  # the latest goal and its place
        first, *others = weights.layers
        inputs = sum(self._sizes)
        # Its horizons are constant, so they are part of the bias.
        bias = first.bias + weights.untold @ first.weight[inputs:]
        self._untold = Layer(first.weight[:inputs], bias), *others

    def _act(self, state: np.ndarray, goal: np.ndarray, horizon: float | None) -> np.ndarray:
        """Act towards the next waypoint. A given horizon replaces that of the map."""
        raw = np.concatenate([state, goal], dtype=np.float32)
        self._check(raw)
        state, goal = raw[: self._sizes[0]], raw[self._sizes[0] :]
        cell = self._map.cell(state, self._place(goal))
        near = self._map.near(cell)
        if horizon is None and near:
            return self._choose(raw)
        waypoint, steps = self._map.waypoint(cell)
        towards = goal if near else waypoint
        told = float(steps) if horizon is None else horizon
        _, mixture = self._mixtures(state, towards, [told])
        noise = self._rng.standard_normal((1, len(self.weights.action_scale)), np.float32)
        luck = np.zeros((1, self.weights.components), np.float32)
        drawn = self.weights.gaussians.draw(mixture, luck, self._map.temperature * noise)
        return self.weights.action_centre + self.weights.action_scale * drawn[0]

    def _place(self, goal: np.ndarray) -> Any:
        """The place of a goal; looked up once while the goal stays the same."""
        key = goal.tobytes()
        if key != self._sought[0]:
            self._sought = key, self._map.place(goal)
        return self._sought[1]

    def _choose(self, raw: np.ndarray) -> np.ndarray:
        """The proposal that the critic prefers, for a checked state and goal in one vector."""
        from merlin.deploy.mixture import NO_LUCK

        weights = self.weights
        assert weights.critic is not None
        x = self._standardised(raw)
        mixtures = weights.gaussians.mixture(forward(self._untold, x[None]))
        units, likely = weights.gaussians.proposals(mixtures, weights.gaussians.haste, *NO_LUCK)
        state, goal = x[None, : self._sizes[0]], x[None, self._sizes[0] :]
        unit = units[weights.critic.cost(state, goal, units, likely).argmin()]
        return weights.action_centre + weights.action_scale * unit

    def reach(self, observation: Any, goal: Any) -> "Reach":
        """Whether the map has a path from a state to a goal, its length, and a confidence."""
        state = checked(observation, (self._sizes[0],), "observation")
        return self._map.reach(state, checked(goal, (self._sizes[1],), "goal"))
