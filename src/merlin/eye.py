"""The CNN of the policies that see images, with NumPy alone: an image to a vector.

Centred and scaled as in training, three convolutions with a ReLU each and, if the policy acts on
the latents of an encoder, that encoder's dense layers: their outcome is given length 1, and behind
it (or in its place) comes the goal that is read out of it.
"""

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

FILTERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, width of the filter and stride of each convolution."""
PADDING = 1
SHORTEST = 1e-12
"""What a vector is divided by at least where it is given length 1."""


class Layer(NamedTuple):
    """An affine map of row vectors: x @ weight + bias."""

    weight: np.ndarray  # (inputs, outputs)
    bias: np.ndarray  # (outputs,)


class Filter(NamedTuple):
    """A convolution with a border of zeros."""

    weight: np.ndarray  # (width, width, inputs, outputs)
    bias: np.ndarray  # (outputs,)
    stride: int


@dataclass(frozen=True)
class Eye:
    """What a policy file holds of how images are seen."""

    shape: tuple[int, ...]
    mean: np.ndarray  # (pixels,)
    scale: np.ndarray  # ()
    filters: tuple[Filter, ...]
    layers: tuple[Layer, ...] = ()
    readout: Layer | None = None  # of the goal that an image achieves
    units: bool = True  # whether the vector of length 1 is a part of the features

    def __call__(self, image: np.ndarray) -> np.ndarray:
        """The features of one image."""
        x = ((image.reshape(-1) - self.mean) * self.scale).reshape(self.shape)
        for weight, bias, stride in self.filters:
            x = np.maximum(convolve(x, weight, stride) + bias, 0.0)
        x = x.reshape(-1)
        for index, (weight, bias) in enumerate(self.layers, 1):
            x = x @ weight + bias
            if index < len(self.layers):
                x = np.maximum(x, 0.0)
        if self.readout is None:
            return x
        goal = x @ self.readout.weight + self.readout.bias
        if not self.units:
            return goal
        return np.concatenate([x / np.maximum(np.linalg.norm(x), np.float32(SHORTEST)), goal])

    @property
    def features(self) -> int:
        """How many there are."""
        if self.readout is None:
            return seen_by_filters(self.shape)
        unit, goal = self.readout.weight.shape
        return unit * self.units + goal

    def fits(self) -> bool:
        """Whether all arrays have the types and sizes that they must have."""
        channels = [self.shape[2], *(outputs for outputs, _, _ in FILTERS)]
        kernels = [
            (width, width, inputs, outputs)
            for (outputs, width, _), inputs in zip(FILTERS, channels, strict=False)
        ]
        layers = [*self.layers, *([] if self.readout is None else [self.readout])]
        widths = [seen_by_filters(self.shape), *(layer.bias.size for layer in layers)]
        dense = list(itertools.pairwise(widths))
        weights = [*(f.weight for f in self.filters), *(layer.weight for layer in layers)]
        biases = [*(f.bias for f in self.filters), *(layer.bias for layer in layers)]
        return (
            all(array.dtype == np.float32 for array in (self.mean, self.scale, *weights, *biases))
            and (self.mean.shape, self.scale.shape) == ((int(np.prod(self.shape)),), ())
            and [weight.shape for weight in weights] == [*kernels, *dense]
            and all(b.shape == w.shape[-1:] for w, b in zip(weights, biases, strict=True))
        )


def seen_by_filters(shape: tuple[int, ...]) -> int:
    """How many numbers the convolutions make of an image."""
    size = np.array(shape[:2])
    for _, width, stride in FILTERS:
        size = (size + 2 * PADDING - width) // stride + 1
    return int(size.prod()) * FILTERS[-1][0]


def convolve(x: np.ndarray, weight: np.ndarray, stride: int) -> np.ndarray:
    """Slide a filter over (height, width, channels): one product of all patches with it."""
    padded = np.pad(x, ((PADDING, PADDING), (PADDING, PADDING), (0, 0)))
    width, outputs = weight.shape[0], weight.shape[3]
    windows = np.lib.stride_tricks.sliding_window_view(padded, (width, width), axis=(0, 1))
    patches = windows[::stride, ::stride].transpose(0, 1, 3, 4, 2)
    flat = patches.reshape(patches.shape[0] * patches.shape[1], -1)
    return (flat @ weight.reshape(-1, outputs)).reshape(*patches.shape[:2], outputs)
