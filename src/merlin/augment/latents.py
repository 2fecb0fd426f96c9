"""Images as the latents of an encoder, for methods that take vectors.

The encoder (`augment/encoder.py`) is trained first, to tell consecutive images from others and what
goal each achieves. Then recorded images are replaced by its unit vectors with the told goals behind
them, and whatever follows, models and learners alike, works as on states. `seeing` puts the encoder
before the policy, which so acts on images again.

The goals are there because a policy must compare where it is with where it shall be: in units of
goals that is a difference, which holds beyond the data as well, where unit vectors curl up.
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
    """A dataset with latents in place of images, what made them, and plain numbers about it."""

    data: Dataset
    encoder: Encoder
    report: dict[str, Any]


@dataclass(frozen=True)
class Latents:
    """How images become latents."""

    latent_dim: int = 32  # of the unit vector; goals come behind it
    latent_updates: int = 2000  # that the encoder is trained for
    latent_batch: int = 128
    latent_units: bool = True  # False: goals are all that is told, as where they are the state

    def __post_init__(self) -> None:
        for name in ("latent_dim", "latent_updates", "latent_batch"):
            value = getattr(self, name)
            if value < 1:
                raise MerlinError(f"{name}: {value} is not 1 or more.")

    def __call__(self, data: Dataset, *, seed: int, quiet: bool = True) -> Encoded:
        """Train an encoder on a dataset of images, and encode it."""
        encoder, loss = train_encoder(
            data,
            hidden=(HIDDEN,),
            dim=self.latent_dim,
            temperature=TEMPERATURE,
            updates=self.latent_updates,
            batch=self.latent_batch,
            # Falls to nothing: what is told of goals is then less noisy.
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
        """Numbers of a latent, where goals have so many."""
        return self.latent_dim * self.latent_units + goals


def with_told_goals(encoded: Dataset) -> Dataset:
    """The goal of a latent is what stands behind its unit vector."""
    size, goals = encoded.observations.shape[1], encoded.achieved_goals.shape[1]
    return dataclasses.replace(encoded, phi=tuple(range(size - goals, size)))


def take_latents(settings: dict[str, str], *, asked: bool = False) -> Latents | None:
    """How images become latents, if that is asked for; takes its settings out of the others."""
    fields = {field.name for field in dataclasses.fields(Latents)}
    own = {name: settings.pop(name) for name in fields & settings.keys()}
    return build("latents", Latents, own, {}, None) if own or asked else None


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
        "units": encoder.units,
    }


def blank_encoder(about: dict[str, Any]) -> Encoder:
    """An encoder as `describe_encoder` describes it, to be filled from a file."""
    moments = Moments(np.zeros(about["shape"], np.float32), np.ones(1, np.float32))
    sizes = (about["hidden"], about["dim"], about["goals"], about["units"])
    return jax.eval_shape(lambda key: image_encoder(moments, *sizes, key=key), jax.random.key(0))
