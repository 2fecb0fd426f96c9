"""Merlin: reach goals by undoing the walk away from them.

Jain and Ravanbakhsh, "Learning to Reach Goals via Diffusion" (ICML 2024).

Seen from a goal, a trajectory played backwards is a forward diffusion: every step leads farther
from the goal. The policy learns the reverse, as a denoiser does: given a state, the goal and how
many steps apart the two are (the analogue of the noise level), it predicts the action that was
taken there, as a Gaussian. Training is maximum likelihood on relabelled data:

    max  E  log N(a | mean(s, g, h), std(s, g, h)).

Acting is one network call per step with a constant horizon. There is no value function.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from merlin.data.relabel import Relabel
from merlin.errors import MerlinError
from merlin.learners.base import check_horizon, check_settings, tuned
from merlin.learners.policies import GoalPolicy, make_policy, with_net
from merlin.nets import descend_clipped, gaussian_log_prob
from merlin.types import Batch, Metrics, Spec
from merlin.vision import Net


class GaussianPolicy(GoalPolicy):
    """A diagonal Gaussian over actions; acts on its mean unless the temperature says otherwise."""

    temperature: float = eqx.field(static=True, default=0.0)

    def distribution(
        self,
        observation: Array,
        goal: Array,
        horizon: ArrayLike | None = None,
    ) -> tuple[Float[Array, " action"], Float[Array, " action"]]:
        """Mean and standard deviation of the action."""
        return self.distribution_of(observation, goal, self.embed(horizon))

    def distribution_of(
        self,
        observation: Array,
        goal: Array,
        embedding: Float[Array, " embedding"],
    ) -> tuple[Float[Array, " action"], Float[Array, " action"]]:
        """The same for a horizon that is embedded already."""
        mean, std = jnp.split(self.net(self.inputs(observation, goal, embedding)), 2)
        return self.within_bounds(mean), jax.nn.softplus(std) + 1e-5

    def __call__(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " action"]:
        mean, std = self.distribution(jnp.asarray(observation), jnp.asarray(goal), horizon)
        return self.with_noise(mean, std, self.temperature, key)


class MerlinState(eqx.Module):
    """The policy and its optimiser."""

    policy: GaussianPolicy
    optimiser: optax.OptState


@dataclass(frozen=True)
class Merlin:
    """Behaviour cloning of reversed diffusion, conditioned on goal and horizon."""

    hindsight_ratio: float = tuned(1.0)  # share of goals taken from the episode's own future
    horizon: int | None = tuned(1)  # told when acting; None trains without (the ablation)
    hidden: tuple[int, ...] = tuned((256, 256, 256))
    learning_rate: float = 5e-4
    max_gradient_norm: float = 1.0
    batch_size: int = 512

    def __post_init__(self) -> None:
        check_settings(self)
        check_horizon(self.horizon)
        _ = self.relabel
        if not self.max_gradient_norm > 0:
            raise MerlinError(f"max_gradient_norm: {self.max_gradient_norm} is not positive.")

    @property
    def relabel(self) -> Relabel:
        return Relabel(hindsight_ratio=self.hindsight_ratio)

    def init(self, key: PRNGKeyArray, spec: Spec) -> MerlinState:
        policy = make_policy(
            GaussianPolicy,
            spec,
            self.hidden,
            outputs=2 * spec.action_dim,
            horizon=self.horizon,
            key=key,
        )
        return MerlinState(policy=policy, optimiser=self._optimiser.init(policy.net))

    def update(
        self, state: MerlinState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[MerlinState, Metrics]:
        loss, gradient = jax.value_and_grad(self.loss)(state.policy.net, state.policy, batch)
        net, optimiser, norm = descend_clipped(
            self._optimiser, state.policy.net, gradient, state.optimiser, self.max_gradient_norm
        )
        metrics = {"loss": loss, "gradient_norm": norm}
        return MerlinState(policy=with_net(state.policy, net), optimiser=optimiser), metrics

    def policy(self, state: MerlinState) -> GaussianPolicy:
        return state.policy

    @staticmethod
    def loss(net: Net, policy: GaussianPolicy, batch: Batch) -> Float[Array, ""]:
        """Negative log-likelihood of the batch's actions; only `net` is differentiated."""
        policy = with_net(policy, net)
        embedding = policy.embed_all(batch.horizon)
        mean, std = jax.vmap(policy.distribution_of)(
            batch.observation, policy.goal_of(batch), embedding
        )
        return -jnp.mean(jax.vmap(gaussian_log_prob)(batch.action, mean, std))

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)
