"""Policies as ONNX graphs, for whatever runs those.

The whole policy is in the graph, from raw observation and goal to the action within its bounds.
The horizon is an input with a default: whoever leaves it out gets the policy as it was evaluated.
"""

import importlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from merlin.errors import MerlinError
from merlin.eye import PADDING, SHORTEST, Eye, Layer
from merlin.files import check_free, write_bytes
from merlin.folders import policy_file
from merlin.foresight import MIN_STD
from merlin.runs import load_policy
from merlin.weights import CLIP, HORIZON_DIM, Weights, frequencies, read

OPSET, IR_VERSION = 17, 10
"""Old enough for the runtimes on robots, new enough for all that is used here."""
SAMPLES, AT_ONCE = 1000, 100
FAR = np.arange(SAMPLES) % 2 == 0
"""Every other sample lies beyond what the normaliser lets through."""
TOLERANCE = np.where(FAR, 1e-4, 1e-5)
"""Of an action, or of its bounds where these are wider than one. Where no data has been, networks
are steep, and float32 rounds by more."""


def export(
    run: str | Path,
    out: str | Path,
    *,
    seed: int | None = None,
    checkpoint: str = "final",
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write one policy of a run as ONNX, once it has been found to act as the JAX policy does."""
    out = Path(out)
    if out.suffix != ".onnx":
        raise MerlinError(f"--out: {out} is not named as ONNX files are; give it the end .onnx.")
    check_free(out, overwrite)
    source = policy_file(Path(run), seed, checkpoint)
    weights = read(source)
    if not weights.simple:
        raise MerlinError(
            f"{source}: a policy of {weights.about['algo']} draws and judges its actions, which is "
            "no graph yet; act with it through merlin.runtime, which needs only NumPy."
        )
    _require("onnx"), _require("onnxruntime")
    content = build(weights)
    difference = verify(content, weights, load_policy(source))
    write_bytes(out, content)
    return {
        "path": str(out),
        "policy": str(source),
        "task": weights.about.get("task"),
        "algo": weights.about["algo"],
        "horizon": weights.horizon,
        "inputs": {name: list(shape) for name, shape in _inputs(weights).items()},
        "outputs": list(_outputs(weights)),
        "bytes": len(content),
        "samples": SAMPLES,
        "largest_difference": difference,
    }


def build(weights: Weights) -> bytes:
    """The serialised model."""
    onnx = _require("onnx")
    graph = Graph()
    inputs, outputs = _inputs(weights), _outputs(weights)
    parts = [_part(graph, name, weights) for name in ("observation", "goal")]
    if weights.horizon is not None:
        graph.constant("horizon", np.array([weights.horizon], np.float32))
        parts.append(embed(graph, "horizon", weights.max_period))
    raw = network(graph, parts, weights.layers)
    squash(graph, raw.name, weights)
    float32, uint8 = onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            "policy",
            [
                onnx.helper.make_tensor_value_info(
                    name, float32 if _eye_for(name, weights) is None else uint8, shape
                )
                for name, shape in inputs.items()
            ],
            [
                onnx.helper.make_tensor_value_info(
                    name, float32, ["batch", len(weights.action_scale)]
                )
                for name in outputs
            ],
            [onnx.numpy_helper.from_array(v, name) for name, v in graph.constants.items()],
        ),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="merlin",
    )
    told = {"horizon": weights.horizon, "max_horizon": weights.max_period}
    kept = {k: weights.about.get(k) for k in ("task", "algo", "seed", "step")}
    onnx.helper.set_model_props(model, {k: str(v) for k, v in (kept | told).items()})
    onnx.checker.check_model(model)
    return model.SerializeToString()


def verify(content: bytes, weights: Weights, policy: Any) -> float:
    """The largest difference to the JAX policy over random inputs; refuses what is no rounding."""
    runtime = _require("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # it would warn that the horizon has a default, as it should
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    inputs = {name: _samples(rng, name, weights) for name in ("observation", "goal")}
    unit = np.maximum(weights.action_scale, 1.0)
    largest = np.zeros(SAMPLES)
    act = jax.jit(jax.vmap(lambda *row: policy(*row)))
    for horizon in (None, rng.integers(1, int(weights.max_period) + 1, SAMPLES)):
        if horizon is not None and weights.horizon is None:
            continue
        told = {} if horizon is None else {"horizon": horizon.astype(np.float32)}
        for some in np.split(np.arange(SAMPLES), SAMPLES // AT_ONCE):
            rows = {name: array[some] for name, array in (inputs | told).items()}
            (action,) = session.run(["action"], rows)
            difference = np.abs(action - np.asarray(act(*rows.values()))) / unit
            largest[some] = np.maximum(largest[some], difference.max(axis=1))
    if not (largest <= TOLERANCE).all():
        raise MerlinError(
            f"the ONNX policy differs from the JAX policy by {largest.max():.1e}, which rounding "
            "does not explain; nothing was written. Please report this."
        )
    return float(largest.max())


class Value(NamedTuple):
    """A batch of rows in the graph."""

    name: str
    width: int


class Graph:
    """Nodes and constants of an ONNX graph while it grows; blocks below add to it."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}

    def constant(self, name: str, value: np.ndarray | np.float32) -> str:
        self.constants[name] = np.asarray(value, order="C")
        return name

    def add(self, operator: str, *inputs: str, output: str | None = None, **settings: Any) -> str:
        """Apply an operator; the name of its result."""
        output = output or f"{operator.lower()}_{len(self.nodes)}"
        helper = _require("onnx").helper
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **settings))
        return output


def look(graph: Graph, name: str, eye: Eye) -> Value:
    """The features of images."""
    flat = graph.add("Flatten", graph.add("Cast", name, to=_require("onnx").TensorProto.FLOAT))
    centred = graph.add("Sub", flat, graph.constant("image_mean", eye.mean))
    scaled = graph.add("Mul", centred, graph.constant("image_scale", eye.scale))
    shape = graph.constant("image_shape", np.array([-1, *eye.shape]))
    x = graph.add("Transpose", graph.add("Reshape", scaled, shape), perm=[0, 3, 1, 2])
    for index, (weight, bias, stride) in enumerate(eye.filters):
        kernel = graph.constant(f"filter_{index}", weight.transpose(3, 2, 0, 1))
        offset = graph.constant(f"filter_bias_{index}", bias)
        border, steps = [PADDING] * 4, [stride, stride]
        x = graph.add("Relu", graph.add("Conv", x, kernel, offset, pads=border, strides=steps))
    seen = graph.add("Flatten", graph.add("Transpose", x, perm=[0, 2, 3, 1]))
    if not eye.layers:
        return Value(seen, eye.features)
    inputs = Value(seen, len(eye.layers[0].weight))
    latent = network(graph, [inputs], eye.layers, prefix="encoder_").name
    length = graph.add("ReduceL2", latent, axes=[1])
    positive = graph.add("Max", length, graph.constant("shortest", np.float32(SHORTEST)))
    return Value(graph.add("Div", latent, positive), eye.features)


def normalise(graph: Graph, name: str, value: str, mean: np.ndarray, scale: np.ndarray) -> Value:
    """Standardise and clip an input."""
    centred = graph.add("Sub", value, graph.constant(f"{name}_mean", mean))
    scaled = graph.add("Mul", centred, graph.constant(f"{name}_scale", scale))
    low, high = (graph.constant(n, np.float32(v)) for n, v in (("low", -CLIP), ("high", CLIP)))
    return Value(graph.add("Clip", scaled, low, high), len(mean))


def embed(graph: Graph, name: str, max_period: float) -> Value:
    """Cosines and sines of a horizon."""
    column = graph.add("Unsqueeze", name, graph.constant("last_axis", np.array([1])))
    rates = graph.constant("frequencies", frequencies(max_period))
    angles = graph.add("Mul", column, rates)
    both = graph.add("Concat", graph.add("Cos", angles), graph.add("Sin", angles), axis=1)
    return Value(both, HORIZON_DIM)


def network(graph: Graph, parts: list[Value], layers: tuple[Layer, ...], prefix: str = "") -> Value:
    """A ReLU network on several inputs side by side.

    The first layer is a sum of products, one per input, not one product of them all: so the
    default horizon, a single row, serves a batch of any size.
    """
    first, *others = layers
    x = _affine(graph, parts, first, f"{prefix}0")
    for index, layer in enumerate(others, 1):
        x = _affine(graph, [Value(graph.add("Relu", x.name), x.width)], layer, f"{prefix}{index}")
    return x


def squash(graph: Graph, raw: str, weights: Weights) -> None:
    """From what the network says to the action within its bounds and, if it has one, its spread."""
    mean = raw
    if weights.gaussian:
        size = len(weights.action_scale)
        zero, half, full, axis = (
            graph.constant(name, np.array([value]))
            for name, value in (("zero", 0), ("half", size), ("full", 2 * size), ("columns", 1))
        )
        mean = graph.add("Slice", raw, zero, half, axis)
        spread = graph.add("Softplus", graph.add("Slice", raw, half, full, axis))
        graph.add("Add", spread, graph.constant("least_std", np.float32(MIN_STD)), output="std")
    unit = graph.add("Tanh", mean)
    scaled = graph.add("Mul", unit, graph.constant("action_scale", weights.action_scale))
    graph.add(
        "Add", scaled, graph.constant("action_centre", weights.action_centre), output="action"
    )


def _affine(graph: Graph, parts: list[Value], layer: Layer, label: str) -> Value:
    total, row = graph.constant(f"bias_{label}", layer.bias), 0
    for number, (part, width) in enumerate(parts):
        rows = layer.weight[row : row + width]
        weight = graph.constant(f"weight_{label}_{number}", rows)
        total = graph.add("Add", graph.add("MatMul", part, weight), total)
        row += width
    return Value(total, len(layer.bias))


def _inputs(weights: Weights) -> dict[str, list[str | int]]:
    inputs: dict[str, list[str | int]] = {
        "observation": ["batch", *_shape("observation", weights)],
        "goal": ["batch", *_shape("goal", weights)],
    }
    return inputs if weights.horizon is None else inputs | {"horizon": ["batch or 1"]}


def _eye_for(name: str, weights: Weights) -> Eye | None:
    """What an input of the graph is seen with, if it is an image."""
    seen = ("observation", "goal") if weights.goal_image else ("observation",)
    return weights.eye if name in seen else None


def _shape(name: str, weights: Weights) -> tuple[int, ...]:
    """Of one row of an input."""
    eye = _eye_for(name, weights)
    return _normaliser(name, weights)[0].shape if eye is None else eye.shape


def _normaliser(name: str, weights: Weights) -> tuple[np.ndarray, np.ndarray]:
    """Mean and scale of an input, or of its features."""
    if name == "observation":
        return weights.observation_mean, weights.observation_scale
    return weights.goal_mean, weights.goal_scale


def _part(graph: Graph, name: str, weights: Weights) -> Value:
    """An input as the policy's network is given it."""
    eye = _eye_for(name, weights)
    if eye is None:
        return normalise(graph, name, name, *_normaliser(name, weights))
    seen = look(graph, name, eye)
    return normalise(graph, name, seen.name, *_normaliser(name, weights)) if eye.layers else seen


def _outputs(weights: Weights) -> list[str]:
    return ["action", "std"] if weights.gaussian else ["action"]


def _samples(rng: np.random.Generator, name: str, weights: Weights) -> np.ndarray:
    """Inputs as they occur, and those that are far outside."""
    eye = _eye_for(name, weights)
    if eye is not None:
        return _images(rng, eye)
    mean, scale = _normaliser(name, weights)
    spread = np.where(FAR, 2 * CLIP, 1.0)[:, None]
    return (mean + spread * rng.standard_normal((SAMPLES, len(mean))) / scale).astype(np.float32)


def _images(rng: np.random.Generator, eye: Eye) -> np.ndarray:
    """Images about the mean one, and noise."""
    shape = (SAMPLES, *eye.shape)
    near = eye.mean.reshape(eye.shape) + rng.standard_normal(shape, np.float32) / eye.scale
    far = FAR[:, None, None, None]
    images = np.where(far, rng.integers(0, 256, shape, np.uint8), np.clip(near, 0, 255))
    return images.astype(np.uint8)


def _require(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MerlinError(
            f"{name} is not installed, which the export needs; pip install 'merlin[export]'."
        ) from None
