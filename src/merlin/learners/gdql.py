"""g-DQL: a diffusion policy trained by cloning and by a learned Q-function.

Wang et al., "Diffusion Policies as an Expressive Policy Class for Offline Reinforcement Learning"
(ICLR 2023), conditioned on goals as in Jain and Ravanbakhsh (ICML 2024).

The policy samples an action in five denoising steps, given the state and the goal. Its loss has two
terms: predicting the noise added to recorded actions, which keeps it close to the data, and
maximising the critic's value of sampled actions, differentiated through all five steps:

    loss = noise prediction + eta * (- Q(s, g, sampled a) / mean |Q|).

Twin critics learn the discounted number of steps spent at the goal by temporal differences. The
target is the minimum of two target critics at an action of the averaged policy. To act, the policy
samples candidates and chooses one with probability softmax(Q).

Rewards are recomputed for the relabelled goal: 1 if the step ends within the tolerance, otherwise
0. No state is terminal, as in the tasks, so values are at most 1 / (1 - discount).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int32, PRNGKeyArray

from merlin.data.goals import Sampling, hindsight
from merlin.learners.base import (
    Learner,
    check_below_one,
    check_not_negative,
    check_positive,
    check_sizes,
    known_tolerance,
    tuned,
)
from merlin.nets.diffusion import (
    Chain,
    ddpm,
    make_chain,
    noise_prediction_loss,
    variance_preserving_betas,
)
from merlin.nets.layers import (
    MLP,
    descend_clipped,
    horizon_embedding,
    late_average,
    mish,
    polyak,
)
from merlin.nets.td import sparse_reward
from merlin.policies.base import DiffusionPolicy, require_key, vector_inputs
from merlin.types import Batch, Horizon, Key, Metrics, Spec

TIME_DIM = 16


def td_target(
    rewards: Float[Array, " batch"], next_value: Float[Array, " batch"], discount: float
) -> Float[Array, " batch"]:
    """The bootstrapped target, clipped to the range of returns that rewards of 0 and 1 allow."""
    return jnp.clip(rewards + discount * next_value, 0.0, 1 / (1 - discount))


class NoiseNet(eqx.Module):
    """Predicts the noise in an action, given the diffusion step, the state and the goal."""

    time: MLP
    net: MLP

    def __init__(self, inputs: int, actions: int, hidden: tuple[int, ...], *, key: PRNGKeyArray):
        time, net = jax.random.split(key)
        self.time = MLP(TIME_DIM, (2 * TIME_DIM,), TIME_DIM, key=time, activation=mish)
        self.net = MLP(actions + TIME_DIM + inputs, hidden, actions, key=net, activation=mish)

    def embed(self, steps: int) -> Float[Array, "steps time"]:
        """Embeddings of all diffusion steps, computed once and then indexed."""
        waves = jax.vmap(partial(horizon_embedding, max_period=1e4, dim=TIME_DIM))
        return jax.vmap(self.time)(waves(jnp.arange(steps, dtype=jnp.float32)))

    def __call__(
        self,
        noisy: Float[Array, " action"],
        time: Float[Array, " time"],
        inputs: Float[Array, " inputs"],
    ) -> Float[Array, " action"]:
        return self.net(jnp.concatenate([noisy, time, inputs]))


Critic = Callable[[Float[Array, " inputs_and_action"]], Float[Array, "1"]]
Critics = tuple[Critic, Critic]


def values(
    critics: Critics, inputs: Float[Array, " inputs"], unit: Float[Array, " action"]
) -> Float[Array, "2"]:
    """Q-values of an action under both critics."""
    return jnp.concatenate([critic(jnp.concatenate([inputs, unit])) for critic in critics])


def draw(
    net: NoiseNet,
    chain: Chain,
    inputs: Float[Array, " inputs"],
    noise: Float[Array, "steps action"],
    temperature: float = 1.0,
) -> Float[Array, " action"]:
    """Sample one action in [-1, 1] by denoising."""
    times = net.embed(len(noise))
    predict = lambda noisy, step: net(noisy, times[step], inputs)  # noqa: E731
    unit = ddpm(predict, chain, noise, temperature=temperature, limit=1.0)
    return jnp.clip(unit, -1.0, 1.0)


class GDQLPolicy(DiffusionPolicy):
    """Samples candidates and picks one by its value under the target critics."""

    net: NoiseNet
    critics: Critics
    steps: int = eqx.field(static=True)
    candidates: int = eqx.field(static=True)
    temperature: float = eqx.field(static=True, default=1.0)

    def joined(self, observation: ArrayLike, goal: ArrayLike) -> Float[Array, " inputs"]:
        """Normalised state and goal, concatenated."""
        return jnp.concatenate(self.inputs(observation, goal))

    def act(
        self, observation: ArrayLike, goal: ArrayLike, horizon: Horizon = None, key: Key = None
    ) -> Float[Array, " action"]:
        choice_key, draw_key = jax.random.split(require_key(key))
        inputs = self.joined(observation, goal)
        chain = make_chain(variance_preserving_betas(self.steps))
        shape = (self.candidates, self.steps, len(self.actions.centre))
        one = lambda noise: draw(self.net, chain, inputs, noise, self.temperature)  # noqa: E731
        found = jax.vmap(one)(jax.random.normal(draw_key, shape))
        value = jax.vmap(values, (None, None, 0))(self.critics, inputs, found).min(1)
        return self.actions.from_unit(found[jax.random.categorical(choice_key, value)])


class GDQLState(eqx.Module):
    """The policy holds the actor and the target critics; the rest is used in training only."""

    policy: GDQLPolicy
    average: NoiseNet
    critics: Critics
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    step: Int32[Array, ""]
    tolerance: float = eqx.field(static=True)


@final
@dataclass(frozen=True)
class GDQL(Learner):
    """Goal-conditioned diffusion Q-learning; defaults as in the release for Gym locomotion."""

    hindsight_ratio: float = tuned(1.0)  # fraction of goals relabelled with the episode's future
    tolerance: float | None = None  # distance that counts as reached; None: the task's
    diffusion_steps: int = 5
    eta: float = 1.0  # weight of the Q term
    candidates: int = 50  # sampled per action
    hidden: tuple[int, ...] = (256, 256, 256)
    learning_rate: float = 3e-4
    max_gradient_norm: float = 5.0
    discount: float = 0.98
    target_keep: float = 0.995  # fraction of the target critics kept per update
    average_decay: float = 0.995
    average_every: int = 5
    average_start: int = 1000  # the average is a copy of the weights before this
    batch_size: int = 256

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"hidden": (128, 128, 128), "candidates": 10, "learning_rate": 1e-3}
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self, "diffusion_steps", "candidates", "hidden", "average_every")
        if self.tolerance is not None:
            check_positive(self, "tolerance")
        check_below_one(self, "discount", "average_decay", "target_keep")
        check_positive(self, "max_gradient_norm")
        check_not_negative(self, "eta", "average_start")

    @property
    def sees_images(self) -> bool:
        return False

    @property
    def sampling(self) -> Sampling:
        return hindsight(self.hindsight_ratio, "episodes")

    @property
    def chain(self) -> Chain:
        return make_chain(variance_preserving_betas(self.diffusion_steps))

    def init(self, key: PRNGKeyArray, spec: Spec) -> GDQLState:
        known = vector_inputs(spec, "g-dql")
        actor_key, *critic_keys = jax.random.split(key, 3)
        inputs = spec.observation_shape[0] + spec.goal_dim
        net = NoiseNet(inputs, spec.action_dim, self.hidden, key=actor_key)
        critics: Any = tuple(
            MLP(inputs + spec.action_dim, self.hidden, 1, key=k, activation=mish)
            for k in critic_keys
        )
        policy = GDQLPolicy(
            **known,
            net=net,
            critics=critics,
            steps=self.diffusion_steps,
            candidates=self.candidates,
        )
        return GDQLState(
            policy=policy,
            average=net,
            critics=critics,
            actor_optimiser=self.optimiser.init(net),
            critic_optimiser=self.optimiser.init(critics),
            step=jnp.int32(0),
            tolerance=known_tolerance(self.tolerance, spec),
        )

    def update(
        self, state: GDQLState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[GDQLState, Metrics]:
        noise_key, choice_key = jax.random.split(key)
        policy, (rows, actions) = state.policy, batch.action.shape
        # One call for all noise: for the next action, the sampled action and the recorded action.
        noise = jax.random.normal(noise_key, (rows, 2 * self.diffusion_steps + 1, actions))
        following, drawing, added = jnp.split(
            noise, [self.diffusion_steps, 2 * self.diffusion_steps], axis=1
        )
        inputs = jax.vmap(policy.joined)(batch.observation, batch.goal)
        unit = policy.actions.to_unit(batch.action)

        target = self.target(state, batch, following)
        critic_loss, gradient = jax.value_and_grad(self.critic_loss)(
            state.critics, inputs, unit, target
        )
        limit = self.max_gradient_norm
        critics, critic_optimiser, critic_norm = descend_clipped(
            self.optimiser, state.critics, gradient, state.critic_optimiser, limit
        )

        (_, parts), gradient = jax.value_and_grad(self.actor_loss, has_aux=True)(
            policy.net, critics, inputs, unit, drawing, added[:, 0], choice_key
        )
        net, actor_optimiser, actor_norm = descend_clipped(
            self.optimiser, policy.net, gradient, state.actor_optimiser, limit
        )

        step = state.step + 1
        average = late_average(
            state.average,
            net,
            step,
            decay=self.average_decay,
            every=self.average_every,
            start=self.average_start,
        )
        slow = polyak(policy.critics, critics, self.target_keep)
        after = GDQLState(
            policy=eqx.tree_at(lambda p: (p.net, p.critics), policy, (net, slow)),
            average=average,
            critics=critics,
            actor_optimiser=actor_optimiser,
            critic_optimiser=critic_optimiser,
            step=step,
            tolerance=state.tolerance,
        )
        norms = {"actor_gradient_norm": actor_norm, "critic_gradient_norm": critic_norm}
        return after, {"critic_loss": critic_loss, "target": target.mean(), **parts, **norms}

    def policy(self, state: GDQLState) -> GDQLPolicy:
        return state.policy

    def target(
        self, state: GDQLState, batch: Batch, noise: Float[Array, "batch steps action"]
    ) -> Float[Array, " batch"]:
        """TD target from the target critics at an action of the averaged policy."""
        policy = state.policy
        inputs = jax.vmap(policy.joined)(batch.next_observation, batch.goal)
        following = self._draw(state.average, inputs, noise)
        value = jax.vmap(values, (None, 0, 0))(policy.critics, inputs, following).min(1)
        rewards = 1.0 + sparse_reward(batch.next_achieved_goal, batch.goal, state.tolerance)
        return td_target(rewards, value, self.discount)

    @staticmethod
    def critic_loss(
        critics: Critics,
        inputs: Float[Array, "batch inputs"],
        unit: Float[Array, "batch action"],
        target: Float[Array, " batch"],
    ) -> Float[Array, ""]:
        """Squared TD error, summed over both critics."""
        found = jax.vmap(values, (None, 0, 0))(critics, inputs, unit)
        return jnp.mean(jnp.sum((found - target[:, None]) ** 2, axis=1))

    def actor_loss(
        self,
        net: NoiseNet,
        critics: Critics,
        inputs: Float[Array, "batch inputs"],
        unit: Float[Array, "batch action"],
        drawing: Float[Array, "batch steps action"],
        added: Float[Array, "batch action"],
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, ""], Metrics]:
        """Noise prediction loss on the data minus the scaled value of sampled actions."""
        chance = jax.random.uniform(key, (len(unit) + 1,))
        chain = self.chain
        times = net.embed(chain.steps)

        def one(inputs: Array, unit: Array, step: Array, noise: Array) -> Float[Array, ""]:
            predict = lambda noisy, step: net(noisy, times[step], inputs)  # noqa: E731
            return noise_prediction_loss(predict, chain, unit, step, noise)

        step = (chain.steps * chance[1:]).astype(jnp.int32)
        cloning = jnp.mean(jax.vmap(one)(inputs, unit, step, added))
        drawn = self._draw(net, inputs, drawing)
        both = jax.vmap(values, (None, 0, 0))(critics, inputs, drawn)
        # One randomly chosen critic gives the value, the other normalises it.
        which = (chance[0] < 0.5).astype(jnp.int32)
        scale = jax.lax.stop_gradient(jnp.mean(jnp.abs(both[:, 1 - which])))
        value = jnp.mean(both[:, which])
        loss = cloning - self.eta * value / jnp.maximum(scale, 1e-6)
        return loss, {"noise_loss": cloning, "value": value}

    def _draw(
        self,
        net: NoiseNet,
        inputs: Float[Array, "batch inputs"],
        noise: Float[Array, "batch steps action"],
    ) -> Float[Array, "batch action"]:
        return jax.vmap(draw, (None, None, 0, 0))(net, self.chain, inputs, noise)
