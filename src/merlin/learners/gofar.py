"""GoFAR: goal-conditioned RL by state-occupancy matching.

Ma et al., "How Far I'll Go: Offline Goal-Conditioned Reinforcement Learning via f-Advantage
Regression" (NeurIPS 2022).

GoFAR matches the policy's state occupancy to that of the goal, without hindsight relabelling. It
trains three networks:

    discriminator   separates reached goals, pairs (g, g), from achieved goals in the data, pairs
                    (achieved, g). Its logit is the reward R.
    value           solves the dual of the divergence between the desired and the recorded
                    occupancies. With the residual  e = R + discount * V'(s', g) - V(s, g):
                    chi-square  min  (1 - discount) * mean V(s_0, g)  +  mean (e + 1)^2
                    KL          min  (1 - discount) * mean V(s_0, g)  +  log mean exp(e)
    policy          clones each action, weighted by the density ratio that the dual implies:
                    chi-square  max(e + 1, 0),    KL  min(exp(e), 10)

s_0 is the first state of the same episode, and ' marks the target network. The logit and the
chi-square weight are unbounded, as in the authors' release. As in the release, the discriminator
minimises the cross-entropy; the formula in the paper has the opposite sign.
"""

from dataclasses import dataclass
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.data.goals import Sampling, hindsight
from merlin.errors import MerlinError
from merlin.learners.actor_critic import TARGET_KEEP
from merlin.learners.base import (
    Learner,
    check_below_one,
    check_discount,
    check_not_negative,
    check_positive,
    check_sizes,
    tuned,
)
from merlin.nets.cnn import Net, make_net
from merlin.nets.layers import MLP, descend, polyak
from merlin.nets.td import act, estimates
from merlin.policies.goal import (
    DeterministicPolicy,
    make_policy,
    squared_error,
    transitions,
    with_net,
)
from merlin.types import Batch, Metrics, Spec

DIVERGENCES = ("chi2", "kl")
LEAST, SHARE = 64, 8
"""The discriminator and the initial-state term use every eighth row, but at least 64 rows if the
minibatch has that many (see `update`)."""


class GoFARState(eqx.Module):
    """The networks, the target value network, and one optimiser state per trained network."""

    policy: DeterministicPolicy
    value: Net
    target_value: Net
    discriminator: MLP
    policy_optimiser: optax.OptState
    value_optimiser: optax.OptState
    discriminator_optimiser: optax.OptState


@final
@dataclass(frozen=True)
class GoFAR(Learner):
    """Goal-conditioned f-advantage regression."""

    hindsight_ratio: float = 0.0  # GoFAR is designed to work without relabelling
    divergence: str = "chi2"  # or kl
    discount: float = 0.98
    gradient_penalty: float = 0.01
    max_weight: float = 10.0  # of the KL's exponential weights
    target_keep: float = TARGET_KEEP  # fraction of the target network kept per update
    hidden: tuple[int, ...] = tuned((256, 256, 256))
    learning_rate: float = 1e-3
    discriminator_learning_rate: float = 5e-4
    batch_size: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "hidden")
        check_discount(self.discount)
        check_below_one(self, "target_keep")
        check_not_negative(self, "gradient_penalty")
        check_positive(self, "max_weight", "discriminator_learning_rate")
        if self.divergence not in DIVERGENCES:
            raise MerlinError(f"divergence: {self.divergence!r} is neither chi2 nor kl.")

    @property
    def sampling(self) -> Sampling:
        return hindsight(self.hindsight_ratio, "episodes")

    @property
    def discriminator_optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.discriminator_learning_rate)

    def init(self, key: PRNGKeyArray, spec: Spec) -> GoFARState:
        if spec.goal_image:
            raise MerlinError("goal image: gofar needs goal vectors; leave out the goal image.")
        policy_key, value_key, discriminator_key = jax.random.split(key, 3)
        policy = make_policy(
            DeterministicPolicy, spec, self.hidden, outputs=spec.action_dim, key=policy_key
        )
        value = make_net(spec, self.hidden, 1, key=value_key)
        discriminator = MLP(
            2 * spec.goal_dim, self.hidden, 1, key=discriminator_key, activation=jnp.tanh
        )
        return GoFARState(
            policy=policy,
            value=value,
            target_value=value,
            discriminator=discriminator,
            policy_optimiser=self.optimiser.init(policy.net),
            value_optimiser=self.optimiser.init(value),
            discriminator_optimiser=self.discriminator_optimiser.init(discriminator),
        )

    def update(
        self, state: GoFARState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[GoFARState, Metrics]:
        x, next_x = transitions(state.policy, batch, batch.only)
        some = slice(None, None, max(1, min(SHARE, len(batch.goal) // LEAST)))
        first_x = state.policy.state_goal(batch.first_observation[some], batch.goal[some])
        goal = jax.vmap(state.policy.goal_normaliser)(batch.goal)
        achieved = jax.vmap(state.policy.goal_normaliser)(batch.achieved_goal)
        reward = logit(state.discriminator, achieved, goal)
        wanted = reward + self.discount * estimates(state.target_value, next_x)

        def value_loss(net: Net) -> tuple[Float[Array, ""], Array]:
            residual = wanted - estimates(net, x)
            first = jnp.mean(estimates(net, first_x))
            loss = (1.0 - self.discount) * first + dual(residual, self.divergence)
            return loss, residual

        # The gradient penalty makes the discriminator the most expensive part of an update,
        # although it is easy to train. The initial-state term has a weight of only 0.02. A subset
        # of rows suffices for both.
        discriminator_error, discriminator_gradient = jax.value_and_grad(discriminator_loss)(
            state.discriminator, achieved[some], goal[some], self.gradient_penalty, key
        )
        (value_error, residual), value_gradient = jax.value_and_grad(value_loss, has_aux=True)(
            state.value
        )
        weight = visit_weight(residual, self.divergence, self.max_weight)

        def policy_loss(net: Net) -> Float[Array, ""]:
            error = squared_error(act(net, x), state.policy.in_units(batch.action))
            return jnp.mean(weight * error)

        loss, gradient = jax.value_and_grad(policy_loss)(state.policy.net)
        net, policy_optimiser = descend(
            self.optimiser, state.policy.net, gradient, state.policy_optimiser
        )
        value, value_optimiser = descend(
            self.optimiser, state.value, value_gradient, state.value_optimiser
        )
        discriminator, discriminator_optimiser = descend(
            self.discriminator_optimiser,
            state.discriminator,
            discriminator_gradient,
            state.discriminator_optimiser,
        )
        after = GoFARState(
            policy=with_net(state.policy, net),
            value=value,
            target_value=polyak(state.target_value, value, self.target_keep),
            discriminator=discriminator,
            policy_optimiser=policy_optimiser,
            value_optimiser=value_optimiser,
            discriminator_optimiser=discriminator_optimiser,
        )
        return after, {
            "policy_loss": loss,
            "value_loss": value_error,
            "discriminator_loss": discriminator_error,
            "reward": jnp.mean(reward),
            "weight": jnp.mean(weight),
        }

    def policy(self, state: GoFARState) -> DeterministicPolicy:
        return state.policy


def logit(
    discriminator: MLP, achieved: Float[Array, "batch goal"], goal: Float[Array, "batch goal"]
) -> Float[Array, " batch"]:
    """The discriminator's log-odds that the goal is reached."""
    return estimates(discriminator, jnp.concatenate([achieved, goal], axis=-1))


def discriminator_loss(
    discriminator: MLP,
    achieved: Float[Array, "batch goal"],
    goal: Float[Array, "batch goal"],
    penalty: float,
    key: PRNGKeyArray,
) -> Float[Array, ""]:
    """Cross-entropy with (g, g) as positives and (achieved, g) as negatives, plus gradient penalty.

    The penalty keeps the gradient norm near 1 on interpolations between the two kinds of pairs.
    """
    reached = estimates(discriminator, jnp.concatenate([goal, goal], axis=-1))
    other = logit(discriminator, achieved, goal)
    entropy = jnp.mean(jax.nn.softplus(-reached)) + jnp.mean(jax.nn.softplus(other))

    def slope(pair: Float[Array, " inputs"]) -> Float[Array, ""]:
        gradient = jax.grad(lambda x: discriminator(x)[0])(pair)
        return jnp.sqrt(jnp.sum(gradient**2) + 1e-12)

    share = jax.random.uniform(key, (len(goal), 1))
    between = jnp.concatenate([share * goal + (1 - share) * achieved, goal], axis=-1)
    return entropy + penalty * jnp.mean((jax.vmap(slope)(between) - 1.0) ** 2)


def dual(residual: Float[Array, " batch"], divergence: str) -> Float[Array, ""]:
    """The divergence term of the value's dual objective."""
    if divergence == "chi2":
        return jnp.mean((residual + 1.0) ** 2)
    return jax.nn.logsumexp(residual) - jnp.log(jnp.float32(len(residual)))


def visit_weight(
    residual: Float[Array, " batch"], divergence: str, limit: float
) -> Float[Array, " batch"]:
    """Density ratio of the desired policy's occupancy to that of the data."""
    if divergence == "chi2":
        return jnp.maximum(residual + 1.0, 0.0)
    return jnp.minimum(jnp.exp(residual), limit)
