"""What the six methods of OGBench share (Park et al., ICLR 2025).

A learner of this kind has a policy, value networks beside it and target networks that follow some
of them. All losses are added up and one Adam descends the sum. The networks are MLPs with GELU,
those of values with LayerNorm. Actors are Gaussians of standard deviation 1 over actions in units
of their bounds; a policy acts on the mode, clipped.

The reward is -1 until the goal is reached and 0 there. A goal is reached at the state that it was
taken from, so no tolerance is needed.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from merlin.data.goals import Geometric, Goals
from merlin.errors import MerlinError
from merlin.learners.base import Learner, check_sizes
from merlin.nets.layers import MLP, descend, polyak
from merlin.nets.td import advantage_weight, expectile_loss, reach_reward, unit_log_prob
from merlin.policies.goal import ClippedPolicy, with_net
from merlin.types import Batch, Metrics, Spec

Value = TypeVar("Value")
Twins = tuple[MLP, MLP]
SMALL: Mapping[str, Any] = {"hidden": (256, 256, 256), "batch_size": 256}
"""What the preset `small` of every method sets: sizes for a CPU."""
LONG: Mapping[str, Mapping[str, Any]] = {
    "giant": {"discount": 0.995},
    "humanoid": {"discount": 0.995},
}
STITCH: Mapping[str, Mapping[str, Any]] = {"stitch": {"actor_random": 0.5}}
"""What OGBench changes for all methods with a discount, and for all but GCBC."""
MANIPULATION = ("cube", "scene", "puzzle")
MAX_WEIGHT = 100.0
"""No action counts for more than this when it is cloned by its advantage."""


class OGBenchState(eqx.Module, Generic[Value]):
    """A policy, value networks, target networks, and the optimiser of the first two."""

    policy: ClippedPolicy
    value: Value
    target: Any
    optimiser: optax.OptState


class OGBenchLearner(Learner, Generic[Value]):
    """A method of this kind. It says what its networks are and what its loss is."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"small": SMALL}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "hidden")

    @property
    @abc.abstractmethod
    def hidden(self) -> tuple[int, ...]: ...

    @property
    def tau(self) -> float:
        """By how much target networks move towards the networks in each update."""
        return 1.0

    @property
    def sees_images(self) -> bool:
        return False

    @abc.abstractmethod
    def networks(self, key: PRNGKeyArray, spec: Spec) -> tuple[ClippedPolicy, Value]: ...

    @abc.abstractmethod
    def loss(
        self, policy: Any, value: Value, target: Any, batch: Batch
    ) -> tuple[Float[Array, ""], Metrics]:
        """The sum of all losses; the networks of policy and value are differentiated."""

    def followed(self, value: Value) -> Any:
        """The value networks that have target networks."""
        return ()

    def init(self, key: PRNGKeyArray, spec: Spec) -> OGBenchState:
        policy, value = self.networks(key, spec)
        optimiser = self.optimiser.init((policy.net, value))
        return OGBenchState(policy, value, self.followed(value), optimiser)

    def update(
        self, state: OGBenchState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[OGBenchState, Metrics]:
        def loss(nets: tuple[Any, Value]) -> tuple[Float[Array, ""], Metrics]:
            net, value = nets
            return self.loss(with_net(state.policy, net), value, state.target, batch)

        nets = (state.policy.net, state.value)
        (_, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(nets)
        (net, value), optimiser = descend(self.optimiser, nets, gradient, state.optimiser)
        target = polyak(state.target, self.followed(value), 1.0 - self.tau)
        after = OGBenchState(with_net(state.policy, net), value, target, optimiser)
        return after, {name: jax.lax.stop_gradient(metric) for name, metric in metrics.items()}

    def policy(self, state: OGBenchState) -> ClippedPolicy:
        return state.policy


def check_shares(learner: Learner, *names: str) -> None:
    """Refuse fields that are no share from 0 to 1."""
    for name in names:
        share = vars(learner)[name]
        if not 0.0 <= share <= 1.0:
            raise MerlinError(f"{name}: {share} is not a share from 0 to 1.")


def value_goals(current: float, random: float, discount: float) -> Goals:
    """Goals of a value function: the rest are future ones, as far away as the discount looks."""
    if not (current >= 0.0 and random >= 0.0 and current + random <= 1.0):
        raise MerlinError(
            f"value_current, value_random: {current} and {random} are not shares of at most 1."
        )
    future = 1.0 - current - random
    return Goals(current=current, random=random, future=future, offsets=Geometric(discount))


def actor_goals(random: float, subgoal: int = 0) -> Goals:
    """Goals of an actor: later states of the same episode, uniformly, and random states."""
    return Goals(future=1.0 - random, random=random, subgoal=subgoal)


def make_actor(inputs: int, hidden: Sequence[int], outputs: int, *, key: PRNGKeyArray) -> MLP:
    return MLP(inputs, hidden, outputs, key=key, activation=jax.nn.gelu)


def make_value(inputs: int, hidden: Sequence[int], outputs: int = 1, *, key: PRNGKeyArray) -> MLP:
    return MLP(inputs, hidden, outputs, key=key, activation=jax.nn.gelu, normed=True)


def make_twins(inputs: int, hidden: Sequence[int], outputs: int = 1, *, key: PRNGKeyArray) -> Twins:
    """Two value networks alike, each with a start of its own."""
    one, other = jax.random.split(key)
    return (
        make_value(inputs, hidden, outputs, key=one),
        make_value(inputs, hidden, outputs, key=other),
    )


def inputs_of(spec: Spec) -> int:
    """The size of a state and a goal together."""
    return spec.observation_shape[0] + spec.goal_dim


def evaluate(net: MLP, x: Float[Array, "batch inputs"]) -> Float[Array, " batch"]:
    """A network with one output, on a batch."""
    return jax.vmap(net)(x)[:, 0]


def evaluate_twins(twins: Twins, x: Float[Array, "batch inputs"]) -> Float[Array, "2 batch"]:
    return jnp.stack([evaluate(net, x) for net in twins])


def cloning_log_prob(
    policy: ClippedPolicy, x: Float[Array, "batch inputs"], batch: Batch
) -> tuple[Float[Array, " batch"], Float[Array, "batch action"]]:
    """How likely the actor makes the recorded actions, and its own modes, clipped."""
    mean = jax.vmap(policy.net)(x)
    return unit_log_prob(mean, policy.in_units(batch.action)), jnp.clip(mean, -1.0, 1.0)


def ivl_loss(
    values: Float[Array, "2 batch"],
    target_values: Float[Array, "2 batch"],
    next_target_values: Float[Array, "2 batch"],
    reached: Bool[Array, " batch"],
    *,
    discount: float,
    expectile: float,
) -> Float[Array, ""]:
    """Expectile regression of twin values on their own targets; the advantage is of both."""
    reward, mask = reach_reward(reached)
    wanted = reward + discount * mask * next_target_values
    advantage = jnp.min(wanted, axis=0) - jnp.mean(target_values, axis=0)
    errors = expectile_loss(jnp.stack([advantage] * 2), wanted - values, expectile)
    return jnp.sum(jnp.mean(errors, axis=1))


def awr_loss(
    advantage: Float[Array, " batch"], log_prob: Float[Array, " batch"], alpha: float
) -> Float[Array, ""]:
    """Advantage-weighted regression: cloning, where an advantage makes an action count more."""
    return -jnp.mean(advantage_weight(advantage, MAX_WEIGHT, alpha) * log_prob)
