"""Diffusion: noise schedules, denoising losses and samplers, as pure functions.

The module supports the two common formulations.

In discrete time (Ho et al., "Denoising Diffusion Probabilistic Models", 2020), a sample x is mixed
with noise at steps k = 0 .. N - 1,

    x_k = signal_k x + noise_k epsilon,    signal^2 + noise^2 = 1,

and a network predicts epsilon. Sampling runs from k = N - 1 down, with fresh noise at every step
(`ddpm`) or with initial noise only (`ddim`; Song et al., "Denoising Diffusion Implicit Models",
2021).

With continuous noise levels (Karras et al., "Elucidating the Design Space of Diffusion-Based
Generative Models", 2022), noise of standard deviation sigma is added, x + sigma epsilon, and a
denoiser D recovers the clean sample. D scales the input and output of a network such that both have
unit variance for every sigma (`precondition`).

All functions are unbatched; use `jax.vmap`. Samplers take their noise as an argument, so callers
can draw all of it at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

Predict = Callable[[Array, Array], Array]
"""Maps a noisy sample and its step to the noise in it."""
Denoise = Callable[[Array, Array], Array]
"""Maps a noisy sample and its sigma to the clean sample."""

Numbers = Float[np.ndarray, " steps"] | Float[Array, " steps"]


class Chain(NamedTuple):
    """A forward process of N steps, with its posterior given the clean sample.

    Given the clean sample x, the sample before x_k is Gaussian with mean
    `clean_weight` x + `noisy_weight` x_k and standard deviation `deviation`.
    """

    signal: Numbers
    noise: Numbers
    clean_weight: Numbers
    noisy_weight: Numbers
    deviation: Numbers

    @property
    def steps(self) -> int:
        return len(self.signal)


def cosine_betas(steps: int, offset: float = 0.008, limit: float = 0.999) -> np.ndarray:
    """The cosine schedule of Nichol and Dhariwal (2021)."""
    time = (np.arange(steps + 1) / steps + offset) / (1 + offset)
    signal = np.cos(time * np.pi / 2) ** 2
    return np.clip(1 - signal[1:] / signal[:-1], 0, limit)


def variance_preserving_betas(steps: int, low: float = 0.1, high: float = 10.0) -> np.ndarray:
    """The variance-preserving process discretised into few steps (Xiao et al., 2022)."""
    step = np.arange(1, steps + 1)
    return 1 - np.exp(-low / steps - (high - low) * (2 * step - 1) / (2 * steps**2))


def make_chain(betas: np.ndarray) -> Chain:
    """Build the process that replaces the fraction beta_k of the variance with noise at step k."""
    left = np.cumprod(1 - betas)
    before = np.concatenate([[1.0], left[:-1]])
    columns = (
        np.sqrt(left),
        np.sqrt(1 - left),
        betas * np.sqrt(before) / (1 - left),
        (1 - before) * np.sqrt(1 - betas) / (1 - left),
        np.sqrt(betas * (1 - before) / (1 - left)),
    )
    return Chain(*(column.astype(np.float32) for column in columns))


def exponential_sigmas(steps: int, low: float, high: float) -> Float[np.ndarray, " sigmas"]:
    """Sigmas from high to low, geometrically spaced, followed by 0."""
    return np.append(np.geomspace(high, low, steps), 0.0).astype(np.float32)


def log_logistic_sigma(
    uniform: Float[Array, "..."], *, centre: float, scale: float, low: float, high: float
) -> Float[Array, "..."]:
    """Quantiles of a log-logistic distribution around `centre`, truncated to [low, high]."""
    bounds = np.array([low, high])
    first, last = 1 / (1 + np.exp(-(np.log(bounds) - np.log(centre)) / scale))
    share = np.float32(first) + uniform * np.float32(last - first)
    sigma = jnp.exp(jnp.log(share) - jnp.log1p(-share)) ** scale * centre
    return jnp.clip(sigma, low, high)


def add_noise(
    chain: Chain, x: Float[Array, "*shape"], step: Int[Array, ""], noise: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """The noisy sample at a step of the forward process."""
    return jnp.asarray(chain.signal)[step] * x + jnp.asarray(chain.noise)[step] * noise


def noise_prediction_loss(
    predict: Predict,
    chain: Chain,
    x: Float[Array, "*shape"],
    step: Int[Array, ""],
    noise: Float[Array, "*shape"],
    weight: Float[Array, "..."] | float = 1.0,
) -> Float[Array, ""]:
    """Mean squared error of the predicted noise, with optional weights per element."""
    error = predict(add_noise(chain, x, step, noise), step) - noise
    return jnp.mean(weight * error**2)


def precondition(
    sigma: Float[Array, ""], sigma_data: float
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """The skip, output and input scales of the preconditioned denoiser.

    D(x) = skip x + out net(in x). The scales keep the network's input and target at unit variance
    for data with standard deviation `sigma_data`.
    """
    total = sigma**2 + sigma_data**2
    return sigma_data**2 / total, sigma * sigma_data / jnp.sqrt(total), 1 / jnp.sqrt(total)


def preconditioned(
    net: Callable[[Array, Array], Array], sigma_data: float
) -> Callable[[Float[Array, "*shape"], Float[Array, ""]], Float[Array, "*shape"]]:
    """The denoiser built from a network `net(scaled sample, sigma)`."""

    def denoise(x: Float[Array, "*shape"], sigma: Float[Array, ""]) -> Float[Array, "*shape"]:
        skip, out, scale = precondition(sigma, sigma_data)
        return skip * x + out * net(scale * x, sigma)

    return denoise


def denoising_loss(
    net: Callable[[Array, Array], Array],
    x: Float[Array, "*shape"],
    sigma: Float[Array, ""],
    noise: Float[Array, "*shape"],
    sigma_data: float,
) -> Float[Array, ""]:
    """Squared error of the network's output: the denoiser's error, divided by its output scale."""
    skip, out, scale = precondition(sigma, sigma_data)
    noisy = x + sigma * noise
    return jnp.mean((net(scale * noisy, sigma) - (x - skip * noisy) / out) ** 2)


def guide(
    conditional: Float[Array, "*shape"], unconditional: Float[Array, "*shape"], strength: float
) -> Float[Array, "*shape"]:
    """Classifier-free guidance: extrapolate from the unconditional prediction beyond the other."""
    return unconditional + strength * (conditional - unconditional)


def _unchanged(x: Array) -> Array:
    return x


def ddpm(
    predict: Predict,
    chain: Chain,
    noise: Float[Array, "steps *shape"],
    *,
    temperature: float = 1.0,
    limit: float | Array = np.inf,
    impose: Callable[[Array], Array] = _unchanged,
) -> Float[Array, "*shape"]:
    """Ancestral sampling from the posterior of every step.

    `noise` has one row of standard normal noise per step: the first starts the chain and the others
    are added after each step but the last. All are scaled by the temperature. Clean samples are
    clipped to [-limit, limit]. `impose` writes known values into the sample before each prediction
    and at the end.
    """
    noise = temperature * noise
    fresh = jnp.concatenate([noise[1:], jnp.zeros_like(noise[:1])])

    def body(x: Array, inputs: tuple[Array, Array, Any]) -> tuple[Array, None]:
        step, fresh, at = inputs
        clean = jnp.clip((x - at.noise * predict(x, step)) / at.signal, -limit, limit)
        x = at.clean_weight * clean + at.noisy_weight * x + at.deviation * fresh
        return impose(x), None

    backwards = Chain(*(jnp.asarray(column[::-1]) for column in chain))
    steps = jnp.arange(chain.steps - 1, -1, -1)
    return jax.lax.scan(body, impose(noise[0]), (steps, fresh, backwards))[0]


def ddim(
    predict: Predict,
    chain: Chain,
    noise: Float[Array, "*shape"],
    *,
    steps: int,
    temperature: float = 1.0,
    limit: float | Array = np.inf,
    impose: Callable[[Array], Array] = _unchanged,
) -> Float[Array, "*shape"]:
    """Sample in `steps` evenly spaced steps of the chain, with initial noise only."""
    visited = np.linspace(chain.steps - 1, 0, steps).round().astype(np.int32)
    following = np.append(visited[1:], -1)
    signal_after = np.where(following < 0, 1, chain.signal[following]).astype(np.float32)
    noise_after = np.where(following < 0, 0, chain.noise[following]).astype(np.float32)

    def body(x: Array, inputs: tuple[Array, ...]) -> tuple[Array, None]:
        step, signal, noise, signal_next, noise_next = inputs
        clean = jnp.clip((x - noise * predict(x, step)) / signal, -limit, limit)
        # Recompute the noise to match the clean sample, which may have been clipped.
        rest = (x - signal * clean) / noise
        return impose(signal_next * clean + noise_next * rest), None

    columns = (visited, chain.signal[visited], chain.noise[visited], signal_after, noise_after)
    start = impose(temperature * noise)
    return jax.lax.scan(body, start, tuple(map(jnp.asarray, columns)))[0]


def ddim_sigmas(
    denoise: Denoise,
    sigmas: Float[Array, " sigmas"],
    noise: Float[Array, "*shape"],
    *,
    temperature: float = 1.0,
) -> Float[Array, "*shape"]:
    """DDIM for continuous noise: at each sigma, move the fraction 1 - next / sigma towards D.

    This solves the probability-flow ODE exactly for constant D.
    """

    def body(x: Array, inputs: tuple[Array, Array]) -> tuple[Array, None]:
        sigma, ratio = inputs
        return ratio * x + (1 - ratio) * denoise(x, sigma), None

    start = temperature * sigmas[0] * noise
    return jax.lax.scan(body, start, (sigmas[:-1], sigmas[1:] / sigmas[:-1]))[0]
