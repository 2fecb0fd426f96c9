"""Policies that were trained on the latents of images, made to act on the images."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from merlin.augment.encoder import Encoder, image_encoder
from merlin.learners.base import Policy
from merlin.nets import Linear
from merlin.types import Moments
from merlin.vision import ImageNet


class SeeingPolicy(eqx.Module):
    """An encoder of images before a policy on its latents."""

    encoder: Encoder
    policy: Policy

    def __call__(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " action"]:
        return self.policy(self.encoder(jnp.asarray(observation)), goal, horizon, key)


def describe_encoder(encoder: Encoder) -> dict[str, Any]:
    """What is needed to build an encoder of the same shape."""
    assert isinstance(encoder.net, ImageNet)
    assert isinstance(encoder.readout, Linear)
    layers = encoder.net.head.layers
    return {
        "shape": list(encoder.net.shape),
        "hidden": [layer.weight.shape[1] for layer in layers[:-1]],
        "dim": layers[-1].weight.shape[1],
        "goals": encoder.readout.weight.shape[1],
    }


def blank_encoder(about: dict[str, Any]) -> Encoder:
    """An encoder as `describe_encoder` describes it, to be filled from a file."""
    moments = Moments(np.zeros(about["shape"], np.float32), np.ones(1, np.float32))
    sizes = (about["hidden"], about["dim"], about["goals"])
    return jax.eval_shape(lambda key: image_encoder(moments, *sizes, key=key), jax.random.key(0))
