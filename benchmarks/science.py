"""Scientific programs for either library. Each depends on a small number, which makes new programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from benchmarks.libraries import Library

POINTS: Final = 500
BODIES: Final = 256
STEPS: Final = 20
NORMALS: Final = 1_000_000


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# ------------------------------------------------------------------ a Gaussian process


def gaussian_process() -> tuple[Any, ...]:
    """Returns the logarithms of length scale, amplitude and noise; inputs and observations."""
    return numbers(3) * np.float32(0.1), numbers(POINTS, 4, seed=1), numbers(POINTS, seed=2)


def marginal_likelihood_of(library: Library, jitter: float) -> Callable[..., Any]:
    """Returns the negative log marginal likelihood of a Gaussian process, by a Cholesky decomposition."""
    numpy, linalg = library.numpy, library.core.scipy.linalg

    def negative_log_likelihood(logs: Any, inputs: Any, observations: Any) -> Any:
        length, amplitude, noise = numpy.exp(logs)
        squares = numpy.sum((inputs[:, None] - inputs[None]) ** 2, axis=-1)
        covariance = amplitude * numpy.exp(-0.5 * squares / length**2) + (noise + jitter) * numpy.eye(POINTS)
        root = numpy.linalg.cholesky(covariance)
        fit = linalg.cho_solve((root, True), observations)
        return 0.5 * observations @ fit + numpy.sum(numpy.log(numpy.diagonal(root)))

    return negative_log_likelihood


# ------------------------------------------------------------------ a convolution by Fourier transforms


def signals() -> tuple[Any, ...]:
    """Returns signals and an impulse response."""
    return numbers(8, 1 << 14), numbers(1 << 12, seed=1)


def convolution_of(library: Library, floor: float) -> Callable[..., Any]:
    numpy = library.numpy

    def convolved(signals: Any, response: Any) -> Any:
        size = signals.shape[-1] + response.shape[-1] - 1
        length = 1 << (size - 1).bit_length()
        product = numpy.fft.rfft(signals, length) * (numpy.fft.rfft(response, length) + floor)
        return numpy.fft.irfft(product, length)[..., :size]

    return convolved


# ------------------------------------------------------------------ N bodies


def bodies() -> tuple[Any, ...]:
    """Returns positions and velocities in two dimensions, and masses."""
    return numbers(BODIES, 2), numbers(BODIES, 2, seed=1) * np.float32(0.1), np.abs(numbers(BODIES, seed=2))


def n_body_of(library: Library, softening: float) -> Callable[..., Any]:
    """Returns the mean squared distance from the origin after `STEPS` steps of the leapfrog method."""
    numpy, lax = library.numpy, library.core.lax

    def acceleration(positions: Any, masses: Any) -> Any:
        differences = positions[None] - positions[:, None]
        squares = numpy.sum(differences**2, axis=-1) + softening
        return numpy.sum(differences * (masses / squares**1.5)[..., None], axis=1)

    def mean_square(positions: Any, velocities: Any, masses: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            position, velocity = carry
            velocity = velocity + 0.005 * acceleration(position, masses)
            position = position + 0.01 * velocity
            return (position, velocity + 0.005 * acceleration(position, masses)), None

        (last, _), _ = lax.scan(step, (positions, velocities), None, length=STEPS)
        return numpy.mean(numpy.sum(last**2, axis=-1))

    return mean_square


# ------------------------------------------------------------------ random numbers


def seeds() -> tuple[Any, ...]:
    return (np.array([0, 42], np.uint32),)


def normals_of(library: Library, scale: float) -> Callable[..., Any]:
    """Returns a function that draws a million normal numbers and scales them."""
    random = library.core.random

    def normals(key_data: Any) -> Any:
        return random.normal(random.wrap_key_data(key_data), (NORMALS,)) * (1 + scale)

    return normals
