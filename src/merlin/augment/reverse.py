"""Merlin-P: synthetic trajectories from reverse rollouts of learned models.

Jain and Ravanbakhsh, "Learning to Reach Goals via Diffusion" (ICML 2024), section 5.1.

A reverse policy proposes an action that may have led to a state, and a reverse dynamics model
predicts the state in which it was taken. Repeating this from the last state of an episode gives a
rollout that leads away from the goal, the forward process of the diffusion. The reverse policy is a
CVAE. The dynamics model is a GRU that reads the trajectory from its end and predicts state
differences (`models.py`). Rollouts that leave the range of the data or are not finite are dropped.
The forward variant rolls out from first states.

Model errors accumulate along a rollout. By default rollouts are therefore short: they branch off at
a random recorded state, and the rest of the trajectory is recorded. Minibatches contain generated
transitions only; the rest provides their goals. The less of the variance of one-step differences
the model explains on held-out episodes, the shorter they are: k steps may leave
k (1 - explained) <= `max_error` of it unexplained. With `rollout_steps=None` and `max_error=None`,
rollouts span whole episodes.

The models need vectors; images are replaced by latents (`latents.py`).
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from merlin.augment.base import (
    Augmentation,
    Augmented,
    assemble,
    check_settings,
    find_phi,
    require_vectors,
    say_if_fewer,
)
from merlin.augment.fit import fit, updates_of
from merlin.augment.models import (
    WINDOW,
    Dynamics,
    Proposer,
    Sequences,
    make_dynamics,
    make_proposer,
    range_of,
    scales_of,
    sequences,
    window,
)
from merlin.data.dataset import Dataset
from merlin.errors import MerlinError
from merlin.io.progress import Progress
from merlin.nets.layers import cosine_decay

ROLLOUTS_AT_ONCE = 1024


@dataclass(frozen=True)
class Rollouts(Augmentation):
    """Trajectories from rollouts of learned models (Merlin-P)."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {
            "rollout_steps": None,
            "max_error": None,
            "kl_weight": 1.0,
            "dynamics_batch": 256,
            "state_noise": 0.0,
            "model_max_updates": None,
            "dynamics_max_updates": None,
            "dynamics_learning_rate": 3e-4,
            "decay": False,
        },
        "release": {
            "rollout_steps": None,
            "max_error": None,
            "final_goals": True,
            "model_max_updates": None,
            "dynamics_max_updates": None,
            "dynamics_layers": 2,
            "dynamics_batch": 256,
            "model_learning_rate": 1e-3,
            "dynamics_learning_rate": 1e-3,
            "decay": False,
            "model_epochs": 100,
            "kl_weight": 0.5,
            "latent_scale": 1e-3,
            "state_noise": 0.0,
        },
    }

    trajectories: int | None = None  # to make; none: as many as recorded, at most 10,000
    rollout_steps: int | None = 10  # longest rollout; none: whole episodes, from their end
    max_error: float | None = 0.2  # of a rollout, in variances of one step; none: no limit
    final_goals: bool = False  # use the last state as the desired goal, as in the release
    proposer_hidden: tuple[int, ...] = (256, 256)
    kl_weight: float = 0.05
    latent_scale: float = 1.0  # standard deviation of the sampled latents
    dynamics_width: int = 256
    dynamics_layers: int = 1
    dynamics_learning_rate: float = 3e-3
    model_learning_rate: float = 3e-4  # of the reverse policy
    decay: bool = True  # of both learning rates, along a cosine to zero
    model_epochs: int = 20
    model_batch: int = 256  # transitions per minibatch of the reverse policy
    model_max_updates: int | None = 40_000
    dynamics_batch: int = 32  # trajectories per minibatch of the dynamics model
    dynamics_max_updates: int | None = 10_000
    state_noise: float = 0.1  # on the model's input states, in deviations of differences
    held_out: float = 0.05  # fraction of episodes used to evaluate the dynamics model
    margin: float = 0.05  # how far rollouts may leave the data's range, as a fraction of it
    attempts: int = 10  # limit on the rollouts per requested trajectory
    forward: bool = False  # roll out forwards from first states

    def __post_init__(self) -> None:
        counts = [self.dynamics_width, self.dynamics_layers, self.model_epochs, self.model_batch]
        counts += [self.dynamics_batch, self.attempts, *self.proposer_hidden]
        counts += [len(self.proposer_hidden)]
        limits = self.model_max_updates, self.dynamics_max_updates
        counts += [n for n in (*limits, self.trajectories, self.rollout_steps) if n is not None]
        check_settings(self, counts, ("model_learning_rate", "dynamics_learning_rate"))
        for name in ("kl_weight", "latent_scale", "state_noise", "margin", "max_error"):
            value = vars(self)[name]
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise MerlinError(f"{name}: {value} is not a non-negative number.")
        if not 0 <= self.held_out < 1:
            raise MerlinError(f"held_out: {self.held_out} is not a fraction below 1.")

    @property
    def sees_images(self) -> bool:
        return False

    def __call__(self, data: Dataset, *, seed: int, quiet: bool = True) -> Augmented:
        require_vectors(data, "models of states")
        phi = list(find_phi(data))
        proposer, dynamics, report = self.fit(data, seed=seed, quiet=quiet)
        steps = self._trusted_steps(data, report.get("explained_variance"))
        states, actions, lengths, made = self.roll_out(
            data, proposer, dynamics, steps, seed=seed, quiet=quiet
        )
        achieved = np.asarray(states[..., phi], np.float32)
        whole = self.rollout_steps is None or self.forward
        dataset = assemble(
            *(data, states, actions, achieved, lengths),
            final_goals=self.final_goals,
            drawn_steps=None if whole else steps,
        )
        return Augmented(dataset, {**made, **report})

    def fit(
        self, data: Dataset, *, seed: int, quiet: bool = True
    ) -> tuple[Proposer, Dynamics, dict[str, Any]]:
        """Train both models, and evaluate the dynamics model on held-out episodes."""
        keys = jax.random.split(jax.random.key(seed), 4)
        order = np.random.default_rng((seed, 2)).permutation(len(data))
        held = min(math.ceil(self.held_out * len(data)), len(data) - 1)
        rows = sequences(data, np.sort(order[held:]))
        scales = scales_of(data, self.forward)
        direction = "forward" if self.forward else "reverse"
        policy_updates = updates_of(
            self.model_epochs, len(rows.pairs), self.model_batch, self.model_max_updates
        )
        proposer, proposer_loss = fit(
            self._proposer_loss,
            make_proposer(data, scales, self.proposer_hidden, keys[0]),
            rows,
            part=lambda model: (model.encoder, model.decoder),
            updates=policy_updates,
            learning_rate=self._schedule(self.model_learning_rate, policy_updates),
            key=keys[1],
            label=f"{direction} policy",
            quiet=quiet,
        )
        longest = min(self._steps(data), WINDOW)
        updates = self._dynamics_updates(data.lengths[order[held:]] - 1, longest)
        dynamics, dynamics_loss = fit(
            lambda model, rows, key: self._dynamics_loss(model, rows, longest, key),
            make_dynamics(data, scales, self.dynamics_width, self.dynamics_layers, keys[2]),
            rows,
            part=lambda model: (model.layers, model.head),
            updates=updates,
            learning_rate=self._schedule(self.dynamics_learning_rate, updates),
            key=keys[3],
            label=f"{direction} dynamics",
            quiet=quiet,
        )
        report = {"policy_loss": proposer_loss, "dynamics_loss": dynamics_loss}
        if held:
            explained, variance = self.explained(dynamics, data, np.sort(order[:held]))
            # Of the total variance, in the units of the states. A mean over dimensions would give
            # dimensions that hardly move, like closed fingers, equal weight.
            report["explained_variance"] = float(explained @ variance / variance.sum())
            report["mean_explained_variance"] = float(explained.mean())
            report["least_explained_variance"] = float(explained.min())
        return proposer, dynamics, report

    def _trusted_steps(self, data: Dataset, explained: float | None) -> int:
        """The length of a rollout, at least 1; the longest if the model has not been evaluated."""
        most = self._steps(data)
        if self.max_error is None or explained is None or explained >= 1.0:
            return most
        return int(min(most, max(1.0, self.max_error / (1.0 - explained))))

    def _steps(self, data: Dataset) -> int:
        """The length of the longest rollout."""
        most = int(data.lengths.max()) - 1
        return most if self.rollout_steps is None else min(most, self.rollout_steps)

    def _dynamics_updates(self, steps: Int[np.ndarray, " episodes"], longest: int) -> int:
        """In an epoch every step is seen once, so a long episode counts as several windows."""
        windows = int(np.ceil(steps / longest).sum())
        most = self.dynamics_max_updates
        return updates_of(self.model_epochs, windows, self.dynamics_batch, most)

    def _schedule(self, rate: float, updates: int) -> optax.ScalarOrSchedule:
        return cosine_decay(rate, updates) if self.decay else rate

    def _proposer_loss(
        self, model: Proposer, rows: Sequences, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        draw, noise = jax.random.split(key)
        first = rows.pairs[jax.random.randint(draw, (self.model_batch,), 0, len(rows.pairs))]
        episode = jnp.searchsorted(rows.starts, first, side="right").astype(jnp.int32) - 1
        states = rows.observations[first if self.forward else first + 1]
        actions = rows.actions[first - episode]
        keys = jax.random.split(noise, self.model_batch)
        each = jax.vmap(model.loss, (0, 0, None, 0))(states, actions, self.kl_weight, keys)
        return jnp.mean(each)

    def _dynamics_loss(
        self, model: Dynamics, rows: Sequences, steps: int, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        draw, noise, *keys = jax.random.split(key, self.dynamics_batch + 2)
        chosen = jax.random.randint(draw, (self.dynamics_batch,), 0, len(rows.episodes))
        cut = lambda e, k: window(rows, e, steps, k, forward=self.forward)  # noqa: E731
        windows = jax.vmap(cut)(rows.episodes[chosen], jnp.stack(keys))
        # Noise on the inputs: a model trained on exact states alone does not recover from errors.
        amount = self.state_noise * model.scales.difference_std
        astray = windows.states + amount * jax.random.normal(noise, windows.states.shape)
        windows = windows._replace(states=astray)
        count = jnp.sum(windows.valid).astype(jnp.float32)
        return jnp.sum(jax.vmap(model.loss)(windows)) / count

    def explained(
        self, dynamics: Dynamics, data: Dataset, episodes: Int[np.ndarray, " episodes"]
    ) -> tuple[Float[np.ndarray, " moving"], Float[np.ndarray, " moving"]]:
        """The explained fraction and the size of the variance of one-step differences.

        Computed per dimension, for dimensions that change.
        """
        rows = sequences(data, episodes)
        steps = min(self._steps(data), WINDOW)

        @jax.jit
        def compare(rows: Sequences, episode: Array) -> tuple[Array, Array]:
            seen = window(rows, episode, steps, jax.random.key(0), forward=self.forward)
            target = dynamics.scales.difference(seen.nexts - seen.states)
            valid = seen.valid[:, None].astype(jnp.float32)
            error = target - dynamics.differences(seen.states, seen.actions)
            sums = jnp.stack([(error**2 * valid).sum(0), (target * valid).sum(0)])
            return jnp.concatenate([sums, (target**2 * valid).sum(0)[None]]), valid.sum()

        sums, counts = zip(*(compare(rows, episode) for episode in rows.episodes), strict=True)
        count = float(sum(counts))
        error, total, square = np.sum([np.asarray(s, np.float64) for s in sums], 0) / count
        variance = square - total**2
        moving = variance > 1e-8  # relative to a deviation of 1; excludes constant dimensions
        if not moving.any():
            return np.ones(1), np.ones(1)
        unit = 1.0 / np.asarray(dynamics.scales.difference.scale, np.float64)[moving]
        return 1.0 - error[moving] / variance[moving], variance[moving] * unit**2

    def roll_out(
        self,
        data: Dataset,
        proposer: Proposer,
        dynamics: Dynamics,
        steps: int,
        *,
        seed: int,
        quiet: bool,
    ) -> tuple[np.ndarray, np.ndarray, Int[np.ndarray, " trajectories"], dict[str, Any]]:
        """States and actions of the requested number of valid trajectories, in chronological order.

        Each consists of a rollout and the recorded part of the episode from which it branched off.
        """
        wanted = self.wanted(data)
        rng = np.random.default_rng((seed, 3))
        key = jax.random.fold_in(jax.random.key(seed), 4)
        low, high = range_of(data.observations, self.margin)
        # The models are arguments, since XLA would spend seconds on folding constants.
        roll = lambda p, d, s, k: self._roll(p, d, s, steps, k)  # noqa: E731
        many = eqx.filter_jit(eqx.filter_vmap(roll, in_axes=(None, None, 0, 0)))
        states, actions, lengths = [], [], []
        kept = tried = outside = broken = 0
        at_once = min(wanted, ROLLOUTS_AT_ONCE)
        direction = "forward" if self.forward else "reverse"
        with Progress(f"{direction} rollouts", wanted, "trajectories", quiet=quiet) as bar:
            while kept < wanted and tried < self.attempts * wanted:
                episodes = rng.integers(len(data), size=at_once)
                size = np.minimum(data.lengths[episodes] - 1, steps)
                rows = self._branches(data, episodes, size, rng)
                keys = jax.random.split(jax.random.fold_in(key, tried), at_once)
                walked, acted = map(
                    np.asarray, many(proposer, dynamics, jnp.asarray(data.observations[rows]), keys)
                )
                beyond = np.arange(steps + 1) > size[:, None]
                finite = (np.isfinite(walked).all(2) | beyond).all(1)
                with np.errstate(invalid="ignore"):
                    inside = ((walked >= low) & (walked <= high)).all(2) | beyond
                good = finite & inside.all(1)
                tried, broken = tried + at_once, broken + int((~finite).sum())
                outside += int((finite & ~good).sum())
                for index in np.flatnonzero(good)[: wanted - kept]:
                    made = walked[index, 1 : size[index] + 1], acted[index, : size[index]]
                    path, moves = self._whole(data, int(episodes[index]), int(rows[index]), *made)
                    states.append(path)
                    actions.append(moves)
                    lengths.append(len(path))
                kept = len(lengths)
                bar.update(kept)
        if not kept:
            raise MerlinError(
                f"rollouts: all {tried} left the range of the data; train the model for more "
                "model_epochs, allow a larger margin, or augment by stitching."
            )
        advice = "train for more model_epochs, or allow more attempts or a larger margin."
        say_if_fewer(kept, wanted, tried, advice=advice, quiet=quiet)
        report = {
            "trajectories": kept,
            "wanted": wanted,
            "rollouts": tried,
            "rollout_steps": steps,
            "dropped": (outside + broken) / tried,
            "dropped_outside": outside / tried,
            "dropped_not_finite": broken / tried,
        }
        return np.concatenate(states), np.concatenate(actions), np.array(lengths), report

    def _branches(
        self,
        data: Dataset,
        episodes: Int[np.ndarray, " n"],
        size: Int[np.ndarray, " n"],
        rng: np.random.Generator,
    ) -> Int[np.ndarray, " n"]:
        """Random start rows for rollouts of a given length, such that none outgrows its episode.

        Backwards, a generated step is as likely as the recorded one in its place: the earlier of
        two states drawn uniformly from an episode.
        """
        first, last = data.starts[episodes], data.starts[episodes + 1] - 1
        if self.rollout_steps is None:
            return first if self.forward else last
        if self.forward:
            return first + rng.integers(data.lengths[episodes] - size)
        one, other = rng.integers(data.lengths[episodes], size=(2, len(episodes)))
        after = np.minimum(one, other) + 1 + rng.integers(size)
        return first + np.clip(after, size, last - first)

    def _whole(
        self, data: Dataset, episode: int, row: int, states: np.ndarray, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Join a rollout to the recorded steps at its start row, in chronological order."""
        first, end = data.starts[episode], data.starts[episode + 1]
        if self.forward:
            seen, moves = (
                data.observations[first : row + 1],
                data.actions[first - episode : row - episode],
            )
            return np.concatenate([seen, states]), np.concatenate([moves, actions])
        seen, moves = data.observations[row:end], data.actions[row - episode : end - 1 - episode]
        return np.concatenate([states[::-1], seen]), np.concatenate([actions[::-1], moves])

    def _roll(
        self, proposer: Proposer, dynamics: Dynamics, state: Array, steps: int, key: PRNGKeyArray
    ) -> tuple[Float[Array, "states observation"], Float[Array, "steps action"]]:
        """One rollout in the models' direction of time."""
        latents = 2 * len(proposer.action_centre)

        def body(carry: tuple[Any, Array], key: PRNGKeyArray) -> tuple[Any, tuple[Array, Array]]:
            memory, state = carry
            latent = self.latent_scale * jax.random.normal(key, (latents,))
            action = proposer.decode(state, latent)
            memory, state = dynamics.step(memory, state, action)
            return (memory, state), (state, action)

        start = (dynamics.empty(), state)
        _, (states, actions) = jax.lax.scan(body, start, jax.random.split(key, steps))
        return jnp.concatenate([state[None], states]), actions
