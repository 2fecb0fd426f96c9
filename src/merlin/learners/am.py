"""Actionable Models: conservative goal-conditioned Q-learning with goal chaining.

Chebotar et al., "Actionable Models: Unsupervised Offline Reinforcement Learning of Robotic Skills"
(ICML 2021). The actor is deterministic, as in the comparison of Ma et al. (2022).

A critic learns the number of steps to hindsight-relabelled goals, and an actor maximises it. Two
ideas make this work on offline data:

    conservatism     Q-values of unseen actions are pushed down. For each state, 10 actions are
                     sampled uniformly, one of them is drawn by a softmax over their Q-values, and
                     its Q-value is added to the loss.
    goal chaining    Half of the goals are replaced by goals of other rows of the minibatch, so
                     that values propagate across episodes: a path to a goal may start in one
                     episode and end in another.

    critic   min  E  (Q(s, a, g) - target)^2  +  E  Q(s, a~, g)
    actor    max  E  Q(s, policy(s, g), g)

A chained row uses the ordinary target for its new goal, r + discount * Q'(s', policy'(s', g), g),
where ' marks target networks. The exception is the last step of the segment it was drawn from
(h = 1), where the paper uses the critic's current estimate Q(s, a, g) as the target.

The release that the Merlin paper compares with uses the current estimate as the reward of every
chained row and adds the next value for the original goal. This teaches the critic that random goals
are never reached. The preset `gofar-release` reproduces it.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from merlin.errors import MerlinError
from merlin.learners.actor_critic import ActorCritic, CriticLearner, init_actor_critic, step
from merlin.learners.base import check_not_negative, check_sizes
from merlin.nets.cnn import Net
from merlin.nets.td import act, sparse_reward, td_target, value
from merlin.policies.goal import DeterministicPolicy, transitions
from merlin.types import Batch, Metrics, Spec


@final
@dataclass(frozen=True)
class ActionableModels(CriticLearner):
    """Conservative goal-conditioned Q-learning with chained goals."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {"gofar-release": {"released_chaining": True}}

    learning_rate: float = 1e-3
    conservatism: float = 1.0  # weight of the penalty on unseen actions
    candidates: int = 10  # uniform actions from which the unseen one is drawn
    chained: float = 0.5  # fraction of goals swapped with those of other rows
    released_chaining: bool = False  # chain goals as the public release does, see above

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "candidates")
        check_not_negative(self, "conservatism")
        if not 0 <= self.chained <= 1:
            raise MerlinError(f"chained: {self.chained} is not a fraction between 0 and 1.")

    def init(self, key: PRNGKeyArray, spec: Spec) -> ActorCritic:
        return init_actor_critic(self, spec, key)

    def update(
        self, state: ActorCritic, batch: Batch, key: PRNGKeyArray
    ) -> tuple[ActorCritic, Metrics]:
        before = batch.only
        goal, chained = chain(before.goal, self.chained)
        shown, _ = chain(before.observation, self.chained)
        goals = before._replace(goal=goal, observation=shown)
        x, next_x = transitions(state.policy, batch, goals)
        if self.released_chaining:
            _, next_x = transitions(state.policy, batch, before)
        action = state.policy.in_units(batch.action)
        reward = sparse_reward(batch.next_achieved_goal, goal, state.tolerance)
        next_value = state.next_value(next_x)
        # Sampling 10 candidates for every row would double the cost of an update. The penalty is a
        # mean over rows, so a subset of them gives an unbiased estimate.
        unseen_x = x[:: 2 * self.candidates]
        unseen = draw_unseen(state.critic, unseen_x, action.shape[1], self.candidates, key)

        def critic_loss(critic: Net) -> tuple[Float[Array, ""], Metrics]:
            estimate = value(critic, x, action)
            own = jax.lax.stop_gradient(estimate)
            target = chained_target(reward, next_value, own, batch.horizon, chained, self.discount)
            if self.released_chaining:
                paid = jnp.where(chained, own, reward)
                target = td_target(paid, next_value, self.discount)
            error = jnp.mean((estimate - target) ** 2)
            pushed = jnp.mean(value(critic, unseen_x, unseen))
            about = {"critic_loss": error, "unseen": pushed, "target": jnp.mean(target)}
            return error + self.conservatism * pushed, about

        def policy_loss(net: Net) -> Float[Array, ""]:
            return -jnp.mean(value(state.critic, x, act(net, x)))

        critic_gradient, metrics = jax.grad(critic_loss, has_aux=True)(state.critic)
        loss, gradient = jax.value_and_grad(policy_loss)(state.policy.net)
        after = step(self, state, gradient, critic_gradient)
        return after, {"policy_loss": loss, **metrics}

    def policy(self, state: ActorCritic) -> DeterministicPolicy:
        return state.policy


def chain(
    goal: Shaped[Array, "batch *goal"], share: float
) -> tuple[Shaped[Array, "batch *goal"], Bool[Array, " batch"]]:
    """Rotate the goals of the last rows by one row; also return a mask of those rows.

    Rows are sampled independently, so a rotation is as good as a random permutation, and no row
    keeps its own goal.
    """
    kept = len(goal) - round(share * len(goal))
    moved = jnp.roll(goal[kept:], 1, axis=0)
    return jnp.concatenate([goal[:kept], moved]), jnp.arange(len(goal)) >= kept


def chained_target(
    reward: Float[Array, " batch"],
    next_value: Float[Array, " batch"],
    own: Float[Array, " batch"],
    horizon: Float[Array, " batch"],
    chained: Bool[Array, " batch"],
    discount: float,
) -> Float[Array, " batch"]:
    """The bootstrapped target; at the end of a chained segment, the critic's own estimate."""
    ends = chained & (horizon == 1.0)
    return jnp.where(ends, own, td_target(reward, next_value, discount))


def draw_unseen(
    critic: Net, x: Float[Array, "rows inputs"], dim: int, candidates: int, key: PRNGKeyArray
) -> Float[Array, "rows action"]:
    """Sample uniform actions for each row and draw one by a softmax over their Q-values."""
    action_key, choice_key = jax.random.split(key)
    actions = jax.random.uniform(action_key, (len(x), candidates, dim), minval=-1.0, maxval=1.0)
    flat = actions.reshape(-1, dim)
    logits = value(critic, jnp.repeat(x, candidates, axis=0), flat).reshape(len(x), candidates)
    choice = jax.random.categorical(choice_key, logits)
    return actions[jnp.arange(len(x)), choice]
