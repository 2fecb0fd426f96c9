"""The policy of Merlin-plus: a mixture of Gaussians, and a judge that chooses among proposals."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from merlin.nets.layers import mixture_log_prob
from merlin.policies.goal import GOAL_CONSTANTS, GoalPolicy
from merlin.policies.judge import JUDGE_CONSTANTS, WALK_WEIGHTS, Judge, Walks
from merlin.policies.mixture import (
    HASTE,
    MIXTURE_CONSTANTS,
    SOON,
    Chances,
    Mixture,
    chances,
    densest,
    draw,
    log_density,
    mixture_of,
)


class MixturePolicy(GoalPolicy):
    """A mixture of Gaussians over actions, with an optional judge of proposed actions."""

    judge: Judge | None
    components: int = eqx.field(static=True)
    candidates: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    caution: float = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    temperature: float = eqx.field(static=True, default=0.0)

    @property
    def own_horizon(self) -> int | None:
        return self.horizon if self.judge is None else None

    @property
    def constants(self) -> Mapping[str, Any]:
        judged = {} if self.judge is None else JUDGE_CONSTANTS
        return GOAL_CONSTANTS | MIXTURE_CONSTANTS | judged

    def distribution(
        self,
        observation: Float[Array, " observation"],
        goal: Float[Array, " goal"],
        horizon: ArrayLike | None = None,
    ) -> Mixture:
        """The mixture over actions for a given horizon."""
        return self.mixture(self.inputs(observation, goal, self.embed(horizon)))

    def mixture(self, x: Float[Array, " inputs"]) -> Mixture:
        """The same as `distribution`, from the network's input."""
        return mixture_of(self, self.net(x), self.components)

    def act(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " action"]:
        # Action noise uses the same key as in Merlin, so sampling proposals needs another.
        luck = jax.random.fold_in(key, 1) if key is not None and self.temperature else key
        observation, goal = jnp.asarray(observation), jnp.asarray(goal)
        action, std = self.choose(observation, goal, horizon, self.chances(luck))
        return self.with_noise(action, std, self.temperature, key)

    def log_prob(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        action: ArrayLike,
        horizon: ArrayLike | None = None,
    ) -> Float[Array, ""]:
        mixture = self.distribution(jnp.asarray(observation), jnp.asarray(goal), horizon)
        return mixture_log_prob(jnp.asarray(action), *mixture)

    def chances(self, key: PRNGKeyArray | None) -> Chances:
        return chances(key, self.candidates, self.components, self.dim)

    @property
    def dim(self) -> int:
        """Number of action dimensions."""
        return len(self.action_centre)

    def choose(
        self,
        observation: Float[Array, " observation"],
        goal: Float[Array, " goal"],
        horizon: ArrayLike | None,
        chances: Chances,
    ) -> tuple[Float[Array, " action"], Float[Array, " action"]]:
        """The chosen action and the standard deviation of its component.

        If a horizon is given, the judge is not used and the action is the one for that horizon.
        """
        if self.judge is None or horizon is not None:
            return densest(self.distribution(observation, goal, horizon), self.action_scale)
        mixture, actions, stds = self.proposals(observation, goal, chances)
        costs = jax.vmap(self.cost, (None, None, None, 0))(observation, goal, mixture, actions)
        best = jnp.argmin(costs)
        return actions[best], stds[best]

    def proposals(
        self,
        observation: Float[Array, " observation"],
        goal: Float[Array, " goal"],
        chances: Chances,
    ) -> tuple[Mixture, Float[Array, "proposals action"], Float[Array, "proposals action"]]:
        """The mixture, the proposed actions, and the standard deviations of their components.

        The densest component comes first, then the aggressive proposals, then the sampled ones.
        """
        # One pass for both horizons: reading the weights dominates the time.
        horizons = jnp.stack([self.embed(None), self.embed(SOON)])
        x = jax.vmap(self.inputs, (None, None, 0))(observation, goal, horizons)
        mixtures = jax.vmap(self.mixture)(x)
        mixture, soon = (jax.tree.map(itemgetter(row), mixtures) for row in range(2))
        dense, narrow = densest(mixture, self.action_scale)
        quick, loose = densest(soon, self.action_scale)
        hurried = self.action_centre + HASTE[:, None] * (quick - self.action_centre)
        drawn, spread = jax.vmap(draw, (None, None, 0, 0))(mixture, self.action_scale, *chances)
        proposed = jnp.concatenate([dense[None], hurried, drawn])[: 1 + self.candidates]
        actions = jax.vmap(self.clip)(proposed)
        stds = jnp.concatenate([jnp.stack([narrow, *[loose] * len(HASTE)]), spread])
        return mixture, actions, stds[: 1 + self.candidates]

    def judged(
        self, observation: Float[Array, " observation"], goal: Float[Array, " goal"]
    ) -> tuple[Float[Array, "proposals action"], Float[Array, " proposals"]]:
        """The proposals of a policy without a key, and their costs."""
        mixture, actions, _ = self.proposals(observation, goal, self.chances(None))
        costs = jax.vmap(self.cost, (None, None, None, 0))(observation, goal, mixture, actions)
        return actions, costs

    def cost(
        self,
        observation: Float[Array, " observation"],
        goal: Float[Array, " goal"],
        mixture: Mixture,
        action: Float[Array, " action"],
    ) -> Float[Array, ""]:
        """Estimated steps to the goal via this action, minus its weighted log-density."""
        assert self.judge is not None
        state, goal = self.observation_normaliser(observation), self.goal_normaliser(goal)
        steps = self.steps_along(self.judge, state, goal, action)
        likely = log_density(mixture, action, self.action_scale)
        return steps - self.caution * self.judge.square_error * likely

    def steps_along(
        self,
        judge: Judge,
        state: Float[Array, " state"],
        goal: Float[Array, " goal"],
        action: Float[Array, " action"],
    ) -> Float[Array, ""]:
        """Estimated steps to the goal after an action, following the policy from there.

        A weighted mean of the distances after the first step and at the end of the rollout. The
        first alone misses ways around corners; the second alone cannot tell which of two rollouts
        arrives earlier. State and goal are standardised.
        """
        first = judge.next_state(state, self.in_units(action))
        if self.depth == 1:
            return judge.steps(jnp.concatenate([first, goal]), self.discount)
        walk = jnp.stack([first, judge.walk_end(first, goal)])
        ends = jax.vmap(lambda state: jnp.concatenate([state, goal]))(walk)
        left = jax.vmap(judge.steps, (0, None))(ends, self.discount)
        return jnp.dot(WALK_WEIGHTS, left)

    def walks(
        self, judge: Judge, state: Float[Array, "rows state"], goal: Float[Array, "rows goal"]
    ) -> Walks:
        """Roll out the policy in the judge's model, as training data for the guide."""
        embedding = self.embed(None)

        def onward(state: Array, goal: Array) -> Array:
            mixture = self.mixture(jnp.concatenate([state, goal, embedding]))
            action, _ = densest(mixture, self.action_scale)
            return judge.next_state(state, self.in_units(action))

        end = state
        for _ in range(self.depth - 1):
            end = jax.vmap(onward)(end, goal)
        return Walks(state, goal, end)
