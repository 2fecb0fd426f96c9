"""The models of Merlin-P: a CVAE that proposes actions, a GRU that predicts the next state.

Both see a trajectory as a sequence of states x_0, x_1, ... with the actions between them, in
whichever direction of time the caller has laid it out. Backwards, x_0 is the goal, the action is
the one that led to x_k, and "next" is what came before. States and actions enter standardised.
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
from merlin.nets.layers import MLP, Linear, Normaliser, plain_normaliser

WINDOW = 100
"""Longer episodes are trained on in windows of so many steps, from anywhere in them."""


Memory = tuple[Float[Array, " width"], ...]
"""What each recurrent layer remembers of a trajectory."""


class Sequences(NamedTuple):
    """A dataset on the device and the episodes of it that are meant, in one direction of time."""

    observations: Float[Array, "states observation"]
    actions: Float[Array, "actions action"]
    starts: Int[Array, " bounds"]
    episodes: Int[Array, " episodes"]
    pairs: Int[Array, " pairs"]  # the first state of every step of these episodes


class Steps(NamedTuple):
    """Steps of one trajectory, in the direction of the models."""

    states: Float[Array, "steps observation"]
    actions: Float[Array, "steps action"]
    nexts: Float[Array, "steps observation"]
    valid: Bool[Array, " steps"]


class Scales(eqx.Module):
    """What standardises states, actions and differences of states."""

    state: Normaliser
    action: Normaliser
    difference: Normaliser
    difference_std: Float[Array, " observation"]

    def restore(self, difference: Float[Array, " observation"]) -> Float[Array, " observation"]:
        """A standardised difference in the states' own units.

        Dimensions that never change have the deviation 0, so that no prediction moves them.
        """
        return difference * self.difference_std + self.difference.mean


def scales_of(data: Dataset, forward: bool) -> Scales:
    """The moments of all recorded steps, seen in one direction of time."""
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
    """Some of the episodes, for `window` and `step` to draw from."""
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
    """`steps` steps of an episode, anywhere in it if it is longer."""
    begin, end = rows.starts[episode], rows.starts[episode + 1]
    length = end - 1 - begin  # steps that there are
    skipped = jax.random.randint(key, (), 0, jnp.maximum(length - steps, 0) + 1)
    wanted = skipped + jnp.arange(steps)
    step = jnp.minimum(wanted, length - 1)
    before = begin + step if forward else end - 2 - step  # the earlier state of the step
    earlier, later = rows.observations[before], rows.observations[before + 1]
    return Steps(
        states=earlier if forward else later,
        actions=rows.actions[before - episode],
        nexts=later if forward else earlier,
        valid=wanted < length,
    )


class Proposer(eqx.Module):
    """A conditional variational autoencoder over actions (Wang et al., 2021).

    The encoder compresses the action that was taken at a state to a Gaussian in a latent space of
    twice its size; the decoder makes an action of a state and a latent. Fed with latents from the
    standard Gaussian it proposes actions as various as those of the data.
    """

    scales: Scales
    encoder: MLP
    decoder: MLP
    action_centre: Float[Array, " action"]
    action_half: Float[Array, " action"]

    def encode(self, state: Array, action: Array) -> tuple[Array, Array]:
        """Mean and log deviation of the latent."""
        inputs = jnp.concatenate([self.scales.state(state), self.scales.action(action)])
        mean, log_std = jnp.split(self.encoder(inputs), 2)
        return mean, jnp.clip(log_std, -4.0, 15.0)

    def decode(self, state: Array, latent: Array) -> Float[Array, " action"]:
        """An action within its bounds."""
        raw = self.decoder(jnp.concatenate([self.scales.state(state), latent]))
        return self.action_centre + self.action_half * jnp.tanh(raw)

    def loss(
        self, state: Array, action: Array, kl_weight: float, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """Squared error of the reconstruction plus the weighted divergence from the prior.

        Both are means over their dimensions, and actions count in units of half their range.
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
    """GRU layers (Cho et al., 2014) and a linear head: how the state changes from step to step.

    With Equinox' cell a gradient takes 28 ms where one product for all inputs took 30 ms, but a
    step of 1,024 rollouts 14 ms instead of 8; there are many more gradients than such steps.
    """

    scales: Scales
    layers: tuple[eqx.nn.GRUCell, ...]
    head: Linear

    def empty(self) -> Memory:
        """What is remembered before the first step."""
        return tuple(jnp.zeros(layer.hidden_size) for layer in self.layers)

    def step(
        self, memory: Memory, state: Array, action: Array
    ) -> tuple[Memory, Float[Array, " observation"]]:
        """What is remembered after a step, and the state that it leads to."""
        inputs = self._inputs(state, action)
        memory, features = self._remember(memory, inputs)
        change = self.head(jnp.concatenate([features, inputs]))
        return memory, state + self.scales.restore(change)

    def differences(
        self, states: Float[Array, "steps observation"], actions: Float[Array, "steps action"]
    ) -> Float[Array, "steps observation"]:
        """Standardised predicted differences along a recorded trajectory."""
        inputs = self._inputs(states, actions)
        remember = lambda memory, x: self._remember(memory, x)  # noqa: E731
        features = jax.lax.scan(remember, self.empty(), inputs)[1]
        return jax.vmap(self.head)(jnp.concatenate([features, inputs], -1))

    def _inputs(self, states: Array, actions: Array) -> Array:
        return jnp.concatenate([self.scales.state(states), self.scales.action(actions)], -1)

    def _remember(self, memory: Memory, features: Array) -> tuple[Memory, Array]:
        """What is remembered after one more input, and the features of the last layer."""
        after = []
        for layer, known in zip(self.layers, memory, strict=True):
            features = layer(features, known)
            after.append(features)
        return tuple(after), features

    def loss(self, steps: Steps) -> Float[Array, ""]:
        """Summed over steps, averaged over dimensions: squared error of the difference."""
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
