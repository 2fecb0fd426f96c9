"""ONNX graphs, traced by running NumPy code on values that record the operations applied to them.

A `Value` represents a batch of rows. It carries an example, a batch of one, on which NumPy performs
the same operations. Shapes and types follow from the example, without rules of their own.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from merlin.deploy.map import columns, entries
from merlin.deploy.networks import Filter, convolutions, convolve
from merlin.io.extras import require

OPERATORS = {
    np.add: "Add",
    np.subtract: "Sub",
    np.multiply: "Mul",
    np.divide: "Div",
    np.matmul: "MatMul",
    np.equal: "Equal",
    np.minimum: "Min",
    np.maximum: "Max",
    np.cos: "Cos",
    np.sin: "Sin",
    np.exp: "Exp",
    np.log: "Log",
    np.sqrt: "Sqrt",
    np.tanh: "Tanh",
}


class Graph:
    """The nodes and constants of an ONNX graph under construction."""

    def __init__(self) -> None:
        self.onnx = require("onnx", "export", "the export")
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self._names: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def constant(self, value: np.ndarray) -> str:
        """The name of a constant; equal constants are shared."""
        key = value.dtype.str, value.shape, value.tobytes()
        name = self._names.setdefault(key, f"constant_{len(self._names)}")
        self.constants[name] = np.ascontiguousarray(value).reshape(value.shape)
        return name

    def add(self, operator: str, inputs: Sequence[Any], example: Any, **settings: Any) -> "Value":
        """Apply an operator to values and constants; return the result."""
        number = [x.example.dtype for x in inputs if isinstance(x, Value)][-1]
        names = [
            x.name
            if isinstance(x, Value)
            # Python numbers take the type of the other operand.
            else self.constant(np.asarray(x, number if np.ndim(x) == 0 else None))
            for x in inputs
        ]
        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, names, [name], **settings))
        return Value(self, name, example)

    def output(self, name: str, value: "Value") -> None:
        """Name a result as an output of the graph."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [value.name], [name]))


class Value(NDArrayOperatorsMixin):
    """An array in the graph, with the subset of NumPy that policies use."""

    def __init__(self, graph: Graph, name: str, example: np.ndarray):
        assert example.dtype != np.float64, f"{name}: policies are float32 throughout"
        self.graph, self.name, self.example = graph, name, example

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the example; its first axis stands for any number of rows."""
        return self.example.shape

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        with np.errstate(all="ignore"):
            example = getattr(ufunc, method)(*map(_example, inputs), **settings)
        if (ufunc, method) == (np.logaddexp, "reduce"):
            axes = [settings["axis"]]
            return self.graph.add("ReduceLogSumExp", inputs, example, axes=axes, keepdims=0)
        if method != "__call__" or settings:
            return NotImplemented
        zero, rest = (inputs[0], inputs[1:]) if ufunc is np.logaddexp else (inputs[-1], inputs[:-1])
        if ufunc in (np.maximum, np.logaddexp) and np.ndim(_example(zero)) == 0 and zero == 0.0:
            return self.graph.add("Relu" if ufunc is np.maximum else "Softplus", rest, example)
        return self.graph.add(OPERATORS[ufunc], inputs, example)

    def __array_function__(self, function: Any, kinds: Any, inputs: Any, settings: Any) -> Any:
        if function is np.concatenate:
            (parts,) = inputs
            example = np.concatenate([*map(_example, parts)], **settings)
            return self.graph.add("Concat", parts, example, **settings)
        if function is np.where:
            return self.graph.add("Where", inputs, np.where(*map(_example, inputs)))
        if function is np.clip:
            return self.graph.add("Clip", inputs, np.clip(*map(_example, inputs)))
        return NotImplemented

    def __getitem__(self, index: tuple[Any, ...]) -> "Value":
        """Slices and new axes after an ellipsis."""
        _, *parts = index
        value, kept = self, [part for part in parts if part is not None]
        for axis, part in zip(range(-len(kept), 0), kept, strict=True):
            if part != slice(None):
                start, stop, _ = part.indices(value.shape[axis])
                ends = (np.array([number]) for number in (start, stop, axis))
                sliced = (..., part, *[slice(None)] * (-1 - axis))
                value = self.graph.add("Slice", [value, *ends], value.example[sliced])
        for axis, part in enumerate(parts, -len(parts)):
            if part is None:
                axes = np.array([axis])
                value = self.graph.add(
                    "Unsqueeze", [value, axes], np.expand_dims(value.example, axis)
                )
        return value

    def reshape(self, *shape: Any) -> "Value":
        """Unchanged leading axes are copied, since they may have any number of rows."""
        example = self.example.reshape(*shape)
        same = [a == b for a, b in zip(self.shape, example.shape, strict=False)]
        kept = same.index(False) if False in same else len(same)
        wanted = np.array([0] * kept + list(example.shape[kept:]))
        return self.graph.add("Reshape", [self, wanted], example)

    def astype(self, dtype: Any) -> "Value":
        if self.example.dtype == dtype:
            return self
        to = self.graph.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.graph.add("Cast", [self], self.example.astype(dtype), to=to)

    def sum(self, *, axis: int, keepdims: bool = False) -> "Value":
        example = self.example.sum(axis=axis, keepdims=keepdims)
        return self.graph.add(
            "ReduceSum", [self, np.array([axis])], example, keepdims=int(keepdims)
        )

    def argmax(self, *, axis: int) -> "Value":
        example = self.example.argmax(axis=axis)
        return self.graph.add("ArgMax", [self], example, axis=axis, keepdims=0)

    def argmin(self, *, axis: int) -> "Value":
        example = self.example.argmin(axis=axis)
        return self.graph.add("ArgMin", [self], example, axis=axis, keepdims=0)


def _example(x: Any) -> Any:
    return x.example if isinstance(x, Value) else x


@convolutions.register
def _(x: Value, filters: Sequence[Filter]) -> Value:
    """ONNX expects channels first."""
    add, example = x.graph.add, x.example[0]
    x = add("Transpose", [x], x.example.transpose(0, 3, 1, 2), perm=[0, 3, 1, 2])
    for kernel in filters:
        example = np.maximum(convolve(example, kernel), 0.0)
        x = add(
            "Conv",
            [x, kernel.weight.transpose(3, 2, 0, 1), kernel.bias],
            example.transpose(2, 0, 1)[None],
            pads=[kernel.padding] * 4,
            strides=[kernel.stride] * 2,
        )
        x = add("Relu", [x], x.example)
    x = add("Transpose", [x], example[None], perm=[0, 2, 3, 1])
    return x.reshape(1, -1)


@entries.register
def _(index: Value, table: np.ndarray) -> Value:
    return index.graph.add("Gather", [table, index], table[index.example])


@columns.register
def _(x: Value, which: np.ndarray) -> Value:
    return x.graph.add("Gather", [x, which], x.example[..., which], axis=len(x.shape) - 1)
