"""ONNX graphs while they grow, and the blocks that policies are made of."""

import importlib
from typing import Any, NamedTuple

import numpy as np

from merlin.errors import MerlinError
from merlin.eye import PADDING, SHORTEST, Eye, Layer
from merlin.foresight import MIN_STD
from merlin.weights import CLIP, HORIZON_DIM, Weights, frequencies


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
        helper = require("onnx").helper
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **settings))
        return output


def look(graph: Graph, name: str, eye: Eye) -> Value:
    """The features of images."""
    flat = graph.add("Flatten", graph.add("Cast", name, to=require("onnx").TensorProto.FLOAT))
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
    if eye.readout is None:
        return Value(seen, eye.features)
    inputs = Value(seen, len(eye.layers[0].weight))
    latent = network(graph, [inputs], eye.layers, prefix="encoder_")
    goal = network(graph, [latent], (eye.readout,), prefix="readout_")
    if not eye.units:
        return goal
    length = graph.add("ReduceL2", latent.name, axes=[1])
    positive = graph.add("Max", length, graph.constant("shortest", np.float32(SHORTEST)))
    unit = graph.add("Div", latent.name, positive)
    return Value(graph.add("Concat", unit, goal.name, axis=1), eye.features)


def normalise(graph: Graph, name: str, value: str, mean: np.ndarray, scale: np.ndarray) -> Value:
    """Standardise and clip an input."""
    centred = graph.add("Sub", value, graph.constant(f"{name}_mean", mean))
    scaled = graph.add("Mul", centred, graph.constant(f"{name}_scale", scale))
    low, high = (graph.constant(n, np.float32(v)) for n, v in (("low", -CLIP), ("high", CLIP)))
    return Value(graph.add("Clip", scaled, low, high), len(mean))


def embed(graph: Graph, name: str, max_period: float) -> Value:
    """Cosines and sines of horizons, along a new last axis."""
    column = graph.add("Unsqueeze", name, graph.constant("last_axis", np.array([-1])))
    rates = graph.constant("frequencies", frequencies(max_period))
    angles = graph.add("Mul", column, rates)
    both = graph.add("Concat", graph.add("Cos", angles), graph.add("Sin", angles), axis=-1)
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


def require(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MerlinError(
            f"{name} is not installed, which the export needs; pip install 'merlin[export]'."
        ) from None
