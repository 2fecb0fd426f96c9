"""QRL: learn a quasimetric that maximises distances subject to one step per transition.

Wang et al., "Optimal Goal-Reaching Reinforcement Learning via Quasimetric Learning" (ICML 2023), as
in OGBench (Park et al., ICLR 2025).

The number of steps from one state to another is a quasimetric: it satisfies the triangle inequality
but need not be symmetric. The distance d is a quasimetric by construction, an interval quasimetric
embedding (IQE, Wang and Isola, 2022) of state representations. Training maximises d between random
states, subject to a distance of at most 1 across each recorded transition:

    value     min  E 100 softplus(5 - d(s, g) / 100)  +  lambda E relu(d(s, s') - 1)^2
    lambda    min  lambda (0.05 - E relu(d(s, s') - 1)^2)
    dynamics  min  E (d(z', zhat) + d(zhat, z')) / 2,    zhat = z + dynamics(z, a)
    actor     min  E d(zhat(mode), z_g) / E|d|  -  alpha E log N(a | mean, 1)     (DDPG+BC)

z, z' and z_g are the representations of s, of s' and of the state that achieved the goal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.data.goals import Goals, Sampling
from merlin.errors import MerlinError
from merlin.io.settings import check_types
from merlin.learners.base import check_not_negative, check_positive, tuned
from merlin.learners.ogbench import (
    MANIPULATION,
    SMALL,
    STITCH,
    OGBenchLearner,
    actor_goals,
    check_shares,
    cloning_log_prob,
    inputs_of,
    make_actor,
    make_value,
)
from merlin.nets.layers import MLP
from merlin.nets.td import ddpg_bc_loss
from merlin.policies.goal import ClippedPolicy, policy_fields
from merlin.types import Batch, Metrics, Spec

INTERVALS = 8
"""Intervals per component of the quasimetric."""
FAR, SLOPE = 5.0, 100.0
"""Distances beyond FAR * SLOPE steps receive almost no gradient."""


class Quasimetric(eqx.Module):
    """State representations, latent dynamics and the distance between representations."""

    rep: MLP
    dynamics: MLP
    mix: Float[Array, ""]  # logit of the weight of the mean; the rest weights the max
    log_lambda: Float[Array, ""]  # log of the Lagrange multiplier

    def distance(
        self, x: Float[Array, "batch latent"], y: Float[Array, "batch latent"]
    ) -> Float[Array, " batch"]:
        """Number of steps from x to y."""
        shape = (*x.shape[:-1], -1, INTERVALS)
        parts = union_length(x.reshape(shape), y.reshape(shape))
        share = jax.nn.sigmoid(self.mix)
        return share * jnp.mean(parts, axis=-1) + (1.0 - share) * jnp.max(parts, axis=-1)

    def onward(
        self, z: Float[Array, "batch latent"], unit: Float[Array, "batch action"]
    ) -> Float[Array, "batch latent"]:
        """Predict the representations after the actions."""
        return z + jax.vmap(self.dynamics)(jnp.concatenate([z, unit], axis=1))


@final
@dataclass(frozen=True)
class QRL(OGBenchLearner[Quasimetric]):
    """Quasimetric reinforcement learning."""

    alpha: float = tuned(0.003)  # weight of the cloning term
    slack: float = 0.05  # of the constraint, in mean squared steps
    rep_dim: int = 512  # representation size, a multiple of 8
    actor_random: float = tuned(0.0)  # fraction of the actor's goals that are random states

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"small": {**SMALL, "rep_dim": 128}}
    by_dataset: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **STITCH,
        "pointmaze": {"alpha": 0.0003},
        **{kind: {"alpha": 0.3} for kind in MANIPULATION},
    }

    def __post_init__(self) -> None:
        check_types(self)
        check_shares(self, "actor_random")
        check_not_negative(self, "alpha")
        check_positive(self, "slack")
        if self.rep_dim < 1 or self.rep_dim % INTERVALS:
            raise MerlinError(f"rep_dim: {self.rep_dim} is not a positive multiple of {INTERVALS}.")
        super().__post_init__()

    @property
    def sampling(self) -> Sampling:
        return Sampling({"value": Goals(random=1.0), "actor": actor_goals(self.actor_random)})

    def networks(self, key: PRNGKeyArray, spec: Spec) -> tuple[ClippedPolicy, Quasimetric]:
        actor_key, rep_key, dynamics_key = jax.random.split(key, 3)
        net = make_actor(inputs_of(spec), self.hidden, spec.action_dim, key=actor_key)
        states, latent = spec.observation_shape[0], self.rep_dim
        quasimetric = Quasimetric(
            rep=make_value(states, self.hidden, latent, key=rep_key),
            dynamics=make_value(latent + spec.action_dim, self.hidden, latent, key=dynamics_key),
            mix=jnp.zeros(()),
            log_lambda=jnp.zeros(()),
        )
        return ClippedPolicy(**policy_fields(spec), net=net), quasimetric

    def loss(
        self, policy: ClippedPolicy, value: Quasimetric, target: Any, batch: Batch
    ) -> tuple[Float[Array, ""], Metrics]:
        see, goals = policy.observation_normaliser, batch.goals["actor"]
        state, action = see(batch.observation), policy.in_units(batch.action)
        shown = (batch.next_observation, batch.goals["value"].observation, goals.observation)
        rows = jnp.concatenate([state, *map(see, shown)])
        z, next_z, random_z, goal_z = jnp.split(jax.vmap(value.rep)(rows), 4)
        far, near = value.distance(z, random_z), value.distance(z, next_z)
        push_loss = jnp.mean(SLOPE * jax.nn.softplus(FAR - far / SLOPE))
        excess = jnp.mean(jax.nn.relu(near - 1.0) ** 2)
        value_loss, lambda_ = lagrangian(push_loss, excess, value.log_lambda, self.slack)
        guess = value.onward(z, action)
        there_and_back = value.distance(next_z, guess) + value.distance(guess, next_z)
        dynamics_loss = jnp.mean(there_and_back) / 2

        fixed = jax.lax.stop_gradient(value)
        x = jnp.concatenate([state, policy.goal_normaliser(goals.goal)], axis=1)
        log_prob, mode = cloning_log_prob(policy, x, batch)
        z, goal_z = jax.lax.stop_gradient((z, goal_z))
        steps = fixed.distance(fixed.onward(z, mode), goal_z)
        actor_loss = ddpg_bc_loss(-steps, log_prob, self.alpha)
        return value_loss + dynamics_loss + actor_loss, {
            "push_loss": push_loss,
            "excess": excess,
            "lambda": lambda_,
            "dynamics_loss": dynamics_loss,
            "actor_loss": actor_loss,
            "far": jnp.mean(far),
            "near": jnp.mean(near),
        }


def lagrangian(
    push_loss: Float[Array, ""],
    excess: Float[Array, ""],
    log_lambda: Float[Array, ""],
    slack: float,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The Lagrangian of the constraint excess <= slack, and the multiplier.

    Stop-gradients make the multiplier constant for the networks and the excess constant for the
    multiplier. Minimising the sum is then descent for the networks and ascent for the multiplier.
    """
    multiplier, stop = jnp.exp(log_lambda), jax.lax.stop_gradient
    return push_loss + stop(multiplier) * excess + multiplier * (slack - stop(excess)), multiplier


def union_length(
    x: Float[Array, "*batch intervals"], y: Float[Array, "*batch intervals"]
) -> Float[Array, "*batch"]:
    """The length of the union of the intervals from x_i to max(x_i, y_i).

    This is the sum of the right ends of the connected pieces minus the sum of their left ends. The
    ends are found by comparing all pairs, which is several times faster than XLA's sort for eight
    intervals. Among coinciding ends, the first one counts.
    """
    y = jnp.maximum(x, y)
    begin, end = x[..., :, None], y[..., :, None]
    other_begin, other_end = x[..., None, :], y[..., None, :]
    before = jnp.arange(x.shape[-1])[None, :] < jnp.arange(x.shape[-1])[:, None]
    inside = ((other_begin < begin) & (begin <= other_end)) | ((other_begin == begin) & before)
    within = ((other_begin <= end) & (end < other_end)) | ((other_end == end) & before)
    lefts, rights = ~jnp.any(inside, axis=-1), ~jnp.any(within, axis=-1)
    return jnp.sum(jnp.where(rights, y, 0.0) - jnp.where(lefts, x, 0.0), axis=-1)
