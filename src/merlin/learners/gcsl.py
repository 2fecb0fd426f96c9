"""GCSL: goal-conditioned supervised learning on hindsight goals.

Ghosh et al., "Learning to Reach Goals via Iterated Supervised Learning" (ICLR 2021); offline and
with continuous actions as in the comparisons of Yang et al. (ICLR 2022) and Ma et al. (2022).

Every state achieved later in an episode is a goal that the earlier actions led to. A deterministic
policy regresses on these actions:

    min  E  |policy(s, g) - a|^2.

The policy does not know how far away the goal is and models no variance. With a horizon as an
additional input, it is Merlin without the variance.
"""

from dataclasses import dataclass
from typing import final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.data.goals import Sampling, hindsight
from merlin.learners.base import Cloning, Learner, check_sizes, tuned
from merlin.nets.cnn import Net
from merlin.nets.layers import descend
from merlin.nets.td import act
from merlin.policies.goal import DeterministicPolicy, make_policy, squared_error, with_net
from merlin.types import Batch, Metrics, Spec


@final
@dataclass(frozen=True)
class GCSL(Learner):
    """Goal-conditioned supervised learning."""

    hindsight_ratio: float = 1.0  # fraction of goals relabelled with the episode's future
    horizon: int | None = None  # horizon when acting; None trains without one, as published
    hidden: tuple[int, ...] = tuned((256, 256, 256))
    learning_rate: float = 5e-4
    batch_size: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "hidden")

    @property
    def sampling(self) -> Sampling:
        return hindsight(self.hindsight_ratio, "episodes")

    def init(self, key: PRNGKeyArray, spec: Spec) -> Cloning:
        outputs = spec.action_dim
        policy = make_policy(
            DeterministicPolicy, spec, self.hidden, outputs=outputs, horizon=self.horizon, key=key
        )
        return Cloning(policy=policy, optimiser=self.optimiser.init(policy.net))

    def update(self, state: Cloning, batch: Batch, key: PRNGKeyArray) -> tuple[Cloning, Metrics]:
        loss, gradient = jax.value_and_grad(self.loss)(state.policy.net, state.policy, batch)
        net, optimiser = descend(self.optimiser, state.policy.net, gradient, state.optimiser)
        return Cloning(policy=with_net(state.policy, net), optimiser=optimiser), {"loss": loss}

    def policy(self, state: Cloning) -> DeterministicPolicy:
        return state.policy

    @staticmethod
    def loss(net: Net, policy: DeterministicPolicy, batch: Batch) -> Float[Array, ""]:
        """Squared error of actions scaled to [-1, 1]; differentiates `net` only."""
        x = policy.batch_inputs(batch.observation, batch.only)
        return jnp.mean(squared_error(act(net, x), policy.in_units(batch.action)))
