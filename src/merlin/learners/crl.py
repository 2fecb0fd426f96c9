"""CRL: a critic trained by contrastive learning on future states.

Eysenbach et al., "Contrastive Learning as Goal-Conditioned Reinforcement Learning" (NeurIPS 2022),
as in OGBench (Park et al., ICLR 2025).

Twin critics score a state-action pair against a goal, f(s, a, g) = phi(s, a) . psi(g) / sqrt(dim).
The positive goal of a row was achieved later in its episode, at a geometrically distributed offset.
The goals of all other rows of the minibatch are its negatives:

    critic  min  E  softplus(f_ij) - 1(i = j) f_ij        (binary cross-entropy, all pairs i, j)
    actor   min  -E min f(s, mode, g) / E|min f|  -  alpha E log N(a | mean, 1)     (DDPG+BC)

At the optimum, f is the log of the discounted visitation probability of the goal, up to a constant
that depends on the goal only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.data.goals import Goals, Sampling
from merlin.data.offsets import Geometric
from merlin.learners.base import check_discount, check_not_negative, check_sizes, tuned
from merlin.learners.ogbench import (
    LONG,
    MANIPULATION,
    SMALL,
    STITCH,
    OGBenchLearner,
    Twins,
    actor_goals,
    check_shares,
    cloning_log_prob,
    inputs_of,
    make_actor,
    make_twins,
)
from merlin.nets.td import ddpg_bc_loss
from merlin.policies.goal import ClippedPolicy, policy_fields
from merlin.types import Batch, Metrics, Spec


class Contrast(NamedTuple):
    """Twin representations of state-action pairs (phi) and of goals (psi)."""

    phi: Twins
    psi: Twins


@final
@dataclass(frozen=True)
class CRL(OGBenchLearner[Contrast]):
    """Contrastive reinforcement learning."""

    discount: float = tuned(0.99)  # sets how far ahead the critic's goals are
    alpha: float = tuned(0.1)  # weight of the cloning term
    rep_dim: int = 512  # representation size
    actor_random: float = tuned(0.0)  # fraction of the actor's goals that are random states

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"small": {**SMALL, "rep_dim": 256}}
    by_dataset: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **LONG,
        **STITCH,
        "pointmaze": {"alpha": 0.03},
        **{kind: {"alpha": 3.0} for kind in MANIPULATION},
    }

    def __post_init__(self) -> None:
        check_discount(self.discount)
        check_shares(self, "actor_random")
        check_not_negative(self, "alpha")
        check_sizes(self, "rep_dim")
        super().__post_init__()

    @property
    def sampling(self) -> Sampling:
        later = Goals(future=1.0, offsets=Geometric(self.discount))
        return Sampling({"value": later, "actor": actor_goals(self.actor_random)})

    def networks(self, key: PRNGKeyArray, spec: Spec) -> tuple[ClippedPolicy, Contrast]:
        actor_key, phi_key, psi_key = jax.random.split(key, 3)
        net = make_actor(inputs_of(spec), self.hidden, spec.action_dim, key=actor_key)
        pairs = spec.observation_shape[0] + spec.action_dim
        contrast = Contrast(
            phi=make_twins(pairs, self.hidden, self.rep_dim, key=phi_key),
            psi=make_twins(spec.goal_dim, self.hidden, self.rep_dim, key=psi_key),
        )
        return ClippedPolicy(**policy_fields(spec), net=net), contrast

    def loss(
        self, policy: ClippedPolicy, value: Contrast, target: Any, batch: Batch
    ) -> tuple[Float[Array, ""], Metrics]:
        state = policy.observation_normaliser(batch.observation)
        goal = policy.goal_normaliser(batch.goals["value"].goal)
        taken = jnp.concatenate([state, policy.in_units(batch.action)], axis=1)
        phi, psi = represent(value.phi, taken), represent(value.psi, goal)
        logits = jnp.einsum("tid,tjd->tij", phi, psi) / self.rep_dim**0.5
        critic_loss = contrastive_loss(logits)

        fixed = jax.lax.stop_gradient(value)
        goal = policy.goal_normaliser(batch.goals["actor"].goal)
        log_prob, mode = cloning_log_prob(policy, jnp.concatenate([state, goal], axis=1), batch)
        phi = represent(fixed.phi, jnp.concatenate([state, mode], axis=1))
        psi = represent(fixed.psi, goal)
        score = jnp.min(jnp.sum(phi * psi, axis=-1), axis=0) / self.rep_dim**0.5
        actor_loss = ddpg_bc_loss(score, log_prob, self.alpha)
        own = jnp.diagonal(logits, axis1=1, axis2=2)
        return critic_loss + actor_loss, {
            "critic_loss": critic_loss,
            "actor_loss": actor_loss,
            "own_logit": jnp.mean(own),
            "other_logit": (jnp.sum(logits) - jnp.sum(own)) / max(logits.size - own.size, 1),
        }


def represent(twins: Twins, x: Float[Array, "batch inputs"]) -> Float[Array, "2 batch latent"]:
    return jnp.stack([jax.vmap(net)(x) for net in twins])


def contrastive_loss(logits: Float[Array, "twins batch batch"]) -> Float[Array, ""]:
    """Binary cross-entropy with the positive pairs on the diagonals."""
    own = jnp.diagonal(logits, axis1=1, axis2=2)
    return jnp.mean(jax.nn.softplus(logits)) - jnp.sum(own) / logits.size
