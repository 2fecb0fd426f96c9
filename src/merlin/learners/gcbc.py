"""GCBC: goal-conditioned behaviour cloning with hindsight goals.

Lynch et al., "Learning Latent Plans from Play" (CoRL 2019) and Ghosh et al., "Learning to Reach
Goals via Iterated Supervised Learning" (ICLR 2021), as in OGBench (Park et al., ICLR 2025).

    min  E  -log N(a | policy(s, g), 1)

Transitions are sampled uniformly from the whole dataset, and goals uniformly from the rest of the
episode. GCSL is the same idea with different network sizes, squashed actions and uniformly sampled
episodes.
"""

from dataclasses import dataclass
from typing import Any, final

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.data.goals import Sampling
from merlin.io.settings import check_types
from merlin.learners.ogbench import (
    OGBenchLearner,
    actor_goals,
    check_shares,
    cloning_log_prob,
    inputs_of,
    make_actor,
)
from merlin.policies.goal import ClippedPolicy, policy_fields
from merlin.types import Batch, Metrics, Spec


@final
@dataclass(frozen=True)
class GCBC(OGBenchLearner[tuple[()]]):
    """Goal-conditioned behaviour cloning."""

    actor_random: float = 0.0  # fraction of goals that are random states; the rest are future

    def __post_init__(self) -> None:
        check_types(self)
        check_shares(self, "actor_random")
        super().__post_init__()

    @property
    def sampling(self) -> Sampling:
        return Sampling({"actor": actor_goals(self.actor_random)})

    def networks(self, key: PRNGKeyArray, spec: Spec) -> tuple[ClippedPolicy, tuple[()]]:
        net = make_actor(inputs_of(spec), self.hidden, spec.action_dim, key=key)
        return ClippedPolicy(**policy_fields(spec), net=net), ()

    def loss(
        self, policy: ClippedPolicy, value: tuple[()], target: Any, batch: Batch
    ) -> tuple[Float[Array, ""], Metrics]:
        x = policy.state_goal(batch.observation, batch.goals["actor"].goal)
        log_prob, mode = cloning_log_prob(policy, x, batch)
        error = jnp.mean((mode - policy.in_units(batch.action)) ** 2)
        loss = -jnp.mean(log_prob)
        return loss, {"loss": loss, "squared_error": error}
