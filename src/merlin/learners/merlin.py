"""Merlin: goal reaching as reverse diffusion.

Jain and Ravanbakhsh, "Learning to Reach Goals via Diffusion" (ICML 2024).

Seen from its goal, a trajectory in reverse is a forward diffusion: each step leads farther from the
goal. The policy learns the reverse process, as a denoiser does. Given a state, a goal and the
number of steps between them (the analogue of the noise level), it predicts a Gaussian over the
action taken. Training is maximum likelihood on relabelled data:

    max  E  log N(a | mean(s, g, h), std(s, g, h)).

Acting takes one network call per step with a constant horizon. There is no value function.

The policy acts with a running average of the network's parameters. On data in which few transitions
matter, the score of the latest parameters varies by a factor of two between evaluations. The paper
does not average; the preset `paper` turns it off.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from merlin.data.goals import Sampling, hindsight
from merlin.learners.base import (
    Cloning,
    Learner,
    check_below_one,
    check_positive,
    check_sizes,
    tuned,
    within,
)
from merlin.nets.cnn import Net
from merlin.nets.layers import descend_clipped, gaussian_log_prob, running_average
from merlin.policies.goal import MIN_STD, GoalPolicy, make_policy, with_net
from merlin.types import Batch, Horizon, Key, Metrics, Spec


class GaussianPolicy(GoalPolicy):
    """A diagonal Gaussian over actions; acts on its mean if the temperature is 0."""

    temperature: float = eqx.field(static=True, default=0.0)

    def distribution(
        self, observation: Array, goal: Array, horizon: Horizon = None
    ) -> tuple[Float[Array, " action"], Float[Array, " action"]]:
        """Mean and standard deviation of the action."""
        return self.gaussian(self.inputs(observation, goal, self.embed(horizon)))

    def gaussian(
        self, x: Float[Array, " inputs"]
    ) -> tuple[Float[Array, " action"], Float[Array, " action"]]:
        """The same as `distribution`, from the network's input."""
        mean, std = jnp.split(self.net(x), 2)
        return self.within_bounds(mean), jax.nn.softplus(std) + MIN_STD

    def act(
        self, observation: ArrayLike, goal: ArrayLike, horizon: Horizon = None, key: Key = None
    ) -> Float[Array, " action"]:
        mean, std = self.distribution(jnp.asarray(observation), jnp.asarray(goal), horizon)
        return self.with_noise(mean, std, self.temperature, key)

    def log_prob(
        self, observation: ArrayLike, goal: ArrayLike, action: ArrayLike, horizon: Horizon = None
    ) -> Float[Array, ""]:
        mean, std = self.distribution(jnp.asarray(observation), jnp.asarray(goal), horizon)
        return gaussian_log_prob(jnp.asarray(action), mean, std)


@final
@dataclass(frozen=True)
class Merlin(Learner):
    """Behaviour cloning of the reverse diffusion, conditioned on goal and horizon."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": {"average": 0.0}}
    absent: ClassVar[Mapping[str, Any]] = {"average": 0.0}

    hindsight_ratio: float = tuned(1.0)  # fraction of goals relabelled with the episode's future
    horizon: int | None = tuned(1)  # when acting; None trains without one (the ablation)
    max_horizon: int | None = 100  # longest horizon of a goal; None: the whole episode
    hidden: tuple[int, ...] = tuned((256, 256, 256))
    learning_rate: float = 5e-4
    max_gradient_norm: float = 1.0
    average: float = 0.9995  # decay of the averaged parameters that the policy acts with; 0: none
    batch_size: int = 512

    def __post_init__(self) -> None:
        if self.max_horizon is not None:
            check_sizes(self, "max_horizon")
        super().__post_init__()
        check_sizes(self, "hidden")
        check_positive(self, "max_gradient_norm")
        check_below_one(self, "average")

    def long_values(self, states: int) -> Mapping[str, Any]:
        """With distant goals, a horizon of one step would never occur in the data."""
        if self.max_horizon is None or states - 1 <= self.max_horizon:
            return {}
        return {"horizon": max(1, self.max_horizon // 4)}

    @property
    def sampling(self) -> Sampling:
        return hindsight(self.hindsight_ratio, "pairs", limit=self.max_horizon)

    def init(self, key: PRNGKeyArray, spec: Spec) -> Cloning:
        outputs, spec = 2 * spec.action_dim, within(spec, self.max_horizon)
        policy = make_policy(
            GaussianPolicy, spec, self.hidden, outputs=outputs, horizon=self.horizon, key=key
        )
        average = policy.net if self.average else None
        return Cloning(policy, self.optimiser.init(policy.net), average)

    def update(self, state: Cloning, batch: Batch, key: PRNGKeyArray) -> tuple[Cloning, Metrics]:
        loss, gradient = jax.value_and_grad(self.loss)(state.policy.net, state.policy, batch)
        net, optimiser, norm = descend_clipped(
            self.optimiser, state.policy.net, gradient, state.optimiser, self.max_gradient_norm
        )
        average = state.average
        if self.average:
            step = optax.tree.get(optimiser, "count")
            average = running_average(average, net, step, decay=self.average)
        metrics = {"loss": loss, "gradient_norm": norm}
        return Cloning(with_net(state.policy, net), optimiser, average), metrics

    def policy(self, state: Cloning) -> GaussianPolicy:
        return with_net(state.policy, state.average) if self.average else state.policy

    @staticmethod
    def loss(net: Net, policy: GaussianPolicy, batch: Batch) -> Float[Array, ""]:
        """Negative log-likelihood of the batch's actions; differentiates `net` only."""
        policy = with_net(policy, net)
        mean, std = jax.vmap(policy.gaussian)(policy.batch_inputs(batch.observation, batch.only))
        return -jnp.mean(jax.vmap(gaussian_log_prob)(batch.action, mean, std))
