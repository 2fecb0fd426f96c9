"""The models of Merlin-P: a CVAE that proposes actions, and a GRU that predicts the next state.

Both process a trajectory as a sequence of states x_0, x_1, ... with actions in between, in the
direction of time chosen by the caller. In reverse, x_0 is the goal, the action at x_k is the one
that led to it, and the "next" state is the previous one. States and actions are standardised.
"""

from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from merlin.data.dataset import Dataset
from merlin.data.statistics import ROWS_AT_ONCE, moments_of
from merlin.nets.layers import CLIP, LEAST_STD, MLP, Linear, Normaliser, plain_normaliser

LEAST_RANGE = 2 * CLIP * LEAST_STD
"""Lower bound on the range of a dimension, matching the resolution of a policy's inputs. The
fingers of a closed gripper move by micrometres, which no model predicts."""
WINDOW = 100
"""Longer episodes are split into training windows of this many steps, at random positions."""


Memory = tuple[Float[Array, " width"], ...]
"""Hidden states of the recurrent layers."""


class Sequences(NamedTuple):
    """A dataset on the device, and the selected episodes in one direction of time."""

    observations: Float[Array, "states observation"]
    actions: Float[Array, "actions action"]
    starts: Int[Array, " bounds"]
    episodes: Int[Array, " episodes"]
    pairs: Int[Array, " pairs"]  # index of the first state of every step in these episodes


class Steps(NamedTuple):
    """Steps of one trajectory, in the models' direction of time."""

    states: Float[Array, "steps observation"]
    actions: Float[Array, "steps action"]
    nexts: Float[Array, "steps observation"]
    valid: Bool[Array, " steps"]


class Scales(eqx.Module):
    """Normalisers of states, actions and state differences."""

    state: Normaliser
    action: Normaliser
    difference: Normaliser
    difference_std: Float[Array, " observation"]

    def restore(self, difference: Float[Array, " observation"]) -> Float[Array, " observation"]:
        """Convert a standardised difference to the units of the states.

        Constant dimensions have standard deviation 0, so no prediction changes them.
        """
        return difference * self.difference_std + self.difference.mean


def scales_of(data: Dataset, forward: bool) -> Scales:
    """Moments of all recorded steps, in one direction of time."""
    differences = np.concatenate(list(_differences(data)))
    found = moments_of(differences if forward else -differences)
    return Scales(
        state=plain_normaliser(moments_of(data.observations)),
        action=plain_normaliser(moments_of(data.actions)),
        difference=plain_normaliser(found),
        difference_std=jnp.asarray(found.std),
    )


def _differences(data: Dataset) -> Iterator[np.ndarray]:
    last = np.zeros(len(data.observations), bool)
    last[data.starts[1:] - 1] = True
    for begin in range(0, len(data.observations) - 1, ROWS_AT_ONCE):
        piece = np.asarray(data.observations[begin : begin + ROWS_AT_ONCE + 1])
        yield np.diff(piece, axis=0)[~last[begin : begin + len(piece) - 1]]


def sequences(data: Dataset, episodes: Int[np.ndarray, " episodes"]) -> Sequences:
    """Select episodes for `window` and `step` to sample from."""
    steps = [np.arange(data.starts[e], data.starts[e + 1] - 1) for e in episodes]
    int32 = lambda x: jnp.asarray(np.asarray(x, np.int32))  # noqa: E731
    return Sequences(
        observations=jnp.asarray(data.observations),
        actions=jnp.asarray(data.actions),
        starts=int32(data.starts),
        episodes=int32(episodes),
        pairs=int32(np.concatenate(steps)),
    )


def window(
    rows: Sequences, episode: Int[Array, ""], steps: int, key: PRNGKeyArray, *, forward: bool
) -> Steps:
    """`steps` steps of an episode, at a random position if the episode is longer."""
    begin, end = rows.starts[episode], rows.starts[episode + 1]
    length = end - 1 - begin  # number of steps in the episode
    skipped = jax.random.randint(key, (), 0, jnp.maximum(length - steps, 0) + 1)
    wanted = skipped + jnp.arange(steps)
    step = jnp.minimum(wanted, length - 1)
    before = begin + step if forward else end - 2 - step  # index of the earlier state of the step
    earlier, later = rows.observations[before], rows.observations[before + 1]
    return Steps(
        states=earlier if forward else later,
        actions=rows.actions[before - episode],
        nexts=later if forward else earlier,
        valid=wanted < length,
    )


class Proposer(eqx.Module):
    """A conditional variational autoencoder over actions (Wang et al., 2021).

    The encoder maps the action taken in a state to a Gaussian over a latent space of twice the
    action's size. The decoder maps a state and a latent to an action. With latents from the
    standard Gaussian, it proposes actions as diverse as those in the data.
    """

    scales: Scales
    encoder: MLP
    decoder: MLP
    action_centre: Float[Array, " action"]
    action_half: Float[Array, " action"]

    def encode(self, state: Array, action: Array) -> tuple[Array, Array]:
        """Mean and log standard deviation of the latent."""
        inputs = jnp.concatenate([self.scales.state(state), self.scales.action(action)])
        mean, log_std = jnp.split(self.encoder(inputs), 2)
        return mean, jnp.clip(log_std, -4.0, 15.0)

    def decode(self, state: Array, latent: Array) -> Float[Array, " action"]:
        """Decode an action within its bounds."""
        raw = self.decoder(jnp.concatenate([self.scales.state(state), latent]))
        return self.action_centre + self.action_half * jnp.tanh(raw)

    def loss(
        self, state: Array, action: Array, kl_weight: float, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """Squared reconstruction error plus the weighted KL divergence from the prior.

        Both are means over dimensions; actions are scaled by half their range.
        """
        mean, log_std = self.encode(state, action)
        latent = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)
        error = (action - self.decode(state, latent)) / self.action_half
        divergence = 0.5 * (mean**2 + jnp.exp(2 * log_std) - 1) - log_std
        return jnp.mean(error**2) + kl_weight * jnp.mean(divergence)


def make_proposer(
    data: Dataset, scales: Scales, hidden: tuple[int, ...], key: PRNGKeyArray
) -> Proposer:
    one, other = jax.random.split(key)
    state, action = data.observations.shape[1], data.actions.shape[1]
    low, high = np.asarray(data.action_low), np.asarray(data.action_high)
    return Proposer(
        scales=scales,
        encoder=MLP(state + action, hidden, 4 * action, key=one),
        decoder=MLP(state + 2 * action, hidden, action, key=other),
        action_centre=jnp.asarray((high + low) / 2),
        action_half=jnp.asarray((high - low) / 2),
    )


class Dynamics(eqx.Module):
    """GRU layers (Cho et al., 2014) with a linear head that predicts the change of the state.

    With Equinox's cell, a gradient takes 28 ms instead of 30 ms with a fused input product, but a
    step of 1,024 rollouts takes 14 ms instead of 8 ms. Gradients far outnumber rollout steps.
    """

    scales: Scales
    layers: tuple[eqx.nn.GRUCell, ...]
    head: Linear

    def empty(self) -> Memory:
        """The hidden state before the first step."""
        return tuple(jnp.zeros(layer.hidden_size) for layer in self.layers)

    def step(
        self, memory: Memory, state: Array, action: Array
    ) -> tuple[Memory, Float[Array, " observation"]]:
        """The hidden state after a step, and the predicted next state."""
        inputs = self._inputs(state, action)
        memory, features = self._remember(memory, inputs)
        change = self.head(jnp.concatenate([features, inputs]))
        return memory, state + self.scales.restore(change)

    def differences(
        self, states: Float[Array, "steps observation"], actions: Float[Array, "steps action"]
    ) -> Float[Array, "steps observation"]:
        """Predicted standardised differences along a recorded trajectory."""
        inputs = self._inputs(states, actions)
        remember = lambda memory, x: self._remember(memory, x)  # noqa: E731
        features = jax.lax.scan(remember, self.empty(), inputs)[1]
        return jax.vmap(self.head)(jnp.concatenate([features, inputs], -1))

    def _inputs(self, states: Array, actions: Array) -> Array:
        return jnp.concatenate([self.scales.state(states), self.scales.action(actions)], -1)

    def _remember(self, memory: Memory, features: Array) -> tuple[Memory, Array]:
        """The hidden state after one more input, and the features of the last layer."""
        after = []
        for layer, known in zip(self.layers, memory, strict=True):
            features = layer(features, known)
            after.append(features)
        return tuple(after), features

    def loss(self, steps: Steps) -> Float[Array, ""]:
        """Squared error of the differences, summed over steps and averaged over dimensions."""
        target = self.scales.difference(steps.nexts - steps.states)
        error = target - self.differences(steps.states, steps.actions)
        return jnp.sum(jnp.where(steps.valid, jnp.mean(error**2, -1), 0.0))


def make_dynamics(
    data: Dataset, scales: Scales, width: int, layers: int, key: PRNGKeyArray
) -> Dynamics:
    state, action = data.observations.shape[1], data.actions.shape[1]
    *keys, head_key = jax.random.split(key, layers + 1)
    sizes = [state + action] + [width] * (layers - 1)
    return Dynamics(
        scales=scales,
        layers=tuple(eqx.nn.GRUCell(i, width, key=k) for i, k in zip(sizes, keys, strict=True)),
        head=Linear(width + state + action, state, key=head_key),
    )


def range_of(rows: np.ndarray, margin: float) -> tuple[np.ndarray, np.ndarray]:
    """Minimum and maximum per dimension, widened by a fraction of the range."""
    pieces = [rows[begin : begin + ROWS_AT_ONCE] for begin in range(0, len(rows), ROWS_AT_ONCE)]
    low = np.min([piece.min(0) for piece in pieces], axis=0)
    high = np.max([piece.max(0) for piece in pieces], axis=0)
    # Allow for rounding in dimensions that are constant in the data.
    slack = margin * np.maximum(high - low, LEAST_RANGE) + 1e-6 * np.maximum(abs(low), abs(high))
    return low - slack, high + slack
