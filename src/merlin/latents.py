"""Images as the latents of an encoder, for methods that take vectors.

The encoder (`augment/encoder.py`) is trained first, to tell consecutive images from others and what
goal each achieves. Then recorded images are replaced by its unit vectors with the told goals behind
them, and whatever follows, models and learners alike, works as on states. `seeing` puts the encoder
before the policy, which so acts on images again.

The goals are there because a policy must compare where it is with where it shall be: in units of
goals that is a difference, which holds beyond the data as well, where unit vectors curl up.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from merlin.augment.base import Augmentation
from merlin.augment.encoder import Encoder, image_encoder, train_encoder
from merlin.data.dataset import Dataset
from merlin.errors import MerlinError
from merlin.learners.base import Learner, Policy, PolicyWithMemory, build
from merlin.nets import Linear
from merlin.types import Moments
from merlin.vision import ImageNet

HIDDEN = 256
LEARNING_RATE = 5e-4
TEMPERATURE = 0.5


class Encoded(NamedTuple):
    """A dataset with latents in place of images, what made them, and plain numbers about it."""

    data: Dataset
    encoder: Encoder
    report: dict[str, Any]

    @property
    def phi(self) -> Callable[[np.ndarray], np.ndarray]:
        """What goals latents achieve."""
        return self.encoder.goals


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
            learning_rate=self._learning_rate,
            key=jax.random.fold_in(jax.random.key(seed), 5),
            quiet=quiet,
            goal_weight=1.0,
            units=self.latent_units,
        )
        latents = encoder.embed_all(data.observations)
        encoded = Encoded(dataclasses.replace(data, observations=latents, source=None), encoder, {})
        error = np.linalg.norm(encoded.phi(latents) - data.achieved_goals, axis=1)
        report = {"encoder_loss": loss, "goal_error": float(error.mean())}
        return encoded._replace(report=report)

    def size(self, goals: int) -> int:
        """Numbers of a latent, where goals have so many."""
        return self.latent_dim * self.latent_units + goals

    def _learning_rate(self, done: ArrayLike) -> Float[Array, ""]:
        """Falls to nothing as half a cosine: what it tells of goals is then less noisy."""
        share = jnp.float32(done) / jnp.float32(self.latent_updates)
        return LEARNING_RATE * (1.0 + jnp.cos(jnp.pi * share)) / 2.0


def take_latents(settings: dict[str, str], *, asked: bool = False) -> Latents | None:
    """How images become latents, if that is asked for; takes its settings out of the others."""
    fields = {field.name for field in dataclasses.fields(Latents)}
    own = {name: settings.pop(name) for name in fields & settings.keys()}
    return build("latents", Latents, own, {}, None) if own or asked else None


def needs_latents(learner: Learner, augment: Augmentation | None) -> bool:
    """Whether one of them cannot be given images as they are."""
    return not (getattr(learner, "sees_images", True) and (augment is None or augment.sees_images))


class SeeingPolicy(eqx.Module):
    """An encoder of images before a policy on its latents."""

    encoder: Encoder
    policy: Any

    def __call__(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " action"]:
        return self.policy(self.encoder(jnp.asarray(observation)), goal, horizon, key)


class SeeingPolicyWithMemory(SeeingPolicy):
    """The same before a policy that remembers."""

    def begin(self) -> Any:
        return self.policy.begin()

    def step(
        self,
        memory: Any,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> tuple[Float[Array, " action"], Any]:
        latent = self.encoder(jnp.asarray(observation))
        return self.policy.step(memory, latent, goal, horizon, key)


def seeing(encoder: Encoder, policy: Policy) -> SeeingPolicy:
    """A policy on latents, made to act on images."""
    remembers = isinstance(policy, PolicyWithMemory)
    return (SeeingPolicyWithMemory if remembers else SeeingPolicy)(encoder, policy)


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
