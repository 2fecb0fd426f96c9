"""Schedules, losses and samplers against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from helpers.learner_data import floats
from merlin.nets.diffusion import (
    add_noise,
    cosine_betas,
    ddim,
    ddim_sigmas,
    ddpm,
    denoising_loss,
    exponential_sigmas,
    guide,
    log_logistic_sigma,
    make_chain,
    noise_prediction_loss,
    precondition,
    preconditioned,
    variance_preserving_betas,
)

MEAN, STD = 0.7, 0.4
"""The Gaussian that samplers are asked for: its best denoiser is a line."""


# Schedules


def test_variance_preserving_betas_of_five_steps():
    betas = variance_preserving_betas(5)
    np.testing.assert_allclose(betas, [0.196, 0.459, 0.636, 0.755, 0.835], atol=5e-4)
    left = np.cumprod(1 - betas)
    np.testing.assert_allclose(left, [0.804, 0.435, 0.159, 0.039, 0.006], atol=6e-4)


def test_variance_preserving_betas_are_the_integral_of_a_line():
    """Between two steps the log of the signal falls by the integral of 0.1 + 9.9 t."""
    betas = variance_preserving_betas(8)
    for step, beta in enumerate(betas):
        area, _ = integrate.quad(lambda t: 0.1 + 9.9 * t, step / 8, (step + 1) / 8)
        assert np.log(1 - beta) == pytest.approx(-area)


@pytest.mark.parametrize("steps", [10, 200])
def test_cosine_betas_leave_a_squared_cosine(steps):
    betas = cosine_betas(steps)
    assert betas.max() == 0.999  # the last step would take everything
    left = np.cumprod(1 - betas)[:-1]
    angle = (np.arange(1, steps) / steps + 0.008) / 1.008 * np.pi / 2
    start = np.cos(0.008 / 1.008 * np.pi / 2) ** 2
    np.testing.assert_allclose(left, np.cos(angle) ** 2 / start, rtol=1e-9)


def test_sigmas_of_beso():
    np.testing.assert_allclose(
        exponential_sigmas(3, 0.005, 1.0), [1, 0.0707107, 0.005, 0], rtol=1e-5
    )
    np.testing.assert_allclose(exponential_sigmas(3, 0.05, 1.0), [1, 0.2236068, 0.05, 0], rtol=1e-5)
    np.testing.assert_allclose(exponential_sigmas(1, 0.05, 1.0), [1, 0])


def test_log_logistic_sigmas_are_scipys_between_the_limits():
    uniform = jnp.linspace(0.0, 1.0, 101)
    found = log_logistic_sigma(uniform, centre=0.5, scale=0.5, low=0.005, high=1.0)
    # The logarithm is logistic with scale 1/2: scipy's fisk with shape 2.
    known = stats.fisk(c=2.0, scale=0.5)
    shares = np.asarray(uniform) * (known.cdf(1.0) - known.cdf(0.005)) + known.cdf(0.005)
    np.testing.assert_allclose(found, known.ppf(shares), rtol=2e-3)
    assert found.min() >= 0.005
    assert found.max() <= 1.0


@pytest.mark.parametrize("betas", [cosine_betas(12), variance_preserving_betas(5)])
def test_chain_keeps_the_variance_and_knows_its_posterior(betas):
    """Bayes' rule for Gaussians: precisions add, means are weighted by them."""
    chain = make_chain(betas)
    assert chain.steps == len(betas)
    np.testing.assert_allclose(chain.signal**2 + chain.noise**2, 1, rtol=1e-6)
    for k in range(1, len(betas)):
        before = np.float64(chain.noise[k - 1]) ** 2
        forward = (1 - betas[k]) / betas[k]
        variance = 1 / (1 / before + forward)
        assert chain.deviation[k] == pytest.approx(np.sqrt(variance), rel=1e-4)
        assert chain.clean_weight[k] == pytest.approx(
            variance * chain.signal[k - 1] / before, rel=1e-4
        )
        assert chain.noisy_weight[k] == pytest.approx(
            variance * np.sqrt(1 - betas[k]) / betas[k], rel=1e-4
        )
    # The last step gives the clean sample itself.
    np.testing.assert_allclose(
        [chain.clean_weight[0], chain.noisy_weight[0], chain.deviation[0]], [1, 0, 0], atol=1e-6
    )


# Losses


def test_noise_prediction_loss_by_hand():
    """Half the variance is noise: 3 and 4 with noise (1, -1) are (2 + 1/2 ...) / sqrt 2."""
    chain = make_chain(np.array([0.5]))
    x, noise, step = floats(3.0, 4.0), floats(1.0, -1.0), jnp.int32(0)
    noisy = add_noise(chain, x, step, noise)
    np.testing.assert_allclose(noisy, [4 / np.sqrt(2), 3 / np.sqrt(2)], rtol=1e-6)
    guess = lambda x, step: jnp.zeros_like(x)  # noqa: E731
    assert noise_prediction_loss(guess, chain, x, step, noise) == pytest.approx(1.0)
    guess = lambda x, step: x * np.float32(np.sqrt(2))  # noqa: E731
    # Errors 4 - 1 and 3 + 1; the weights keep the second alone.
    assert noise_prediction_loss(guess, chain, x, step, noise) == pytest.approx(12.5, rel=1e-5)
    weighted = noise_prediction_loss(guess, chain, x, step, noise, floats(0.0, 1.0))
    assert weighted == pytest.approx(8.0, rel=1e-5)


@pytest.mark.parametrize("sigma", [0.005, 0.5, 3.0])
def test_preconditioning_keeps_unit_variance(sigma):
    data = 0.5
    skip, out, scale = (float(c) for c in precondition(jnp.float32(sigma), data))
    assert (data**2 + sigma**2) * scale**2 == pytest.approx(1, rel=1e-5)
    # The target (x - skip (x + sigma noise)) / out has variance 1 as well.
    target = ((1 - skip) ** 2 * data**2 + (skip * sigma) ** 2) / out**2
    assert target == pytest.approx(1, rel=1e-4)
    # No other skip needs less of the network.
    for other in (skip - 0.01, skip + 0.01):
        assert (1 - other) ** 2 * data**2 + (other * sigma) ** 2 > out**2


def test_denoising_loss_is_that_of_the_denoiser_over_its_scale():
    net = lambda scaled, sigma: 0.3 * scaled + sigma  # noqa: E731
    x, sigma, noise = floats(0.2, -0.9), jnp.float32(0.4), floats(1.0, 0.5)
    _, out, _ = precondition(sigma, 0.5)
    denoised = preconditioned(net, 0.5)(x + sigma * noise, sigma)
    expected = jnp.mean((denoised - x) ** 2) / out**2
    np.testing.assert_allclose(denoising_loss(net, x, sigma, noise, 0.5), expected, rtol=1e-5)


def test_denoising_loss_by_hand():
    """sigma = sigma_data = 1: skip 1/2, out = scale = 1/sqrt 2; x = 1 with noise 1 is 2."""
    zero = lambda scaled, sigma: jnp.zeros_like(scaled)  # noqa: E731
    args = (floats(1.0), jnp.float32(1.0), floats(1.0), 1.0)
    assert denoising_loss(zero, *args) == pytest.approx(0.0, abs=1e-6)  # 1 - 2 / 2
    own = lambda scaled, sigma: scaled  # noqa: E731
    assert denoising_loss(own, *args) == pytest.approx(2.0, rel=1e-5)  # (2 / sqrt 2)^2


def test_guidance_goes_past_the_condition():
    with_goal, without = floats(2.0, 1.0), floats(1.0, 1.0)
    np.testing.assert_allclose(guide(with_goal, without, 1.5), [2.5, 1.0])
    np.testing.assert_allclose(guide(with_goal, without, 1.0), with_goal)
    np.testing.assert_allclose(guide(with_goal, without, 0.0), without)


# Samplers


def noise_of_a_gaussian(chain):
    """E[noise | x] if clean samples are N(MEAN, STD^2)."""
    signal, noise = jnp.asarray(chain.signal), jnp.asarray(chain.noise)

    def predict(x, step):
        total = (signal[step] * STD) ** 2 + noise[step] ** 2
        return noise[step] * (x - signal[step] * MEAN) / total

    return predict


def samples(sampler, *steps, count=20_000):
    noise = jnp.asarray(np.random.default_rng(0).normal(size=(count, *steps, 1)), jnp.float32)
    return np.asarray(jax.jit(jax.vmap(sampler))(noise))[:, 0]


def test_ddpm_samples_a_gaussian():
    """In the limit of many steps; with few of them the posterior's noise is a little too small."""
    chain = make_chain(cosine_betas(1000))
    found = samples(lambda noise: ddpm(noise_of_a_gaussian(chain), chain, noise), 1000, count=5000)
    assert found.mean() == pytest.approx(MEAN, abs=0.02)
    assert found.std() == pytest.approx(STD, rel=0.03)
    assert stats.kstest(found[:2000], stats.norm(MEAN, STD).cdf).pvalue > 1e-3


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
def test_ddpm_of_few_steps_is_its_own_recursion(temperature):
    """Mean and variance of a linear chain, step by step; noise scales with the temperature."""
    chain = make_chain(variance_preserving_betas(5))
    mean, variance = 0.0, temperature**2
    for k in reversed(range(5)):
        signal, noise = float(chain.signal[k]), float(chain.noise[k])
        total = (signal * STD) ** 2 + noise**2
        # clean = (x - noise predicted) / signal = slope x + offset
        slope = (1 - noise**2 / total) / signal
        offset = noise**2 * MEAN / total
        clean, noisy = float(chain.clean_weight[k]), float(chain.noisy_weight[k])
        mean = clean * (slope * mean + offset) + noisy * mean
        variance *= (clean * slope + noisy) ** 2
        variance += (temperature * float(chain.deviation[k])) ** 2
    predict = noise_of_a_gaussian(chain)
    found = samples(lambda noise: ddpm(predict, chain, noise, temperature=temperature), 5)
    assert found.mean() == pytest.approx(mean, abs=0.01)
    assert found.std() == pytest.approx(np.sqrt(variance), rel=0.03, abs=1e-5)


@pytest.mark.parametrize("steps", [200, 50])
def test_ddim_samples_a_gaussian_without_noise_of_its_own(steps):
    chain = make_chain(cosine_betas(200))
    predict = noise_of_a_gaussian(chain)
    found = samples(lambda noise: ddim(predict, chain, noise, steps=steps))
    assert found.mean() == pytest.approx(MEAN, abs=0.02)
    assert found.std() == pytest.approx(STD, rel=0.05)
    cold = samples(lambda noise: ddim(predict, chain, noise, steps=steps, temperature=0.0), count=3)
    assert np.ptp(cold) == 0.0


def test_ddim_in_sigmas_samples_a_gaussian():
    def denoise(x, sigma):
        return (STD**2 * x + sigma**2 * MEAN) / (STD**2 + sigma**2)

    sigmas = jnp.asarray(exponential_sigmas(200, 0.002, 80.0))
    found = samples(lambda noise: ddim_sigmas(denoise, sigmas, noise))
    assert found.mean() == pytest.approx(MEAN, abs=0.02)
    assert found.std() == pytest.approx(STD, rel=0.05)


def test_one_step_of_ddim_in_sigmas_is_the_denoiser():
    sigmas = jnp.asarray(exponential_sigmas(1, 0.1, 2.0))
    found = ddim_sigmas(lambda x, sigma: 0 * x + sigma, sigmas, jnp.ones(3))
    np.testing.assert_allclose(found, [2.0, 2.0, 2.0])


@pytest.mark.parametrize("stochastic", [True, False])
def test_limits_and_what_is_known_are_kept(stochastic):
    chain = make_chain(cosine_betas(10))
    far = lambda x, step: jnp.full_like(x, -50.0)  # noqa: E731
    known = lambda x: x.at[0].set(0.25)  # noqa: E731
    options = {"limit": 1.0, "impose": known}
    if stochastic:
        found = ddpm(far, chain, jnp.ones((10, 4)), **options)
    else:
        found = ddim(far, chain, jnp.ones(4), steps=4, **options)
    np.testing.assert_allclose(found, [0.25, 1.0, 1.0, 1.0], atol=1e-5)
