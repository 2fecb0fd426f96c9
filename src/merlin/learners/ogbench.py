"""Components shared by the six OGBench methods (Park et al., ICLR 2025).

Each learner has a policy, value networks, and target networks for some of them. All losses are
summed and minimised by a single Adam optimiser. The networks are MLPs with GELU, and the value
networks also use LayerNorm. Actors are Gaussians with standard deviation 1 over actions scaled to
[-1, 1]. A policy acts on the clipped mode.

The reward is -1 until the goal is reached and 0 there. A goal is reached only at the state it was
taken from, so no tolerance is needed.
"""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from merlin.data.goals import Goals
from merlin.data.offsets import Geometric
from merlin.errors import MerlinError
from merlin.learners.base import Learner, check_sizes
from merlin.nets.layers import MLP, descend, polyak
from merlin.nets.td import advantage_weight, expectile_loss, reach_reward, unit_log_prob
from merlin.policies.goal import ClippedPolicy, with_net
from merlin.types import Batch, Metrics, Spec

Value = TypeVar("Value")
Twins = tuple[MLP, MLP]
SMALL: Mapping[str, Any] = {"hidden": (256, 256, 256), "batch_size": 256}
"""Sizes of the preset `small` of every method, suited to a CPU."""
LONG: Mapping[str, Mapping[str, Any]] = {
    "giant": {"discount": 0.995},
    "humanoid": {"discount": 0.995},
}
STITCH: Mapping[str, Mapping[str, Any]] = {"stitch": {"actor_random": 0.5}}
"""OGBench's changes for all methods with a discount (LONG) and for all but GCBC (STITCH)."""
MANIPULATION = ("cube", "scene", "puzzle")
MAX_WEIGHT = 100.0
"""Upper bound on the weights in advantage-weighted regression."""


class OGBenchState(eqx.Module, Generic[Value]):
    """A policy, value networks, target networks, and the optimiser state of the first two."""

    policy: ClippedPolicy
    value: Value
    target: Any
    optimiser: optax.OptState


@dataclass(frozen=True)
class OGBenchLearner(Learner, Generic[Value]):
    """Base class of the OGBench methods. Subclasses define the networks and the loss."""

    hidden: tuple[int, ...] = (512, 512, 512)
    learning_rate: float = 3e-4
    batch_size: int = 1024

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"small": SMALL}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "hidden")

    @property
    def tau(self) -> float:
        """Rate at which the target networks follow the networks."""
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
        """The sum of all losses; differentiates the networks of `policy` and `value`."""

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
    """Raise an error unless the fields are fractions in [0, 1]."""
    for name in names:
        share = vars(learner)[name]
        if not 0.0 <= share <= 1.0:
            raise MerlinError(f"{name}: {share} is not a fraction between 0 and 1.")


def value_goals(current: float, random: float, discount: float) -> Goals:
    """Goals for a value function: current and random states, otherwise geometric future states."""
    if not (current >= 0.0 and random >= 0.0 and current + random <= 1.0):
        raise MerlinError(
            f"value_current, value_random: {current} and {random} are not fractions that sum to "
            "at most 1."
        )
    future = 1.0 - current - random
    return Goals(current=current, random=random, future=future, offsets=Geometric(discount))


def actor_goals(random: float, subgoal: int = 0) -> Goals:
    """Goals for an actor: uniformly sampled later states of the same episode, and random states."""
    return Goals(future=1.0 - random, random=random, subgoal=subgoal)


def make_actor(inputs: int, hidden: Sequence[int], outputs: int, *, key: PRNGKeyArray) -> MLP:
    return MLP(inputs, hidden, outputs, key=key, activation=jax.nn.gelu)


def make_value(inputs: int, hidden: Sequence[int], outputs: int = 1, *, key: PRNGKeyArray) -> MLP:
    return MLP(inputs, hidden, outputs, key=key, activation=jax.nn.gelu, normed=True)


def make_twins(inputs: int, hidden: Sequence[int], outputs: int = 1, *, key: PRNGKeyArray) -> Twins:
    """Two value networks with independent initialisations."""
    one, other = jax.random.split(key)
    return (
        make_value(inputs, hidden, outputs, key=one),
        make_value(inputs, hidden, outputs, key=other),
    )


def inputs_of(spec: Spec) -> int:
    """The size of a state concatenated with a goal."""
    return spec.observation_shape[0] + spec.goal_dim


def evaluate(net: MLP, x: Float[Array, "batch inputs"]) -> Float[Array, " batch"]:
    """Apply a network with a single output to a batch."""
    return jax.vmap(net)(x)[:, 0]


def evaluate_twins(twins: Twins, x: Float[Array, "batch inputs"]) -> Float[Array, "2 batch"]:
    return jnp.stack([evaluate(net, x) for net in twins])


def cloning_log_prob(
    policy: ClippedPolicy, x: Float[Array, "batch inputs"], batch: Batch
) -> tuple[Float[Array, " batch"], Float[Array, "batch action"]]:
    """Log-probability of the recorded actions, and the actor's clipped modes."""
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
    """Expectile regression of twin values on bootstrapped targets with a shared advantage."""
    reward, mask = reach_reward(reached)
    wanted = reward + discount * mask * next_target_values
    advantage = jnp.min(wanted, axis=0) - jnp.mean(target_values, axis=0)
    errors = expectile_loss(jnp.stack([advantage] * 2), wanted - values, expectile)
    return jnp.sum(jnp.mean(errors, axis=1))


def awr_loss(
    advantage: Float[Array, " batch"], log_prob: Float[Array, " batch"], alpha: float
) -> Float[Array, ""]:
    """Advantage-weighted regression: cloning with weights exp(alpha * advantage), capped."""
    return -jnp.mean(advantage_weight(advantage, MAX_WEIGHT, alpha) * log_prob)
