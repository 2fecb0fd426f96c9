"""Merlin-plus: Merlin with a mixture policy and a judge, without tuning per task.

Our extension of Jain and Ravanbakhsh, "Learning to Reach Goals via Diffusion" (ICML 2024).

If the data mixes a competent controller with noise, the distribution of a reverse diffusion step
has several modes. The policy is therefore a mixture of Gaussians, trained by maximum likelihood on
the same relabelled data as Merlin:

    max  E  log sum_k w_k N(a | mean_k(s, g, h), std_k(s, g, h)).

It acts on the mean of the component with the highest weight per volume. This is the mode of the
mixture if the components do not overlap, and it avoids the wide components that model noise. Since
clipped actions pile up at the bounds, the width of a component is bounded below (`NARROW`).

That action is the first proposal. The next two are more aggressive: the action for a horizon of one
step, and one twice as long, since far from the goal the best step may be longer than any recorded
one. The remaining proposals are sampled from the mixture, with components drawn by their weight per
volume. A judge evaluates each proposal (see `policies.judge`): a forward model predicts where it
leads, a guide predicts where the policy continues from there, and a temporal distance measures how
far both states are from the goal. By Bayes' rule, the judge's estimate is combined with the
mixture, which acts as the prior, according to the judge's measured error. The policy takes the
action that minimises

    steps(a) - caution * error^2 * log p(a).

Where the judge is unreliable, for example at contacts that its model does not predict, the prior
dominates and the policy acts as if there were no judge.

With one component and no candidates, Merlin-plus is Merlin.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from merlin.data import Dataset
from merlin.data.goals import Goals, Sampling, hindsight
from merlin.data.offsets import Uniform
from merlin.errors import MerlinError
from merlin.learners.base import (
    Learner,
    check_below_one,
    check_discount,
    check_not_negative,
    check_positive,
    check_sizes,
    within,
)
from merlin.learners.distance import fit_standardised, local_limit
from merlin.learners.judge import Pairs, clip_each, judge_loss, starts, with_error
from merlin.learners.merlin import Merlin
from merlin.nets.cnn import Net
from merlin.nets.layers import descend, descend_clipped, mixture_log_prob, running_average
from merlin.policies.goal import make_policy, with_net
from merlin.policies.judge import Judge
from merlin.policies.plus import MixturePolicy
from merlin.types import Batch, Metrics, Spec

DISTANCES = ("hazards", "classes")


class PlusState(eqx.Module):
    """The policy, its averaged parameters, and the optimisers of its network and its judge."""

    policy: MixturePolicy
    optimiser: optax.OptState
    judge_optimiser: optax.OptState | None
    average: Net | None  # of the policy's network; None if it acts with the latest parameters


@final
@dataclass(frozen=True)
class MerlinPlus(Learner):
    """Merlin with a mixture of Gaussians and a judge that chooses among proposed actions."""

    absent: ClassVar[Mapping[str, Any]] = {"average": 0.0, "distance": "classes"}

    components: int = 5  # Gaussians in the mixture
    hindsight_ratio: float = 1.0  # fraction of goals relabelled with the episode's future
    horizon: int = 5  # on which the mixture is conditioned when acting
    max_horizon: int | None = 100  # longest horizon of a goal; None: the whole episode
    candidates: int = 7  # proposals besides the first; 0 disables the judge
    depth: int = 4  # steps the judge looks ahead
    caution: float = 0.5  # weight of the mixture's density against the judge's estimate
    distance: str = "hazards"  # of the judge; "classes": a classifier of the steps, as before
    discount: float = 0.9  # of the temporal distance
    model_hidden: tuple[int, ...] = (128, 128)
    distance_hidden: tuple[int, ...] = (128, 128)
    guide_hidden: tuple[int, ...] = (128, 128)
    temperature: float = 0.0  # scale of the action noise, in standard deviations
    hidden: tuple[int, ...] = (256, 256, 256)
    learning_rate: float = 5e-4
    max_gradient_norm: float = 1.0
    average: float = 0.9995  # decay of the averaged parameters that the policy acts with; 0: none
    batch_size: int = 512

    def __post_init__(self) -> None:
        if self.max_horizon is not None:
            check_sizes(self, "max_horizon")
        super().__post_init__()
        check_sizes(self, "hidden", "components", "depth")
        check_sizes(self, "model_hidden", "distance_hidden", "guide_hidden")
        check_not_negative(self, "candidates", "caution", "temperature")
        check_positive(self, "max_gradient_norm")
        check_discount(self.discount)
        check_below_one(self, "average")
        if self.distance not in DISTANCES:
            raise MerlinError(f"distance: {self.distance!r} is not one of {', '.join(DISTANCES)}.")

    def long_values(self, states: int) -> Mapping[str, Any]:
        """On long episodes, act as Merlin: the judge cannot tell what one action changes there."""
        long = Merlin(max_horizon=self.max_horizon).long_values(states)
        return {**long, "components": 1, "candidates": 0} if long else {}

    @property
    def sees_images(self) -> bool:
        """The judge needs state vectors; with images it uses latents."""
        return self.candidates == 0

    @property
    def sampling(self) -> Sampling:
        """The judge needs future goals; it shares the policy's if those are all future goals."""
        wanted = hindsight(self.hindsight_ratio, "pairs", limit=self.max_horizon)
        if self._judges_apart:
            later = Goals(future=1.0, offsets=Uniform(self.max_horizon))
            goals = {**wanted.goals, "judge": later}
            return dataclasses.replace(wanted, goals=goals)
        return wanted

    @property
    def _judges_apart(self) -> bool:
        return self.candidates > 0 and self.hindsight_ratio < 1.0

    def survey(self, data: Dataset, spec: Spec, *, quiet: bool = True) -> Spec:
        if self.candidates == 0 or self.distance != "hazards":
            return spec
        limit, hidden = self.hazard_limit(spec), self.distance_hidden
        fitted = fit_standardised(data, spec, hidden=hidden, limit=limit, quiet=quiet)
        return spec._replace(hazard=fitted)

    def hazard_limit(self, spec: Spec) -> int:
        """The number of steps that the judge's hazards look ahead."""
        return local_limit(spec.max_horizon - 1, self.max_horizon or spec.max_horizon)

    def init(self, key: PRNGKeyArray, spec: Spec) -> PlusState:
        limit = self.hazard_limit(spec) if self.distance == "hazards" else None
        spec = within(spec, self.max_horizon)
        heads = 2 * spec.action_dim + (self.components > 1)
        judge = None
        if self.candidates:
            hidden = (self.distance_hidden, self.model_hidden, self.guide_hidden)
            judge = Judge(spec, *hidden, limit=limit, key=jax.random.fold_in(key, 1))
            if spec.hazard is not None:
                judge = eqx.tree_at(lambda j: j.distance, judge, spec.hazard.net)
        policy = make_policy(
            MixturePolicy,
            spec,
            self.hidden,
            outputs=self.components * heads,
            horizon=self.horizon,
            key=key,
            judge=judge,
            components=self.components,
            candidates=self.candidates,
            depth=self.depth,
            caution=self.caution,
            discount=self.discount,
            temperature=self.temperature,
        )
        judge_optimiser = None if judge is None else self.optimiser.init(judge)
        average = policy.net if self.average else None
        return PlusState(policy, self.optimiser.init(policy.net), judge_optimiser, average)

    def update(
        self, state: PlusState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[PlusState, Metrics]:
        loss, gradient = jax.value_and_grad(self.loss)(state.policy.net, state.policy, batch)
        future = batch.goals["judge" if self._judges_apart else "policy"]
        limit = self.max_gradient_norm
        net, optimiser, norm = descend_clipped(
            self.optimiser, state.policy.net, gradient, state.optimiser, limit
        )
        metrics = {"loss": loss, "gradient_norm": norm}
        policy, judge = with_net(state.policy, net), state.policy.judge
        average = state.average
        if self.average:
            step = optax.tree.get(optimiser, "count")
            average = running_average(average, net, step, decay=self.average)
        if judge is None:
            return PlusState(policy, optimiser, None, average), metrics
        normalise = jax.vmap(policy.observation_normaliser)
        pairs = Pairs(
            state=normalise(batch.observation),
            unit=policy.in_units(batch.action),
            next_state=normalise(batch.next_observation),
            goal=jax.vmap(policy.goal_normaliser)(future.goal),
            horizon=future.horizon,
        )
        walks = policy.walks(judge, *starts(pairs))
        (_, parts), gradient = jax.value_and_grad(judge_loss, has_aux=True)(judge, pairs, walks)
        moved, judge_optimiser = descend(
            self.optimiser, judge, clip_each(gradient, limit), state.judge_optimiser
        )
        judge = with_error(moved, pairs, self.discount)
        policy = eqx.tree_at(lambda p: p.judge, policy, judge)
        after = PlusState(policy, optimiser, judge_optimiser, average)
        return after, {**metrics, **parts, "judge_error": jnp.sqrt(judge.square_error)}

    def policy(self, state: PlusState) -> MixturePolicy:
        return with_net(state.policy, state.average) if self.average else state.policy

    @staticmethod
    def loss(net: Net, policy: MixturePolicy, batch: Batch) -> Float[Array, ""]:
        """Negative log-likelihood of the batch's actions; differentiates `net` only."""
        policy = with_net(policy, net)
        x = policy.batch_inputs(batch.observation, batch.goals["policy"])
        mixtures = jax.vmap(policy.mixture)(x)
        return -jnp.mean(jax.vmap(mixture_log_prob)(batch.action, *mixtures))
