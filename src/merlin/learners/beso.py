"""BESO: goal-conditioned imitation with a score-based diffusion policy.

Reuss et al., "Goal-Conditioned Imitation Learning using Score-based Diffusion Policies" (RSS
2023).

The policy is a denoiser D(a + sigma noise, sigma | s, g). It learns to recover the action taken in
s on the way to g, at every noise level. Goals come from the future of the same episode and are
dropped at random, so one network models both the goal-conditioned and the unconditional action
distribution. Acting starts from pure noise and denoises it in three steps with classifier-free
guidance:

    D = D(. | s) + guidance (D(. | s, g) - D(. | s)).

The network is an MLP on the current state, or a small transformer on the last few states and
actions. Both are preconditioned (see `nets.diffusion`). The policy acts with an exponential moving
average of the weights.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int32, PRNGKeyArray

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
    ddim_sigmas,
    denoising_loss,
    exponential_sigmas,
    guide,
    log_logistic_sigma,
    preconditioned,
)
from merlin.nets.layers import MLP, Linear, mish, running_average
from merlin.nets.transformer import Transformer, normal_linear
from merlin.policies.base import DiffusionPolicy, require_key, vector_inputs
from merlin.types import Batch, Horizon, Key, Metrics, Segment, Spec

BACKBONES = ("mlp", "transformer")
FINAL_RATE = 0.018
"""The learning rate decays to this fraction, as it does after 40,000 updates of the release."""


class ScoreMLP(eqx.Module):
    """Denoiser on the current state only."""

    net: MLP

    def __init__(self, spec: Spec, hidden: tuple[int, ...], *, key: PRNGKeyArray):
        inputs = spec.action_dim + 1 + spec.observation_shape[0] + spec.goal_dim + 1
        self.net = MLP(inputs, hidden, spec.action_dim, key=key, activation=mish)

    def __call__(
        self,
        noisy: Float[Array, " action"],
        sigma: Float[Array, ""],
        seen: Segment,
        goal: Float[Array, " goal"],
        told: Float[Array, ""],
        key: Key,
    ) -> Float[Array, " action"]:
        level = jnp.log(sigma) / 4
        parts = [noisy, level[None], seen.observations[-1], told * goal, told[None]]
        return self.net(jnp.concatenate(parts))


class ScoreTransformer(eqx.Module):
    """Denoiser on a window of tokens: noise level, goal, then alternating states and actions."""

    level: Linear
    goal: Linear
    observation: Linear
    action: Linear
    positions: Float[Array, "positions width"]
    body: Transformer
    out: Linear

    def __init__(
        self,
        spec: Spec,
        window: int,
        width: int,
        layers: int,
        heads: int,
        dropout: float,
        *,
        key: PRNGKeyArray,
    ):
        keys = jax.random.split(key, 7)
        self.level = normal_linear(1, width, key=keys[0])
        self.goal = normal_linear(spec.goal_dim, width, key=keys[1])
        self.observation = normal_linear(spec.observation_shape[0], width, key=keys[2])
        self.action = normal_linear(spec.action_dim, width, key=keys[3])
        self.positions = 0.02 * jax.random.normal(keys[4], (window + 1, width))
        self.body = Transformer(width, layers, heads, dropout, key=keys[5])
        self.out = normal_linear(width, spec.action_dim, key=keys[6])

    def __call__(
        self,
        noisy: Float[Array, " action"],
        sigma: Float[Array, ""],
        seen: Segment,
        goal: Float[Array, " goal"],
        told: Float[Array, ""],
        key: Key,
    ) -> Float[Array, " action"]:
        level = self.level(jnp.log(sigma)[None] / 4)
        goal = told * (self.goal(goal) + self.positions[0])
        # Each action shares the position embedding of its state.
        states = jax.vmap(self.observation)(seen.observations) + self.positions[1:]
        actions = jnp.concatenate([seen.actions[:-1], noisy[None]])
        actions = jax.vmap(self.action)(actions) + self.positions[1:]
        steps = jnp.stack([states, actions], axis=1).reshape(-1, states.shape[1])
        tokens = jnp.concatenate([level[None], goal[None], steps])
        present = jnp.concatenate([jnp.ones(2, bool), jnp.repeat(seen.valid, 2)])
        return self.out(self.body(tokens, present, key)[-1])


ScoreNet = ScoreMLP | ScoreTransformer


class BesoPolicy(DiffusionPolicy):
    """Denoises an action; keeps the last `window` steps of the episode as memory between calls."""

    net: ScoreNet
    window: int = eqx.field(static=True)
    sigmas: tuple[float, ...] = eqx.field(static=True)
    sigma_data: float = eqx.field(static=True)
    guidance: float = eqx.field(static=True)
    temperature: float = eqx.field(static=True, default=1.0)

    def begin(self) -> Segment:
        """The empty memory at the start of an episode."""
        return Segment(
            observations=jnp.zeros((self.window, len(self.observation_normaliser.mean))),
            actions=jnp.zeros((self.window, len(self.actions.centre))),
            valid=jnp.zeros(self.window, bool),
        )

    def step(
        self,
        memory: Segment,
        observation: ArrayLike,
        goal: ArrayLike,
        horizon: Horizon = None,
        key: Key = None,
    ) -> tuple[Float[Array, " action"], Segment]:
        """Act on the memory and the current observation; return the action and the new memory."""
        key = require_key(key)
        now, wanted = self.inputs(observation, goal)
        blank = jnp.zeros_like(self.actions.centre)
        seen = jax.tree.map(_push, memory, Segment(now, blank, jnp.array(True)))
        denoise = self.denoiser(seen, wanted)
        noise = jax.random.normal(key, blank.shape)
        unit = ddim_sigmas(denoise, jnp.asarray(self.sigmas), noise, temperature=self.temperature)
        unit = jnp.clip(unit, -1.0, 1.0)
        return self.actions.from_unit(unit), seen._replace(actions=seen.actions.at[-1].set(unit))

    def denoiser(self, seen: Segment, goal: Float[Array, " goal"]) -> Any:
        """The guided denoiser; evaluates both conditions in one call with two rows."""
        told = jnp.array([1.0, 0.0]) if self.guidance != 1.0 else jnp.ones(1)

        def denoise(x: Float[Array, " action"], sigma: Float[Array, ""]) -> Float[Array, " action"]:
            def answer(told: Float[Array, ""]) -> Float[Array, " action"]:
                net = lambda scaled, sigma: self.net(scaled, sigma, seen, goal, told, None)  # noqa: E731
                return preconditioned(net, self.sigma_data)(x, sigma)

            answers = jax.vmap(answer)(told)
            return guide(answers[0], answers[-1], self.guidance)

        return denoise

    def act(
        self, observation: ArrayLike, goal: ArrayLike, horizon: Horizon = None, key: Key = None
    ) -> Float[Array, " action"]:
        """Act as in the first step of an episode, without memory."""
        return self.step(self.begin(), observation, goal, horizon, key)[0]


def _push(rows: Array, row: Array) -> Array:
    return jnp.concatenate([rows[1:], row[None]])


class BesoState(eqx.Module):
    """The network, a policy with its averaged weights, the optimiser state and the update count."""

    net: ScoreNet
    policy: BesoPolicy
    optimiser: optax.OptState
    step: Int32[Array, ""]


@final
@dataclass(frozen=True)
class Beso(Learner):
    """Score-based diffusion of single actions; defaults as in the release for Kitchen."""

    hindsight_ratio: float = tuned(1.0)  # fraction of goals relabelled with the episode's future
    backbone: str = "transformer"  # or mlp
    window: int = 4  # steps the transformer sees, including the current one
    width: int = 360  # token size
    layers: int = 6
    heads: int = 6
    attention_dropout: float = 0.3
    hidden: tuple[int, ...] = (256, 256, 256)  # of the MLP
    sampling_steps: int = 3
    sigma_min: float = 0.005
    sigma_max: float = 1.0
    sigma_data: float = 0.5
    goal_dropout: float = 0.1  # fraction of examples without a goal
    guidance: float = 1.5  # guidance scale; 1 disables it
    learning_rate: float = 1e-4
    decay_updates: int = 40_000  # over which the learning rate falls to 1.8 %
    weight_decay: float = 0.01
    average_decay: float = 0.999
    batch_size: int = 1024

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {
            "backbone": "mlp",
            "window": 1,
            "guidance": 6.0,
            "learning_rate": 1e-3,
            "decay_updates": 10_000,
            "batch_size": 512,
        }
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backbone not in BACKBONES:
            raise MerlinError(f"backbone: {self.backbone!r} is not {' or '.join(BACKBONES)}.")
        if self.backbone == "mlp" and self.window != 1:
            raise MerlinError(
                f"window: the mlp takes one state, not {self.window}; "
                "set window=1, or backbone=transformer."
            )
        check_sizes(
            self, "window", "width", "layers", "heads", "hidden", "sampling_steps", "decay_updates"
        )
        if self.width % self.heads:
            raise MerlinError(f"heads: the width {self.width} is not divisible by {self.heads}.")
        if not 0 < self.sigma_min < self.sigma_max < math.inf or not self.sigma_data > 0:
            raise MerlinError(
                "sigma_min, sigma_max, sigma_data: must be positive, sigma_min below sigma_max."
            )
        check_below_one(self, "goal_dropout", "attention_dropout", "average_decay")
        if self.guidance != 1.0 and self.goal_dropout == 0.0:
            raise MerlinError(
                "guidance: needs the unconditional prediction, which goal_dropout=0 never trains; "
                "set guidance=1, or goal_dropout above 0."
            )
        check_not_negative(self, "weight_decay")

    @property
    def sees_images(self) -> bool:
        return False

    @property
    def sampling(self) -> Sampling:
        return hindsight(self.hindsight_ratio, "pairs", behind=self.window)

    @property
    def optimiser(self) -> optax.GradientTransformation:
        return optax.adamw(self.learning_rate, weight_decay=self.weight_decay)

    def init(self, key: PRNGKeyArray, spec: Spec) -> BesoState:
        known = vector_inputs(spec, "beso")
        net: ScoreNet
        if self.backbone == "mlp":
            net = ScoreMLP(spec, self.hidden, key=key)
        else:
            sizes = (self.window, self.width, self.layers, self.heads)
            net = ScoreTransformer(spec, *sizes, self.attention_dropout, key=key)
        sigmas = exponential_sigmas(self.sampling_steps, self.sigma_min, self.sigma_max)
        policy = BesoPolicy(
            **known,
            net=net,
            window=self.window,
            sigmas=tuple(map(float, sigmas)),
            sigma_data=self.sigma_data,
            guidance=self.guidance,
        )
        return BesoState(net, policy, self.optimiser.init(net), jnp.int32(0))

    def update(
        self, state: BesoState, batch: Batch, key: PRNGKeyArray
    ) -> tuple[BesoState, Metrics]:
        loss, gradient = jax.value_and_grad(self.loss)(state.net, state.policy, batch, key)
        changes, optimiser = self.optimiser.update(gradient, state.optimiser, state.net)
        step = state.step.astype(jnp.float32)
        rate = jnp.float32(FINAL_RATE) ** jnp.minimum(step / self.decay_updates, 1.0)
        net = optax.apply_updates(state.net, jax.tree.map(lambda change: rate * change, changes))
        average = running_average(state.policy.net, net, state.step, decay=self.average_decay)
        policy = eqx.tree_at(lambda p: p.net, state.policy, average)
        return BesoState(net, policy, optimiser, state.step + 1), {"loss": loss}

    def policy(self, state: BesoState) -> BesoPolicy:
        return state.policy

    def loss(
        self, net: ScoreNet, policy: BesoPolicy, batch: Batch, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """Squared error of the preconditioned denoiser; differentiates `net` only."""
        assert batch.behind is not None
        noise_key, choice_key, net_key = jax.random.split(key, 3)
        window = batch.behind
        seen = Segment(
            jax.vmap(jax.vmap(policy.observation_normaliser))(window.observations),
            policy.actions.to_unit(window.actions),
            window.valid,
        )
        rows = len(batch.action)
        chance = jax.random.uniform(choice_key, (2, rows))
        sigma = log_logistic_sigma(
            chance[0],
            centre=self.sigma_data,
            scale=0.5,
            low=self.sigma_min,
            high=self.sigma_max,
        )
        noise = jax.random.normal(noise_key, batch.action.shape)
        told = (chance[1] >= self.goal_dropout).astype(jnp.float32)
        goal = jax.vmap(policy.goal_normaliser)(batch.goal)

        def one(
            seen: Segment, goal: Array, told: Array, sigma: Array, noise: Array, key: PRNGKeyArray
        ) -> Float[Array, ""]:
            # Earlier actions are clean, in training as at test time; only the last one is denoised.
            inner = lambda scaled, sigma: net(scaled, sigma, seen, goal, told, key)  # noqa: E731
            return denoising_loss(inner, seen.actions[-1], sigma, noise, self.sigma_data)

        keys = jax.random.split(net_key, rows)
        return jnp.mean(jax.vmap(one)(seen, goal, told, sigma, noise, keys))
