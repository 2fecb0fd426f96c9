"""Replace images by the latents of an encoder, for methods that need vectors.

The encoder (`augment/encoder.py`) is trained first, to identify consecutive images and to predict
the goal that each image achieves. Recorded images are then replaced by their unit vectors followed
by the predicted goals, and models and learners work as they do on states. `seeing` composes the
encoder with the trained policy, which then acts on images.

Predicted goals are included because a policy must compare its position with the goal. In goal space
this is a difference, which generalises beyond the data; unit vectors do not.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from merlin.augment.encoder import Encoder, image_encoder, train_encoder
from merlin.data.dataset import Dataset
from merlin.errors import MerlinError
from merlin.io.settings import build
from merlin.nets.cnn import ImageNet
from merlin.nets.layers import Linear, cosine_decay
from merlin.types import Moments

HIDDEN = 256
LEARNING_RATE = 5e-4
TEMPERATURE = 0.5


class Encoded(NamedTuple):
    """A dataset with latents in place of images, the encoder, and statistics about it."""

    data: Dataset
    encoder: Encoder
    report: dict[str, Any]


@dataclass(frozen=True)
class Latents:
    """Hyperparameters of the conversion from images to latents."""

    latent_dim: int = 32  # size of the unit vector, which the predicted goal follows
    latent_updates: int = 2000  # training updates of the encoder
    latent_batch: int = 128
    latent_units: bool = True  # False: predicted goals only, where they are the whole state

    def __post_init__(self) -> None:
        for name in ("latent_dim", "latent_updates", "latent_batch"):
            value = getattr(self, name)
            if value < 1:
                raise MerlinError(f"{name}: {value} is below 1; give a whole number from 1 up.")

    def __call__(self, data: Dataset, *, seed: int, quiet: bool = True) -> Encoded:
        """Train an encoder on a dataset of images and encode the dataset."""
        encoder, loss = train_encoder(
            data,
            hidden=(HIDDEN,),
            dim=self.latent_dim,
            temperature=TEMPERATURE,
            updates=self.latent_updates,
            batch=self.latent_batch,
            # A learning rate that decays to zero makes the predicted goals less noisy.
            learning_rate=cosine_decay(LEARNING_RATE, self.latent_updates),
            key=jax.random.fold_in(jax.random.key(seed), 5),
            quiet=quiet,
            goal_weight=1.0,
            units=self.latent_units,
        )
        latents = encoder.embed_all(data.observations)
        error = np.linalg.norm(encoder.goals(latents) - data.achieved_goals, axis=1)
        encoded = dataclasses.replace(data, observations=latents, source=None)
        report = {"encoder_loss": loss, "goal_error": float(error.mean())}
        return Encoded(with_told_goals(encoded), encoder, report)

    def size(self, goals: int) -> int:
        """Size of a latent, given the size of a goal."""
        return self.latent_dim * self.latent_units + goals


def with_told_goals(encoded: Dataset) -> Dataset:
    """Declare the last columns of the latents, the predicted goals, as achieved goals (`phi`)."""
    size, goals = encoded.observations.shape[1], encoded.achieved_goals.shape[1]
    return dataclasses.replace(encoded, phi=tuple(range(size - goals, size)))


def take_latents(settings: dict[str, str], *, asked: bool = False) -> Latents | None:
    """The latent settings, removed from `settings`; None if latents are not requested."""
    fields = {field.name for field in dataclasses.fields(Latents)}
    own = {name: settings.pop(name) for name in fields & settings.keys()}
    return build("latents", Latents, own, {}, None) if own or asked else None


def describe_encoder(encoder: Encoder) -> dict[str, Any]:
    """The sizes needed to build an encoder of the same shape."""
    assert isinstance(encoder.net, ImageNet)
    assert isinstance(encoder.readout, Linear)
    layers = encoder.net.head.layers
    return {
        "shape": list(encoder.net.shape),
        "hidden": [layer.weight.shape[1] for layer in layers[:-1]],
        "dim": layers[-1].weight.shape[1],
        "goals": encoder.readout.weight.shape[1],
        "units": encoder.units,
    }


def blank_encoder(about: dict[str, Any]) -> Encoder:
    """An encoder of the described shape, to be filled from a file."""
    moments = Moments(np.zeros(about["shape"], np.float32), np.ones(1, np.float32))
    sizes = (about["hidden"], about["dim"], about["goals"], about["units"])
    return jax.eval_shape(lambda key: image_encoder(moments, *sizes, key=key), jax.random.key(0))
