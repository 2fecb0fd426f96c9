"""Feed-forward networks and CNNs on NumPy arrays, with any number of leading axes.

This module and `mixture` use only operations that `graph.Value` also supports: the ONNX graph of
a policy is traced from this code.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

MIN_NORM = 1e-12
"""Prevents division by zero when a zero vector is normalised."""


class Layer(NamedTuple):
    """An affine map of row vectors: x @ weight + bias."""

    weight: np.ndarray  # (inputs, outputs)
    bias: np.ndarray  # (outputs,)


class Standardiser(NamedTuple):
    """Centres, scales and clips inputs, as `nets.layers.Normaliser` does."""

    mean: np.ndarray
    scale: np.ndarray
    limit: np.ndarray  # clipping range of the scaled inputs

    def __call__(self, x: Any) -> Any:
        return np.minimum(np.maximum((x - self.mean) * self.scale, -self.limit), self.limit)

    def fits(self, size: int) -> bool:
        """Whether all arrays have the right type and size."""
        return all((array.dtype, array.shape) == (np.float32, (size,)) for array in self)


class Filter(NamedTuple):
    """A convolution with zero padding."""

    weight: np.ndarray  # (width, width, inputs, outputs)
    bias: np.ndarray  # (outputs,)
    stride: int
    padding: int


@dataclass(frozen=True, eq=False, repr=False)
class Cnn:
    """How a policy maps images to features.

    Images are centred and scaled as in training, and each convolution is followed by a ReLU. A
    policy on latents adds the dense layers of its encoder. Their outputs are normalised to unit
    length. The predicted goal is appended to them, or replaces them if `units` is false.
    """

    shape: tuple[int, ...]
    mean: np.ndarray  # (pixels,)
    scale: np.ndarray  # ()
    filters: tuple[Filter, ...]
    layers: tuple[Layer, ...] = ()
    readout: Layer | None = None
    units: bool = True

    def __call__(self, images: Any) -> Any:
        """The features of an image; in a graph, of a batch of images."""
        flat = images.reshape(*images.shape[:-3], len(self.mean)).astype(np.float32)
        x = ((flat - self.mean) * self.scale).reshape(images.shape)
        x = convolutions(x, self.filters)
        if self.readout is None:
            return x
        x = forward(self.layers, x)
        goal = forward([self.readout], x)
        if not self.units:
            return goal
        return np.concatenate([with_length(x, 1.0), goal], axis=-1)

    @property
    def filter_outputs(self) -> int:
        """Number of outputs of the convolutions."""
        height, width, channels = self.shape
        for weight, bias, stride, padding in self.filters:
            height, width = (
                (size + 2 * padding - len(weight)) // stride + 1 for size in (height, width)
            )
            channels = len(bias)
        return height * width * channels

    @property
    def features(self) -> int:
        """Number of features of an image."""
        if self.readout is None:
            return self.filter_outputs
        unit, goal = self.readout.weight.shape
        return unit * self.units + goal

    def fits(self) -> bool:
        """Whether all arrays have consistent types and sizes."""
        channels = [self.shape[-1], *(kernel.bias.size for kernel in self.filters)]
        dense = [*self.layers, *([] if self.readout is None else [self.readout])]
        floats = [self.mean, self.scale, *(a for kernel in self.filters for a in kernel[:2])]
        return (
            bool(self.filters)
            and all(array.dtype == np.float32 for array in floats)
            and (self.mean.shape, self.scale.shape) == ((math.prod(self.shape),), ())
            and all(
                kernel.weight.shape == (len(kernel.weight),) * 2 + ends
                and kernel.bias.shape == ends[1:]
                for kernel, ends in zip(self.filters, itertools.pairwise(channels), strict=True)
            )
            and fits(dense, self.filter_outputs)
        )


def relu(x: Any) -> Any:
    return np.maximum(x, 0.0)


def gelu(x: Any) -> Any:
    """The tanh approximation, as in training."""
    inner = (x + x * x * x * 0.044715) * math.sqrt(2.0 / math.pi)
    return x * (np.tanh(inner) + 1.0) * 0.5


ACTIVATIONS: Mapping[str, Callable[[Any], Any]] = {"relu": relu, "gelu": gelu}
"""Keyed by their names in policy files."""
FEW, LONG = (2, 3), 64
"""Numbers of rows, and their least length, for which products of vectors are faster in BLAS."""


def with_length(x: Any, length: float) -> Any:
    """Scale vectors to this length."""
    norm = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    return x / np.maximum(norm, np.float32(MIN_NORM)) * length


def forward(layers: Sequence[Layer], *parts: Any, activation: Callable[[Any], Any] = relu) -> Any:
    """Apply a network to several inputs that are concatenated, each (..., width).

    The first layer is a sum of products, one per input, so an input shared by many rows is
    multiplied only once.
    """
    first, *others = layers
    x: Any = first.bias
    row = 0
    for part in parts:
        width = part.shape[-1]
        x = product(part, first.weight[row : row + width]) + x
        row += width
    for layer in others:
        x = product(activation(x), layer.weight) + layer.bias
    return x


def product(x: Any, weight: np.ndarray) -> Any:
    """`x @ weight`. Two or three long rows are multiplied one by one, which is twice as fast."""
    few = isinstance(x, np.ndarray) and x.ndim == 2 and x.shape[0] in FEW and x.shape[1] >= LONG
    if not few:
        return x @ weight
    result = np.empty((x.shape[0], weight.shape[1]), np.result_type(x, weight))
    for row, out in zip(x, result, strict=True):
        np.dot(row, weight, out=out)
    return result


def fits(layers: Sequence[Layer], inputs: int, outputs: Sequence[int] = ()) -> bool:
    """Whether layers have valid types and sizes for these inputs and one of these output sizes."""
    widths = [inputs, *(layer.bias.size for layer in layers)]
    return (not outputs or widths[-1] in outputs) and all(
        layer.weight.dtype == layer.bias.dtype == np.float32
        and (layer.weight.shape, layer.bias.shape) == (ends, ends[1:])
        for layer, ends in zip(layers, itertools.pairwise(widths), strict=True)
    )


@singledispatch
def convolutions(x: Any, filters: Sequence[Filter]) -> Any:
    """Apply filters with ReLUs, one after another, to an image (height, width, channels)."""
    for kernel in filters:
        x = np.maximum(convolve(x, kernel), 0.0)
    return x.reshape(-1)


def convolve(x: np.ndarray, kernel: Filter) -> np.ndarray:
    """Convolve an image by one product of all patches with the filter."""
    weight, bias, stride, border = kernel
    height, width, channels = x.shape
    padded = np.zeros((height + 2 * border, width + 2 * border, channels), np.float32)
    padded[border : border + height, border : border + width] = x
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[:2], axis=(0, 1))
    patches = windows[::stride, ::stride].transpose(0, 1, 3, 4, 2)
    rows = patches.reshape(-1, weight.size // len(bias)) @ weight.reshape(-1, len(bias))
    return rows.reshape(*patches.shape[:2], len(bias)) + bias
