"""A policy on the latents of an image encoder, acting on images."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from merlin.policies.base import Policy


class SeeingPolicy(Policy):
    """An image encoder followed by a policy on its latents."""

    encoder: Any  # maps an image to its latent: `augment.encoder.Encoder`
    policy: Policy

    @property
    def own_horizon(self) -> int | None:
        return self.policy.own_horizon

    @property
    def takes_horizon(self) -> bool:
        return self.policy.takes_horizon

    @property
    def constants(self) -> Mapping[str, Any]:
        return self.policy.constants

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        inner = self.policy.input_shapes
        return inner and (self.encoder.inputs.shape, inner[1])

    def act(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " action"]:
        return self.policy.act(self.encoder(jnp.asarray(observation)), goal, horizon, key)

    def log_prob(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        action: ArrayLike,
        horizon: ArrayLike | None = None,
    ) -> Float[Array, ""] | None:
        latent = self.encoder(jnp.asarray(observation))
        return self.policy.log_prob(latent, goal, action, horizon)

    def steps_to_goal(self, observation: ArrayLike, goal: ArrayLike) -> Float[Array, ""] | None:
        return self.policy.steps_to_goal(self.encoder(jnp.asarray(observation)), goal)

    @property
    def temperature(self) -> float | None:
        return self.policy.temperature

    def with_temperature(self, temperature: float) -> "SeeingPolicy":
        return dataclasses.replace(self, policy=self.policy.with_temperature(temperature))

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
