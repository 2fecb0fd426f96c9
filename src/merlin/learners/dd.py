"""Decision Diffuser: plan a sequence of states by diffusion, then recover the action.

Ajay et al., "Is Conditional Generative Modeling all you need for Decision-Making?" (ICLR 2023),
conditioned on goals as in Jain and Ravanbakhsh (ICML 2024).

A temporal U-Net denoises sequences of states. The first state is known and is written into the
sequence before every denoising step. The goal is the condition. It is dropped from a quarter of the
training examples, and sampling uses classifier-free guidance:

    noise = noise(x) + guidance (noise(x | g) - noise(x)).

An inverse dynamics model, trained on the same windows, predicts the action between the first two
states of the plan. The policy replans at every environment step and takes the first action.

The release conditions on a return. Here the goal vector takes its place, embedded by the same small
network. The release can also fix the last state of the sequence, but that requires a full goal
state and the time at which it is reached.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Bool, Float, Int32, PRNGKeyArray

from merlin.data.goals import Sampling, hindsight
from merlin.errors import MerlinError
from merlin.learners.base import (
    Learner,
    check_below_one,
    check_not_negative,
    check_sizes,
    tuned,
)
from merlin.nets.diffusion import (
    Chain,
    cosine_betas,
    ddim,
    ddpm,
    guide,
    make_chain,
    noise_prediction_loss,
)
from merlin.nets.layers import (
    MLP,
    descend,
    horizon_embedding,
    late_average,
    mish,
    randomise,
)
from merlin.nets.unet import UNet
from merlin.policies.base import DiffusionPolicy, require_key, vector_inputs
from merlin.types import Batch, Horizon, Key, Metrics, Spec


class Planner(eqx.Module):
    """Predicts the noise in a sequence of states, given the diffusion step and the goal."""

    time: MLP
    goal: MLP
    unet: UNet
    channels: int = eqx.field(static=True)

    def __init__(
        self,
        states: int,
        goals: int,
        channels: int,
        multipliers: tuple[int, ...],
        *,
        key: PRNGKeyArray,
    ):
        time, goal, unet = jax.random.split(key, 3)
        wide = 4 * channels
        self.time = MLP(channels, (wide,), channels, key=time, activation=mish)
        self.goal = MLP(goals, (channels, wide), channels, key=goal, activation=mish)
        blank = UNet(states, 2 * channels, channels=channels, multipliers=multipliers)
        self.unet = randomise(blank, unet)
        self.channels = channels

    def __call__(
        self,
        noisy: Float[Array, "window state"],
        step: Int32[Array, ""],
        condition: Float[Array, " channels"],
    ) -> Float[Array, "window state"]:
        """`condition` is the embedded goal, or zeros for the unconditional prediction."""
        wave = horizon_embedding(step.astype(jnp.float32), 1e4, self.channels)
        return self.unet(noisy, jnp.concatenate([self.time(wave), condition]))


class Model(eqx.Module):
    """The trained networks: the planner and the inverse dynamics model."""

    planner: Planner
    inverse: MLP

    def action(
        self, now: Float[Array, " state"], following: Float[Array, " state"]
    ) -> Float[Array, " action"]:
        """The action between two consecutive states, before clipping to [-1, 1]."""
        return self.inverse(jnp.concatenate([now, following]))


class DDPolicy(DiffusionPolicy):
    """Replans at every step."""

    model: Model
    window: int = eqx.field(static=True)
    diffusion_steps: int = eqx.field(static=True)
    sampling_steps: int = eqx.field(static=True)
    guidance: float = eqx.field(static=True)
    temperature: float = eqx.field(static=True, default=0.5)

    def act(
        self, observation: ArrayLike, goal: ArrayLike, horizon: Horizon = None, key: Key = None
    ) -> Float[Array, " action"]:
        plan = self.plan(*self.inputs(observation, goal), require_key(key))
        return self.actions.from_unit(self.model.action(plan[0], plan[1]))

    def plan(
        self, state: Float[Array, " state"], goal: Float[Array, " goal"], key: PRNGKeyArray
    ) -> Float[Array, "window state"]:
        """A plan as a sequence of normalised states, starting at the current one."""
        planner = self.model.planner
        condition = planner.goal(goal)
        # Conditional and unconditional prediction in one call with two rows.
        told = jnp.stack([condition, jnp.zeros_like(condition)])[: 1 + (self.guidance != 1.0)]

        def predict(x: Array, step: Array) -> Array:
            answers = jax.vmap(planner, (None, None, 0))(x, step, told)
            return guide(answers[0], answers[-1], self.guidance)

        chain = make_chain(cosine_betas(self.diffusion_steps))
        shape = (self.window, len(state))
        options: dict[str, Any] = {
            "temperature": self.temperature,
            "limit": self.observation_normaliser.limit,
            "impose": lambda x: x.at[0].set(state),
        }
        if self.sampling_steps == self.diffusion_steps:
            return ddpm(predict, chain, jax.random.normal(key, (chain.steps, *shape)), **options)
        noise = jax.random.normal(key, shape)
        return ddim(predict, chain, noise, steps=self.sampling_steps, **options)


class DDState(eqx.Module):
    """The model, a policy with its averaged weights, the optimiser state and the update count."""

    model: Model
    policy: DDPolicy
    optimiser: optax.OptState
    step: Int32[Array, ""]


@final
@dataclass(frozen=True)
class DecisionDiffuser(Learner):
    """Diffusion over state sequences; defaults as in the release for locomotion."""

    hindsight_ratio: float = tuned(1.0)  # fraction of goals relabelled with the episode's future
    # Length of a plan, including the current state. The release uses 100, which is two episodes
    # here.
    window: int = 50
    diffusion_steps: int = 200
    sampling_steps: int = 200  # below diffusion_steps: DDIM sampling
    channels: int = 128  # at the first level of the U-Net
    multipliers: tuple[int, ...] = (1, 4, 8)  # of the channels, one per level
    inverse_hidden: tuple[int, ...] = (256, 256)
    condition_dropout: float = 0.25  # fraction of examples without a goal
    guidance: float = 1.2  # guidance scale; 1 disables it
    temperature: float = 0.5  # of the sampling noise
    learning_rate: float = 2e-4
    average_decay: float = 0.995
    average_every: int = 10
    average_start: int = 2000  # the average is a copy of the weights before this
    batch_size: int = 64  # the release accumulates gradients over two batches of 32

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {
            "window": 8,
            "diffusion_steps": 20,
            "sampling_steps": 20,
            "channels": 32,
            "multipliers": (1, 2, 4),
            "learning_rate": 1e-3,
            "average_every": 1,
            "average_start": 500,
        }
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window < 2:
            raise MerlinError(f"window: a plan needs at least 2 states, not {self.window}.")
        if not 1 <= self.sampling_steps <= self.diffusion_steps:
            raise MerlinError(
                f"sampling_steps: {self.sampling_steps} is not between 1 and "
                f"diffusion_steps={self.diffusion_steps}."
            )
        if self.channels < 8 or self.channels % 8:
            raise MerlinError(
                f"channels: {self.channels} is not a multiple of 8, which group norm needs."
            )
        check_sizes(self, "multipliers", "inverse_hidden", "average_every")
        check_below_one(self, "condition_dropout", "average_decay")
        if self.guidance != 1.0 and self.condition_dropout == 0.0:
            raise MerlinError(
                "guidance: needs the unconditional prediction, which condition_dropout=0 never "
                "trains; set guidance=1, or condition_dropout above 0."
            )
        check_not_negative(self, "temperature", "average_start")

    @property
    def sees_images(self) -> bool:
        return False

    @property
    def sampling(self) -> Sampling:
        return hindsight(self.hindsight_ratio, "episodes", ahead=self.window)

    @property
    def chain(self) -> Chain:
        return make_chain(cosine_betas(self.diffusion_steps))

    def init(self, key: PRNGKeyArray, spec: Spec) -> DDState:
        known = vector_inputs(spec, "dd")
        planner_key, inverse_key = jax.random.split(key)
        (states,) = spec.observation_shape
        model = Model(
            planner=Planner(
                states, spec.goal_dim, self.channels, self.multipliers, key=planner_key
            ),
            inverse=MLP(2 * states, self.inverse_hidden, spec.action_dim, key=inverse_key),
        )
        policy = DDPolicy(
            **known,
            model=model,
            window=self.window,
            diffusion_steps=self.diffusion_steps,
            sampling_steps=self.sampling_steps,
            guidance=self.guidance,
            temperature=self.temperature,
        )
        return DDState(model, policy, self.optimiser.init(model), jnp.int32(0))

    def update(self, state: DDState, batch: Batch, key: PRNGKeyArray) -> tuple[DDState, Metrics]:
        (_, parts), gradient = jax.value_and_grad(self.loss, has_aux=True)(
            state.model, state.policy, batch, key
        )
        model, optimiser = descend(self.optimiser, state.model, gradient, state.optimiser)
        step = state.step + 1
        average = late_average(
            state.policy.model,
            model,
            step,
            decay=self.average_decay,
            every=self.average_every,
            start=self.average_start,
        )
        policy = eqx.tree_at(lambda p: p.model, state.policy, average)
        return DDState(model, policy, optimiser, step), parts

    def policy(self, state: DDState) -> DDPolicy:
        return state.policy

    def loss(
        self, model: Model, policy: DDPolicy, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Metrics]:
        """Mean of the noise-prediction and inverse-dynamics losses; differentiates `model` only.

        Steps beyond the end of an episode are padding and have zero weight.
        """
        assert batch.ahead is not None
        noise_key, choice_key = jax.random.split(key)
        window = batch.ahead
        states = jax.vmap(jax.vmap(policy.observation_normaliser))(window.observations)
        goals = jax.vmap(policy.goal_normaliser)(batch.goal)
        rows = len(states)
        noise = jax.random.normal(noise_key, states.shape)
        chance = jax.random.uniform(choice_key, (2, rows))
        step = (self.diffusion_steps * chance[0]).astype(jnp.int32)
        told = chance[1] >= self.condition_dropout

        def planning(
            x: Array, goal: Array, told: Array, valid: Array, step: Array, noise: Array
        ) -> Float[Array, ""]:
            condition = jnp.where(told, model.planner.goal(goal), 0.0)
            predict = lambda noisy, step: model.planner(noisy.at[0].set(x[0]), step, condition)  # noqa: E731
            unknown = valid.at[0].set(False).astype(jnp.float32)[:, None]
            return noise_prediction_loss(predict, self.chain, x, step, noise, unknown)

        planned = jnp.mean(jax.vmap(planning)(states, goals, told, window.valid, step, noise))
        inverse = self.inverse_loss(
            model, states, policy.actions.to_unit(window.actions), window.valid
        )
        return (planned + inverse) / 2, {"noise_loss": planned, "inverse_loss": inverse}

    @staticmethod
    def inverse_loss(
        model: Model,
        states: Float[Array, "batch window state"],
        unit: Float[Array, "batch window action"],
        valid: Bool[Array, "batch window"],
    ) -> Float[Array, ""]:
        """Mean squared action error over all steps inside their episode."""
        found = jax.vmap(jax.vmap(model.action))(states[:, :-1], states[:, 1:])
        seen = valid[:, 1:].astype(jnp.float32)
        error = jnp.mean((found - unit[:, :-1]) ** 2, axis=2)
        return jnp.sum(seen * error) / jnp.sum(seen)
