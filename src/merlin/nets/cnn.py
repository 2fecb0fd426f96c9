"""Image networks: the paper's CNN, and `make_net`, which builds a learner's network.

Every network of a learner takes one flat vector: the state, the goal, and possibly a horizon or an
action. Images are flattened into this vector, so learners need no special case. `ImageNet` unpacks
the images again and feeds them to a CNN, one per network. For vectors, `make_net` returns an MLP.
"""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.errors import MerlinError
from merlin.nets.layers import MLP, Normaliser
from merlin.types import Moments, Spec

FILTERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel size and stride of each convolution."""
PADDING = 1
SMALLEST = 16
"""Minimum image height and width, so that the CNN's output is not empty."""


class Conv(eqx.Module):
    """A convolution of one image, initialised like PyTorch's, uniformly within 1/sqrt(inputs).

    Channels come last, as in Gymnasium's images. `eqx.nn.Conv2d` wants them first and is as fast: a
    gradient of the CNN on 32 images of 64x64 takes 15.4 ms, here 15.2 ms.
    """

    weight: Float[Array, "width width inputs outputs"]
    bias: Float[Array, " outputs"]
    stride: int = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, width: int, stride: int, *, key: PRNGKeyArray):
        weight_key, bias_key = jax.random.split(key)
        limit = 1.0 / np.sqrt(inputs * width**2)
        shape = (width, width, inputs, outputs)
        self.weight = jax.random.uniform(weight_key, shape, minval=-limit, maxval=limit)
        self.bias = jax.random.uniform(bias_key, (outputs,), minval=-limit, maxval=limit)
        self.stride = stride

    def __call__(
        self, x: Float[Array, "height width inputs"]
    ) -> Float[Array, "out_height out_width outputs"]:
        out = jax.lax.conv_general_dilated(
            x[None],
            self.weight,
            (self.stride, self.stride),
            ((PADDING, PADDING), (PADDING, PADDING)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return out[0] + self.bias


class Cnn(eqx.Module):
    """Three convolutions with ReLUs (Mnih et al., 2015), from an image to a flat vector."""

    layers: tuple[Conv, ...]

    def __init__(self, channels: int, *, key: PRNGKeyArray):
        layers = []
        for (outputs, width, stride), k in zip(FILTERS, jax.random.split(key, 3), strict=True):
            layers.append(Conv(channels, outputs, width, stride, key=k))
            channels = outputs
        self.layers = tuple(layers)

    def __call__(self, image: Float[Array, "height width channels"]) -> Float[Array, " features"]:
        for layer in self.layers:
            image = jax.nn.relu(layer(image))
        return image.reshape(-1)


def cnn_outputs(shape: Sequence[int]) -> int:
    """Size of the CNN's output for an image."""
    size = np.array(shape[:2])
    for _, width, stride in FILTERS:
        size = (size + 2 * PADDING - width) // stride + 1
    return int(size.prod()) * FILTERS[-1][0]


def pixel_normaliser(moments: Moments) -> Normaliser:
    """Centre images and scale all pixels by the same factor.

    Most of an image is constant background. Without centring it dominates the part that moves, and
    a policy takes many times as long to train.
    """
    one = Moments(moments.mean, np.mean(moments.std))
    return Normaliser(one, floor=1.0, epsilon=0.0, clip=math.inf)


class ImageNet(eqx.Module):
    """An MLP on one or two images, encoded by the same CNN, and additional numbers."""

    cnn: Cnn
    head: MLP
    shape: tuple[int, ...] = eqx.field(static=True)
    images: int = eqx.field(static=True)

    def __init__(
        self,
        shape: Sequence[int],
        images: int,
        numbers: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        key: PRNGKeyArray,
    ):
        if min(shape[:2]) < SMALLEST:
            size = "x".join(map(str, shape))
            raise MerlinError(
                f"observations: images of {size} are too small for the network; "
                f"give at least {SMALLEST}x{SMALLEST}."
            )
        cnn_key, head_key = jax.random.split(key)
        self.cnn = Cnn(shape[2], key=cnn_key)
        inputs = images * cnn_outputs(shape) + numbers
        self.head = MLP(inputs, hidden, outputs, key=head_key)
        self.shape, self.images = tuple(shape), images

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " outputs"]:
        pixels = self.images * math.prod(self.shape)
        seen = jax.vmap(self.cnn)(x[:pixels].reshape(self.images, *self.shape))
        return self.head(jnp.concatenate([seen.reshape(-1), x[pixels:]]))


Net = MLP | ImageNet


def observation_inputs(spec: Spec) -> Normaliser:
    """The normaliser of observations."""
    return (pixel_normaliser if spec.has_images else Normaliser)(spec.observation_moments)


def goal_inputs(spec: Spec) -> Normaliser:
    """The normaliser of goals."""
    if spec.goal_image:
        return pixel_normaliser(spec.observation_moments)
    return Normaliser(spec.goal_moments)


def make_net(
    spec: Spec, hidden: Sequence[int], outputs: int, *, extra: int = 0, key: PRNGKeyArray
) -> Net:
    """Build a network on a state, a goal and `extra` numbers."""
    goal = 0 if spec.goal_image else spec.goal_dim
    if spec.has_images:
        images = 2 if spec.goal_image else 1
        shape = spec.observation_shape
        return ImageNet(shape, images, goal + extra, hidden, outputs, key=key)
    return MLP(spec.observation_shape[0] + goal + extra, hidden, outputs, key=key)
