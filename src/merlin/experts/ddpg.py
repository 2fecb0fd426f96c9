"""DDPG with hindsight experience replay, with which the experts are trained.

Lillicrap et al., "Continuous control with deep reinforcement learning" (2016); Andrychowicz et al.,
"Hindsight Experience Replay" (2017); with demonstrations, Nair et al., "Overcoming Exploration in
Reinforcement Learning with Demonstrations" (2018).

A critic learns the return for a reward of -1 until the goal is reached, and the actor maximises
it. Hindsight replaces four of five goals by goals that the same episode achieves later, so that
failed episodes are useful as well. Where exploration alone would take too long, a separate buffer
holds demonstrations of a scripted controller. The actor also clones them, except where the critic
prefers the actor's own action (a Q-filter). Where a goal needs one precise move, the controller
gives advice instead: every visited state, including those visited by the actor, is labelled with
the controller's action (Ross et al., "A Reduction of Imitation Learning and Structured Prediction
to No-Regret Online Learning", 2011).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from merlin.experts.actor import Actor
from merlin.nets.layers import MLP, Normaliser, descend, polyak
from merlin.nets.td import act, sparse_reward, td_target, value
from merlin.types import Metrics


class Replay(NamedTuple):
    """A replay buffer of episodes of equal length, of which the first `filled` are valid."""

    observations: Float[Array, "capacity steps+1 observation"]
    actions: Float[Array, "capacity steps action"]
    achieved_goals: Float[Array, "capacity steps+1 goal"]
    desired_goals: Float[Array, "capacity goal"]
    filled: Int[Array, ""]
    advice: Float[Array, "capacity steps action"] | None = (
        None  # actions of a controller for the desired goal
    )


class Sample(NamedTuple):
    observation: Float[Array, "batch observation"]
    action: Float[Array, "batch action"]
    next_observation: Float[Array, "batch observation"]
    goal: Float[Array, "batch goal"]
    reward: Float[Array, " batch"]


class Scaling(NamedTuple):
    """Standardisation of observations and goals."""

    observation: Normaliser
    goal: Normaliser

    def __call__(self, observation: Array, goal: Array) -> Array:
        return jnp.concatenate([self.observation(observation), self.goal(goal)], axis=-1)


class DDPGState(eqx.Module):
    """Networks, target networks, and optimiser states."""

    actor: MLP
    critic: MLP
    target_actor: MLP
    target_critic: MLP
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState


@dataclass(frozen=True)
class DDPG:
    """Hyperparameters and the update; the training loop is in `experts.training`."""

    tolerance: float  # distance to the goal that counts as reached
    hidden: tuple[int, ...] = (256, 256, 256)
    learning_rate: float = 1e-3
    discount: float = 0.98
    batch_size: int = 512
    hindsight: float = 0.8  # fraction of goals replaced by later achieved ones
    action_penalty: float = 1.0
    demonstration_batch: int = 128
    cloning_weight: float = 0.0  # 0: no demonstrations
    advice_batch: int = 512

    def init(self, key: PRNGKeyArray, observation: int, goal: int, action: int) -> DDPGState:
        actor_key, critic_key = jax.random.split(key)
        actor = MLP(observation + goal, self.hidden, action, key=actor_key)
        critic = MLP(observation + goal + action, self.hidden, 1, key=critic_key)
        return DDPGState(
            actor=actor,
            critic=critic,
            target_actor=actor,
            target_critic=critic,
            actor_optimiser=self._optimiser.init(actor),
            critic_optimiser=self._optimiser.init(critic),
        )

    def sample(self, replay: Replay, key: PRNGKeyArray, n: int) -> Sample:
        """Sample transitions uniformly; most goals are achieved later in the same episode."""
        keys = jax.random.split(key, 4)
        steps = replay.actions.shape[1]
        episode = jax.random.randint(keys[0], (n,), 0, replay.filled)
        t = jax.random.randint(keys[1], (n,), 0, steps)
        future = jax.random.randint(keys[2], (n,), t + 1, steps + 1)
        hindsight = jax.random.bernoulli(keys[3], self.hindsight, (n,))
        later = replay.achieved_goals[episode, future]
        goal = jnp.where(hindsight[:, None], later, replay.desired_goals[episode])
        return Sample(
            observation=replay.observations[episode, t],
            action=replay.actions[episode, t],
            next_observation=replay.observations[episode, t + 1],
            goal=goal,
            reward=sparse_reward(replay.achieved_goals[episode, t + 1], goal, self.tolerance),
        )

    def disagreement(
        self, actor: MLP, replay: Replay, scaling: Scaling, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """Squared error of the actor with respect to the advice, for desired goals.

        Half of the samples are among the last three steps up to the first motion of the object,
        because these steps decide the outcome. Of the rest, half are in the first quarter.
        """
        assert replay.advice is not None
        episode_key, step_key, before_key = jax.random.split(key, 3)
        shape, steps = (self.advice_batch,), replay.actions.shape[1]
        episode = jax.random.randint(episode_key, shape, 0, replay.filled)
        early = (steps * jax.random.uniform(step_key, shape) ** 2).astype(int)
        moves = jnp.linalg.norm(jnp.diff(replay.achieved_goals[episode], axis=1), axis=-1)
        begin = jnp.argmax(moves > 0.02 * self.tolerance, axis=1)
        decisive = jnp.maximum(begin - jax.random.randint(before_key, shape, 0, 3), 0)
        t = jnp.where(jnp.arange(self.advice_batch) % 2 == 0, early, decisive)
        x = scaling(replay.observations[episode, t], replay.desired_goals[episode])
        return jnp.mean(jnp.sum((act(actor, x) - replay.advice[episode, t]) ** 2, axis=-1))

    def update(
        self,
        state: DDPGState,
        replay: Replay,
        demonstrations: Replay | None,
        scaling: Scaling,
        key: PRNGKeyArray,
    ) -> tuple[DDPGState, Metrics]:
        """One step of the critic and one of the actor."""
        sample_key, demonstration_key = jax.random.split(key)
        batch = self.sample(replay, sample_key, self.batch_size)
        shown = None
        if demonstrations is not None:
            shown = self.sample(demonstrations, demonstration_key, self.demonstration_batch)
            batch = jax.tree.map(lambda *rows: jnp.concatenate(rows), batch, shown)
        x = scaling(batch.observation, batch.goal)
        next_x = scaling(batch.next_observation, batch.goal)
        target = td_target(
            batch.reward,
            value(state.target_critic, next_x, act(state.target_actor, next_x)),
            self.discount,
        )

        def critic_loss(critic: MLP) -> Array:
            return jnp.mean((value(critic, x, batch.action) - target) ** 2)

        def actor_loss(actor: MLP) -> Array:
            action = act(actor, x)
            estimate = value(state.critic, x, action)
            loss = -jnp.mean(estimate) + self.action_penalty * jnp.mean(action**2)
            if shown is not None:
                mine, theirs = action[self.batch_size :], shown.action
                shown_x = x[self.batch_size :]
                better = value(state.critic, shown_x, theirs) > estimate[self.batch_size :]
                error = jnp.sum((mine - theirs) ** 2, axis=-1)
                loss += self.cloning_weight * jnp.mean(jnp.where(better, error, 0.0))
            if replay.advice is not None:
                loss += self.cloning_weight * self.disagreement(
                    actor, replay, scaling, demonstration_key
                )
            return loss

        critic_value, critic_gradient = jax.value_and_grad(critic_loss)(state.critic)
        actor_value, actor_gradient = jax.value_and_grad(actor_loss)(state.actor)
        critic, critic_optimiser = descend(
            self._optimiser, state.critic, critic_gradient, state.critic_optimiser
        )
        actor, actor_optimiser = descend(
            self._optimiser, state.actor, actor_gradient, state.actor_optimiser
        )
        state = replace(
            state,
            actor=actor,
            critic=critic,
            actor_optimiser=actor_optimiser,
            critic_optimiser=critic_optimiser,
        )
        return state, {
            "critic_loss": critic_value,
            "actor_loss": actor_value,
            "target": jnp.mean(target),
        }

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)


def track(state: DDPGState, keep: float) -> DDPGState:
    """Polyak-average the target networks towards the networks."""
    return replace(
        state,
        target_actor=polyak(state.target_actor, state.actor, keep),
        target_critic=polyak(state.target_critic, state.critic, keep),
    )


def to_numpy(actor: MLP, scaling: Scaling) -> Actor:
    """The actor in the form used by worker processes and shipped files."""
    return Actor(
        observation_mean=np.asarray(scaling.observation.mean),
        observation_scale=np.asarray(scaling.observation.scale),
        goal_mean=np.asarray(scaling.goal.mean),
        goal_scale=np.asarray(scaling.goal.scale),
        weights=tuple(np.asarray(layer.weight) for layer in actor.layers),
        biases=tuple(np.asarray(layer.bias) for layer in actor.layers),
    )
