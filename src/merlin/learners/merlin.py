"""Merlin: reach goals by undoing the walk away from them.

Jain and Ravanbakhsh, "Learning to Reach Goals via Diffusion" (ICML 2024).

Seen from a goal, a trajectory played backwards is a forward diffusion: every step leads farther
from the goal. The policy learns the reverse, as a denoiser does: given a state, the goal and how
many steps apart the two are (the analogue of the noise level), it predicts the action that was
taken there, as a Gaussian. Training is maximum likelihood on relabelled data:

    max  E  log N(a | mean(s, g, h), std(s, g, h)).

Acting is one network call per step with a constant horizon. There is no value function.
"""

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from merlin.data.relabel import Relabel
from merlin.errors import MerlinError
from merlin.learners.base import tuned
from merlin.nets import MLP, Normaliser, clip_by_norm, gaussian_log_prob, horizon_embedding
from merlin.types import Batch, Metrics, Spec

HORIZON_DIM = 32


class GaussianPolicy(eqx.Module):
    """A diagonal Gaussian over actions; acts on its mean unless the temperature says otherwise."""

    observation_normaliser: Normaliser
    goal_normaliser: Normaliser
    action_centre: Float[Array, " action"]
    action_scale: Float[Array, " action"]
    net: MLP
    horizon: int | None = eqx.field(static=True)
    max_period: float = eqx.field(static=True)
    temperature: float = eqx.field(static=True, default=0.0)

    def distribution(
        self,
        observation: Float[Array, " observation"],
        goal: Float[Array, " goal"],
        horizon: ArrayLike | None = None,
    ) -> tuple[Float[Array, " action"], Float[Array, " action"]]:
        """Mean and standard deviation of the action."""
        return self.distribution_of(observation, goal, self.embed(horizon))

    def embed(self, horizon: ArrayLike | None) -> Float[Array, " embedding"]:
        """The horizon as the network sees it: nothing, if it is trained without."""
        if self.horizon is None:
            return jnp.zeros(0)
        told = jnp.asarray(self.horizon if horizon is None else horizon, jnp.float32)
        return horizon_embedding(told, self.max_period, HORIZON_DIM)

    def distribution_of(
        self,
        observation: Float[Array, " observation"],
        goal: Float[Array, " goal"],
        embedding: Float[Array, " embedding"],
    ) -> tuple[Float[Array, " action"], Float[Array, " action"]]:
        """The same for a horizon that is embedded already."""
        normal = self.observation_normaliser(observation), self.goal_normaliser(goal)
        mean, std = jnp.split(self.net(jnp.concatenate([*normal, embedding])), 2)
        return (
            self.action_centre + self.action_scale * jnp.tanh(mean),
            jax.nn.softplus(std) + 1e-5,
        )

    def __call__(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " action"]:
        mean, std = self.distribution(jnp.asarray(observation), jnp.asarray(goal), horizon)
        if self.temperature == 0.0:
            return mean
        if key is None:
            raise ValueError("a policy with a temperature samples: give it a key")
        action = mean + self.temperature * std * jax.random.normal(key, mean.shape)
        low, high = self.action_centre - self.action_scale, self.action_centre + self.action_scale
        return jnp.clip(action, low, high)


class MerlinState(eqx.Module):
    """The policy and its optimiser."""

    policy: GaussianPolicy
    optimiser: optax.OptState


@dataclass(frozen=True)
class Merlin:
    """Behaviour cloning of reversed diffusion, conditioned on goal and horizon."""

    hindsight_ratio: float = tuned(1.0)  # share of goals taken from the episode's own future
    horizon: int | None = tuned(1)  # told when acting; None trains without (the ablation)
    hidden: tuple[int, ...] = (256, 256, 256)
    learning_rate: float = 5e-4
    max_gradient_norm: float = 1.0
    batch_size: int = 512

    def __post_init__(self) -> None:
        if self.horizon is not None and self.horizon < 1:
            raise MerlinError(
                f"horizon: {self.horizon} is below 1; give a number of steps, or none."
            )
        if self.batch_size < 1 or not self.hidden or min(self.hidden) < 1:
            raise MerlinError("batch_size, hidden: sizes start at 1.")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise MerlinError(f"learning_rate: {self.learning_rate} is not a positive number.")
        if not self.max_gradient_norm > 0:
            raise MerlinError(f"max_gradient_norm: {self.max_gradient_norm} is not positive.")
        _ = self.relabel

    @property
    def relabel(self) -> Relabel:
        return Relabel(hindsight_ratio=self.hindsight_ratio)

    def init(self, key: PRNGKeyArray, spec: Spec) -> MerlinState:
        if len(spec.observation_shape) > 1:
            raise MerlinError("observations: are images, which merlin cannot learn from yet.")
        inputs = spec.observation_shape[0] + spec.goal_dim
        if self.horizon is not None:
            inputs += HORIZON_DIM
        policy = GaussianPolicy(
            observation_normaliser=Normaliser(spec.observation_moments),
            goal_normaliser=Normaliser(spec.goal_moments),
            action_centre=jnp.asarray((spec.action_high + spec.action_low) / 2),
            action_scale=jnp.asarray((spec.action_high - spec.action_low) / 2),
            net=MLP(inputs, self.hidden, 2 * spec.action_dim, key=key),
            horizon=self.horizon,
            max_period=float(spec.max_horizon),
        )
        return MerlinState(policy=policy, optimiser=self._optimiser.init(policy.net))

    def update(
        self, state: MerlinState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[MerlinState, Metrics]:
        loss, gradient = jax.value_and_grad(self.loss)(state.policy.net, state.policy, batch)
        gradient, norm = clip_by_norm(gradient, self.max_gradient_norm)
        updates, optimiser = self._optimiser.update(gradient, state.optimiser)
        net = optax.apply_updates(state.policy.net, updates)
        policy = eqx.tree_at(lambda p: p.net, state.policy, net)
        metrics = {"loss": loss, "gradient_norm": norm}
        return MerlinState(policy=policy, optimiser=optimiser), metrics

    def policy(self, state: MerlinState) -> GaussianPolicy:
        return state.policy

    @staticmethod
    def loss(net: MLP, policy: GaussianPolicy, batch: Batch) -> Float[Array, ""]:
        """Negative log-likelihood of the batch's actions; only `net` is differentiated."""
        policy = eqx.tree_at(lambda p: p.net, policy, net)
        # Horizons are whole numbers and fewer than the batch: embed each once and look it up.
        embeddings = jax.vmap(policy.embed)(jnp.arange(policy.max_period + 1))
        embedding = embeddings[batch.horizon.astype(jnp.int32)]
        mean, std = jax.vmap(policy.distribution_of)(batch.observation, batch.goal, embedding)
        return -jnp.mean(jax.vmap(gaussian_log_prob)(batch.action, mean, std))

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)
