"""Merlin-plus: Merlin that needs no tuning per task.

An own extension of Jain and Ravanbakhsh, "Learning to Reach Goals via Diffusion" (ICML 2024).

A step of reverse diffusion is drawn from a distribution, and data that mixes a competent
controller with noise has one with several modes. So the policy is a mixture of Gaussians, trained
by maximum likelihood on the same relabelled data as Merlin:

    max  E  log sum_k w_k N(a | mean_k(s, g, h), std_k(s, g, h)),

and it acts on the mean of the component with the highest weight per volume, the mode of the
mixture where components do not overlap: noise gets components of its own, which are wide.

To act, Merlin must be told a horizon that suits the task. Here actions are proposed for several
horizons, some of them drawn from the mixture, and judged: a forward model says where each leads
and a temporal distance how far that is from the goal (see `judge`). The best proposal is taken if
it is better than the first by more than a margin.

With one component and a fixed horizon it is Merlin.
"""

import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from merlin.data.relabel import Relabel
from merlin.errors import MerlinError
from merlin.learners.base import check_horizon, check_settings
from merlin.learners.judge import Judge, judge_loss
from merlin.learners.policies import GoalPolicy, make_policy, with_net
from merlin.nets import MLP, clip_by_norm, descend, mixture_log_prob
from merlin.types import Batch, Metrics, Spec

RULES = ("fixed", "quantile", "lookahead")

Mixture = tuple[
    Float[Array, " components"],
    Float[Array, "components action"],
    Float[Array, "components action"],
]
"""Log weights (up to a constant), means and standard deviations."""


class MixturePolicy(GoalPolicy):
    """A mixture of Gaussians over actions, and what chooses among the actions it proposes."""

    judge: Judge | None
    components: int = eqx.field(static=True)
    rule: str = eqx.field(static=True)
    quantile: float = eqx.field(static=True)
    horizons: tuple[int, ...] = eqx.field(static=True)
    candidates: int = eqx.field(static=True)
    margin: float = eqx.field(static=True)
    discount: float = eqx.field(static=True)
    temperature: float = eqx.field(static=True, default=0.0)

    def distribution(
        self,
        observation: Float[Array, " observation"],
        goal: Float[Array, " goal"],
        horizon: ArrayLike | None = None,
    ) -> Mixture:
        """The mixture for a horizon."""
        return self.distribution_of(observation, goal, self.embed(horizon))

    def distribution_of(
        self,
        observation: Float[Array, " observation"],
        goal: Float[Array, " goal"],
        embedding: Float[Array, " embedding"],
    ) -> Mixture:
        """The same for a horizon that is embedded already."""
        outputs = self.net(self.inputs(observation, goal, embedding))
        size = self.components * len(self.action_centre)
        # A single component needs no weight: its network is Merlin's.
        weights = outputs[2 * size :] if self.components > 1 else jnp.zeros(1)
        means, stds = outputs[: 2 * size].reshape(2, self.components, -1)
        return weights, jax.vmap(self.within_bounds)(means), jax.nn.softplus(stds) + 1e-5

    def __call__(
        self,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: ArrayLike | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " action"]:
        choice_key, noise_key = (None, None) if key is None else (jax.random.fold_in(key, 1), key)
        observation, goal = jnp.asarray(observation), jnp.asarray(goal)
        action, std = self.choose(observation, goal, horizon, choice_key)
        if self.temperature == 0.0:
            return action
        if noise_key is None:
            raise ValueError("a policy with a temperature samples: give it a key")
        noise = jax.random.normal(noise_key, action.shape)
        return self.clip(action + self.temperature * std * noise)

    def choose(
        self,
        observation: Float[Array, " observation"],
        goal: Float[Array, " goal"],
        horizon: ArrayLike | None,
        key: PRNGKeyArray | None,
    ) -> tuple[Float[Array, " action"], Float[Array, " action"]]:
        """The action to take and the deviation of the component that it is from.

        Whoever tells a horizon is listened to; without one the rule says what to do.
        """
        if self.judge is None or self.rule == "fixed" or horizon is not None:
            return densest(self.distribution(observation, goal, horizon))
        if self.rule == "quantile":
            state_goal = self.inputs(observation, goal, jnp.zeros(0))
            told = self.judge.quantile(state_goal, self.quantile)
            return densest(self.distribution(observation, goal, told))
        actions, stds = self.propose(observation, goal, key)
        steps = self.steps_after(observation, goal, actions)
        best = jnp.argmin(steps)
        best = jnp.where(steps[best] < steps[0] - self.margin, best, 0)
        return actions[best], stds[best]

    def propose(
        self,
        observation: Float[Array, " observation"],
        goal: Float[Array, " goal"],
        key: PRNGKeyArray | None,
    ) -> tuple[Float[Array, "proposals action"], Float[Array, "proposals action"]]:
        """For every horizon the densest component's mean, then draws from these mixtures."""
        embeddings = jax.vmap(self.embed)(jnp.asarray(self.horizons, jnp.float32))
        mixtures = jax.vmap(self.distribution_of, (None, None, 0))(observation, goal, embeddings)
        means, stds = jax.vmap(densest)(mixtures)
        drawn = jax.vmap(draw)(
            jax.tree.map(lambda leaf: leaf[np.arange(self.candidates) % len(leaf)], mixtures),
            *chances(self.candidates, means.shape[1], key),
        )
        return (
            jnp.concatenate([means, jax.vmap(self.clip)(drawn[0])]),
            jnp.concatenate([stds, drawn[1]]),
        )

    def steps_after(
        self,
        observation: Float[Array, " observation"],
        goal: Float[Array, " goal"],
        actions: Float[Array, "proposals action"],
    ) -> Float[Array, " proposals"]:
        """How far from the goal each action leads."""
        assert self.judge is not None
        state, goal = self.observation_normaliser(observation), self.goal_normaliser(goal)
        judge, discount = self.judge, self.discount

        def one(unit: Float[Array, " action"]) -> Float[Array, ""]:
            following = judge.next_states(state, unit)
            of = lambda state: judge.steps(jnp.concatenate([state, goal]), discount)  # noqa: E731
            return jnp.mean(jax.vmap(of)(following))

        return jax.vmap(one)(self.in_units(actions))

    def clip(self, action: Float[Array, " action"]) -> Float[Array, " action"]:
        """Into the bounds of actions."""
        low, high = self.action_centre - self.action_scale, self.action_centre + self.action_scale
        return jnp.clip(action, low, high)


def densest(mixture: Mixture) -> tuple[Float[Array, " action"], Float[Array, " action"]]:
    """Mean and deviation of the component with the highest weight per volume."""
    weights, means, stds = mixture
    best = jnp.argmax(weights - jnp.sum(jnp.log(stds), axis=1))
    return means[best], stds[best]


def draw(
    mixture: Mixture, chance: Float[Array, ""], noise: Float[Array, " action"]
) -> tuple[Float[Array, " action"], Float[Array, " action"]]:
    """An action from a mixture, by a number from 0 to 1 and standard normal ones."""
    weights, means, stds = mixture
    which = jnp.argmax(jnp.cumsum(jax.nn.softmax(weights)) >= chance)
    return means[which] + stds[which] * noise, stds[which]


def chances(
    rows: int, dim: int, key: PRNGKeyArray | None
) -> tuple[Float[Array, " rows"], Float[Array, "rows dim"]]:
    """What to draw actions by; without a key the same numbers at every call."""
    # One draw for both: uniform numbers, and normal ones from them.
    key = jax.random.key(0) if key is None else key
    uniform = jax.random.uniform(key, (rows, 1 + dim), minval=1e-6)
    return uniform[:, 0], jax.scipy.special.ndtri(uniform[:, 1:])


class PlusState(eqx.Module):
    """The policy and the optimisers of its network and of its judge."""

    policy: MixturePolicy
    optimiser: optax.OptState
    judge_optimiser: optax.OptState | None


@dataclass(frozen=True)
class MerlinPlus:
    """Merlin with a mixture of Gaussians and a choice among proposed actions."""

    components: int = 5  # Gaussians of the mixture
    rule: str = "lookahead"  # fixed, quantile or lookahead: what to do when no horizon is told
    hindsight_ratio: float = 0.5  # share of goals taken from the episode's own future
    horizon: int = 10  # of rule fixed
    quantile: float = 0.1  # of rule quantile: share of ways that are as short as its horizon
    horizons: tuple[int, ...] = (40, 20, 5)  # of rule lookahead; the first is preferred
    candidates: int = 16  # drawn actions, beside one for each horizon
    margin: float = 0.0  # steps by which another action must be better than the first
    discount: float = 0.9  # of the temporal distance
    models: int = 1  # forward models, whose distances are averaged
    model_hidden: tuple[int, ...] = (128, 128)
    distance_hidden: tuple[int, ...] = (256, 256)
    temperature: float = 0.0  # noise when acting, in deviations
    hidden: tuple[int, ...] = (256, 256, 256)
    learning_rate: float = 5e-4
    max_gradient_norm: float = 1.0
    batch_size: int = 512

    def __post_init__(self) -> None:
        check_settings(self)
        for horizon in (self.horizon, *self.horizons):
            check_horizon(horizon)
        if self.rule not in RULES:
            raise MerlinError(f"rule: {self.rule!r}; choose from {', '.join(RULES)}.")
        if not self.horizons:
            raise MerlinError("horizons: are none; give at least one, e.g. 10,1,30.")
        layers = (self.model_hidden, self.distance_hidden)
        if min(self.components, self.models, *map(len, layers), *sum(layers, ())) < 1:
            raise MerlinError("components, models, model_hidden, distance_hidden: start at 1.")
        if self.candidates < 0:
            raise MerlinError(f"candidates: {self.candidates} is not a number from 0 up.")
        for name in ("margin", "temperature"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise MerlinError(f"{name}: {value} is not a number from 0 up.")
        for name in ("quantile", "discount"):
            if not 0 < getattr(self, name) < 1:
                raise MerlinError(f"{name}: {getattr(self, name)} is not between 0 and 1.")
        if not self.max_gradient_norm > 0:
            raise MerlinError(f"max_gradient_norm: {self.max_gradient_norm} is not positive.")
        _ = self.relabel

    @property
    def relabel(self) -> Relabel:
        return Relabel(hindsight_ratio=self.hindsight_ratio)

    def init(self, key: PRNGKeyArray, spec: Spec) -> PlusState:
        heads = 2 * spec.action_dim + (1 if self.components > 1 else 0)
        judge = None
        if self.rule != "fixed":
            judge_key = jax.random.fold_in(key, 1)
            hidden = (self.distance_hidden, self.model_hidden)
            judge = Judge(spec, *hidden, self.models, key=judge_key)
        policy = make_policy(
            MixturePolicy,
            spec,
            self.hidden,
            outputs=self.components * heads,
            horizon=self.horizon,
            key=key,
            judge=judge,
            components=self.components,
            rule=self.rule,
            quantile=self.quantile,
            horizons=self.horizons,
            candidates=self.candidates,
            margin=self.margin,
            discount=self.discount,
            temperature=self.temperature,
        )
        return PlusState(
            policy=policy,
            optimiser=self._optimiser.init(policy.net),
            judge_optimiser=None if judge is None else self._optimiser.init(judge),
        )

    def update(
        self, state: PlusState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[PlusState, Metrics]:
        loss, gradient = jax.value_and_grad(self.loss)(state.policy.net, state.policy, batch)
        gradient, norm = clip_by_norm(gradient, self.max_gradient_norm)
        net, optimiser = descend(self._optimiser, state.policy.net, gradient, state.optimiser)
        metrics = {"loss": loss, "gradient_norm": norm}
        policy, judge = with_net(state.policy, net), state.policy.judge
        if judge is None:
            return PlusState(policy=policy, optimiser=optimiser, judge_optimiser=None), metrics
        normalise = jax.vmap(policy.observation_normaliser)
        (_, parts), gradient = jax.value_and_grad(judge_loss, has_aux=True)(
            judge,
            normalise(batch.observation),
            policy.in_units(batch.action),
            normalise(batch.next_observation),
            jax.vmap(policy.goal_normaliser)(batch.future_goal),
            batch.future_horizon,
        )
        gradient, norm = clip_by_norm(gradient, self.max_gradient_norm)
        judge, judge_optimiser = descend(self._optimiser, judge, gradient, state.judge_optimiser)
        after = PlusState(
            policy=eqx.tree_at(lambda p: p.judge, policy, judge),
            optimiser=optimiser,
            judge_optimiser=judge_optimiser,
        )
        names = ("distance_loss", "model_loss", "judge_gradient_norm")
        return after, {**metrics, **dict(zip(names, (*parts, norm), strict=True))}

    def policy(self, state: PlusState) -> MixturePolicy:
        return state.policy

    @staticmethod
    def loss(net: MLP, policy: MixturePolicy, batch: Batch) -> Float[Array, ""]:
        """Negative log-likelihood of the batch's actions; only `net` is differentiated."""
        policy = with_net(policy, net)
        embedding = policy.embed_all(batch.horizon)
        mixtures = jax.vmap(policy.distribution_of)(batch.observation, batch.goal, embedding)
        return -jnp.mean(jax.vmap(mixture_log_prob)(batch.action, *mixtures))

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)
