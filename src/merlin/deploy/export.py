"""Export policies as ONNX graphs.

The graph contains the whole policy, from the raw observation and goal to the action within its
bounds. The horizon is an input with a default; without it the graph acts as the policy was
evaluated.
"""

from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from merlin.deploy.graph import Graph, Value
from merlin.deploy.mixture import NO_LUCK, pick
from merlin.deploy.networks import Cnn, Standardiser, forward
from merlin.deploy.weights import Weights, read
from merlin.errors import MerlinError
from merlin.io import extras
from merlin.io.files import check_free, write_bytes
from merlin.policies.images import SeeingPolicy
from merlin.training.layout import policy_file
from merlin.training.runs import load_policy

OPSET, IR_VERSION = 17, 10
"""Old enough for the runtimes on robots, new enough for the operators used here."""
SAMPLES, AT_ONCE = 1000, 100
FAR = np.arange(SAMPLES) % 2 == 0
"""Every other sample lies beyond the clipping range of the normaliser."""
TOLERANCE = np.where(FAR, 1e-4, 1e-5)
"""Of an action, or of its range if that is wider than one. Far from the data, networks are steep
and float32 rounding errors are larger."""
UNTOLD = 0.0
"""The horizon value that means "none" in graphs of policies with a judge or a map."""
TIE = 1e-3
"""Proposals whose steps to the goal differ by less than this are equally good."""


def export(
    run: str | Path,
    out: str | Path,
    *,
    seed: int | None = None,
    checkpoint: str = "final",
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write one policy of a run as ONNX, after verifying that it acts as the JAX policy does."""
    if not isinstance(out, str | Path):
        raise MerlinError(f"out: {out!r} is not a path; give the file to write, NAME.onnx.")
    out = Path(out)
    if out.suffix != ".onnx":
        raise MerlinError(f"out: {out} does not end in .onnx; give the file that ending.")
    check_free(out, overwrite)
    source = policy_file(Path(run), seed, checkpoint)
    weights = read(source)
    extras.check("export", "the export")
    policy = load_policy(source)
    # A graph has no random numbers: it uses the proposals of a policy without a key.
    chances = _inner(policy).chances(None) if weights.judge is not None else ()
    content = build(weights, *(np.asarray(part, np.float32) for part in chances))
    difference = verify(content, weights, policy)
    write_bytes(out, content)
    return {
        "path": str(out),
        "policy": str(source),
        "task": weights.about.get("task"),
        "algo": weights.about["algo"],
        "horizon": weights.horizon,
        "inputs": _shapes(weights),
        "outputs": list(_outputs(weights)),
        "bytes": len(content),
        "samples": SAMPLES,
        "largest_difference": difference,
    }


def build(weights: Weights, *chances: np.ndarray) -> bytes:
    """The serialised model; with a judge, `chances` are the random numbers of its proposals."""
    onnx = extras.require("onnx", "export", "the export")
    graph, helper = Graph(), onnx.helper
    types = {part.name: part.dtype for part in _inputs(weights)}
    types["horizon"] = np.dtype(np.float32)
    seen, wanted = _inputs(weights)
    state, goal = seen.given(graph), wanted.given(graph)
    told: Any = Value(graph, "horizon", np.zeros(1, np.float32))
    near: Any = None
    unasked: Any = None
    if weights.map is not None:
        unasked = told == UNTOLD
        goal, steps, near = weights.map.heading(state, goal)
        told = np.where(unasked, steps, told)
    state, goal = seen.standardised(state), wanted.standardised(goal)
    if weights.horizon is not None:
        chosen = weights.judge is None and weights.map is None
        default = weights.horizon if chosen else UNTOLD
        graph.constants["horizon"] = np.array([default], np.float32)
    size = len(weights.action_scale)
    if weights.simple:
        embedded = [] if weights.horizon is None else [weights.embed(told)]
        raw = weights.outputs(state, goal, *embedded)
        if weights.gaussian:
            spread = np.logaddexp(0.0, raw[..., size:]) + weights.constants.min_std
            graph.output("std", spread)
        unit = weights.within_bounds(raw[..., :size])
    else:
        rows = state[..., None, :], goal[..., None, :]
        unit = _chosen(weights, *rows, told, *chances)
        if weights.critic is not None:
            preferred = np.where(unasked[..., None], _preferred(weights, *rows), unit)
            unit = np.where(near[..., None], preferred, unit)
    graph.output("action", unit * weights.action_scale + weights.action_centre)
    info = helper.make_tensor_value_info
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "policy",
            [
                info(
                    name,
                    helper.np_dtype_to_tensor_dtype(types.get(name, told.example.dtype)),
                    shape,
                )
                for name, shape in _shapes(weights).items()
            ],
            [info(name, onnx.TensorProto.FLOAT, ["batch", size]) for name in _outputs(weights)],
            [onnx.numpy_helper.from_array(v, name) for name, v in graph.constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="merlin",
    )
    horizons = {"horizon": weights.horizon, "max_horizon": weights.max_period}
    kept = {k: weights.about.get(k) for k in ("task", "algo", "seed", "step")}
    helper.set_model_props(model, {k: str(v) for k, v in (kept | horizons).items()})
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _chosen(weights: Weights, state: Any, goal: Any, horizon: Any, *chances: np.ndarray) -> Any:
    """The action of Merlin-plus, scaled to [-1, 1]. The inputs are standardised."""
    gaussians, judge, told = weights.gaussians, weights.judge, horizon[..., None]
    unasked = horizon == UNTOLD
    if judge is not None:
        # The horizon of the aggressive proposals is added as a second row by broadcasting, without
        # a concatenation, so that the other inputs need only one row.
        first, soon = np.array([[1, 0], [0, weights.constants.soon]], np.float32)
        told = np.where(unasked[..., None], weights.horizon, told) * first + soon
    mixtures = gaussians.mixture(forward(weights.layers, state, goal, weights.embed(told)))
    if judge is None:
        return gaussians.densest(mixtures).sum(axis=-2)
    proposed, likely = judge.proposals(gaussians, mixtures, *chances)
    best = judge.cost(state, goal, proposed, likely).argmin(axis=-1)
    return pick(proposed, np.where(unasked, best, 0))


def _preferred(weights: Weights, state: Any, goal: Any) -> Any:
    """The proposal that the critic of Merlin-map prefers, for standardised inputs."""
    gaussians, critic = weights.gaussians, weights.critic
    assert critic is not None
    mixtures = gaussians.mixture(forward(weights.layers, state, goal, weights.untold))
    proposed, likely = gaussians.proposals(mixtures, gaussians.haste, *NO_LUCK)
    return pick(proposed, critic.cost(state, goal, proposed, likely).argmin(axis=-1))


def verify(content: bytes, weights: Weights, policy: Any) -> float:
    """The largest difference to the JAX policy on random inputs; fails if it exceeds rounding."""
    runtime = extras.require("onnxruntime", "export", "the export")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # it would warn that the horizon has a default
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    inputs = {part.name: part.samples(rng) for part in _inputs(weights)}
    unit = np.maximum(weights.action_scale, 1.0)
    largest = np.zeros(SAMPLES)
    for horizon in (None, rng.integers(1, int(weights.max_period) + 1, SAMPLES)):
        if horizon is not None and weights.horizon is None:
            continue
        told = {} if horizon is None else {"horizon": horizon.astype(np.float32)}
        for some in np.split(np.arange(SAMPLES), SAMPLES // AT_ONCE):
            rows = {name: array[some] for name, array in (inputs | told).items()}
            (action,) = session.run(["action"], rows)
            wanted = np.asarray(_act(policy, *rows.values()))
            right = wanted[:, None]
            if horizon is None and (weights.judge is not None or weights.critic is not None):
                right = np.concatenate([right, _as_good(policy, rows)], axis=1)
            difference = (np.abs(action[:, None] - right) / unit).max(axis=2).min(axis=1)
            largest[some] = np.maximum(largest[some], difference)
    if not (largest <= TOLERANCE).all():
        raise MerlinError(
            f"the ONNX policy differs from the JAX policy by {largest.max():.1e}, which rounding "
            "does not explain; nothing was written. Please report this."
        )
    return float(largest.max())


def _inner(policy: Any) -> Any:
    """The policy behind an image encoder, or the policy itself."""
    return policy.policy if isinstance(policy, SeeingPolicy) else policy


# Compiled once for all policies of a structure: their arrays are arguments, not constants.
@eqx.filter_jit
def _act(policy: Any, *rows: Any) -> jax.Array:
    return jax.vmap(lambda *row: policy(*row))(*rows)


def _as_good(policy: Any, rows: dict[str, np.ndarray]) -> np.ndarray:
    """For each row, the proposals that rounding may select; infinity for the others."""
    states, goals = rows["observation"], rows["goal"]
    if isinstance(policy, SeeingPolicy):
        states = np.asarray(jax.vmap(policy.encoder)(jnp.asarray(states)))
    return np.asarray(_ties(_inner(policy), states, goals))


@eqx.filter_jit
def _ties(policy: Any, states: Any, goals: Any) -> jax.Array:
    actions, costs = jax.vmap(policy.judged)(states, goals)
    same = jnp.isclose(costs, jnp.min(costs, axis=1, keepdims=True), rtol=TIE, atol=TIE)
    return jnp.where(same[..., None], actions, jnp.inf)


class Input(NamedTuple):
    """A state or a goal; an image if there is a CNN for it."""

    name: str
    standardiser: Standardiser  # of its numbers, or of an image's features
    cnn: Cnn | None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.standardiser.mean.shape if self.cnn is None else self.cnn.shape

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32 if self.cnn is None else np.uint8)

    def given(self, graph: Graph) -> Any:
        """Add the input to the graph; for an image, return its features."""
        value: Any = Value(graph, self.name, np.zeros((1, *self.shape), self.dtype))
        return value if self.cnn is None else self.cnn(value)

    def standardised(self, value: Any) -> Any:
        """The standardised value that the policy's network takes."""
        if self.cnn is not None and not self.cnn.layers:
            return value
        return self.standardiser(value)

    def samples(self, rng: np.random.Generator) -> np.ndarray:
        """Typical values and far outliers; for images, noise and variations of the mean image."""
        shape, cnn = (SAMPLES, *self.shape), self.cnn
        if cnn is None:
            mean, scale, limit = self.standardiser
            spread = np.where(FAR[:, None], 2 * limit, 1.0)
            return (mean + spread * rng.standard_normal(shape) / scale).astype(np.float32)
        near = cnn.mean.reshape(cnn.shape) + rng.standard_normal(shape, np.float32) / cnn.scale
        far = FAR[:, None, None, None]
        images = np.where(far, rng.integers(0, 256, shape, np.uint8), np.clip(near, 0, 255))
        return images.astype(np.uint8)


def _inputs(weights: Weights) -> tuple[Input, Input]:
    goal_cnn = weights.cnn if weights.goal_image else None
    return (
        Input("observation", weights.observation, weights.cnn),
        Input("goal", weights.goal, goal_cnn),
    )


def _shapes(weights: Weights) -> dict[str, list[str | int]]:
    """Shapes of the graph's inputs."""
    shapes: dict[str, list[str | int]] = {
        part.name: ["batch", *part.shape] for part in _inputs(weights)
    }
    return shapes if weights.horizon is None else shapes | {"horizon": ["batch or 1"]}


def _outputs(weights: Weights) -> list[str]:
    return ["action", "std"] if weights.simple and weights.gaussian else ["action"]
