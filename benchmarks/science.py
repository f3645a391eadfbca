"""Programs of the sciences, written with one library or the other, around a small number that makes them differ."""

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
    """The logarithms of length, height and noise; places and what was seen there."""
    return numbers(3) * np.float32(0.1), numbers(POINTS, 4, seed=1), numbers(POINTS, seed=2)


def surprise_of(library: Library, jitter: float) -> Callable[..., Any]:
    """The negative logarithm of the marginal likelihood, by Cholesky's decomposition."""
    numpy, linalg = library.numpy, library.core.scipy.linalg

    def surprise(logs: Any, places: Any, seen: Any) -> Any:
        length, height, noise = numpy.exp(logs)
        squares = numpy.sum((places[:, None] - places[None]) ** 2, axis=-1)
        covariance = height * numpy.exp(-0.5 * squares / length**2) + (noise + jitter) * numpy.eye(POINTS)
        root = numpy.linalg.cholesky(covariance)
        fit = linalg.cho_solve((root, True), seen)
        return 0.5 * seen @ fit + numpy.sum(numpy.log(numpy.diagonal(root)))

    return surprise


# ------------------------------------------------------------------ a convolution by Fourier transforms


def signals() -> tuple[Any, ...]:
    """Sounds and what a room makes of a click."""
    return numbers(8, 1 << 14), numbers(1 << 12, seed=1)


def echo_of(library: Library, floor: float) -> Callable[..., Any]:
    numpy = library.numpy

    def echo(sounds: Any, room: Any) -> Any:
        size = sounds.shape[-1] + room.shape[-1] - 1
        length = 1 << (size - 1).bit_length()
        both = numpy.fft.rfft(sounds, length) * (numpy.fft.rfft(room, length) + floor)
        return numpy.fft.irfft(both, length)[..., :size]

    return echo


# ------------------------------------------------------------------ bodies that attract each other


def bodies() -> tuple[Any, ...]:
    """Places and velocities in two dimensions, and masses."""
    return numbers(BODIES, 2), numbers(BODIES, 2, seed=1) * np.float32(0.1), np.abs(numbers(BODIES, seed=2))


def spread_of(library: Library, softening: float) -> Callable[..., Any]:
    """How far bodies are from the centre after some steps of the leapfrog method."""
    numpy, lax = library.numpy, library.core.lax

    def pull(places: Any, masses: Any) -> Any:
        apart = places[None] - places[:, None]
        squares = numpy.sum(apart**2, axis=-1) + softening
        return numpy.sum(apart * (masses / squares**1.5)[..., None], axis=1)

    def spread(places: Any, velocities: Any, masses: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            here, speed = carry
            speed = speed + 0.005 * pull(here, masses)
            here = here + 0.01 * speed
            return (here, speed + 0.005 * pull(here, masses)), None

        (last, _), _ = lax.scan(step, (places, velocities), None, length=STEPS)
        return numpy.mean(numpy.sum(last**2, axis=-1))

    return spread


# ------------------------------------------------------------------ random numbers


def seeds() -> tuple[Any, ...]:
    return (np.array([0, 42], np.uint32),)


def normals_of(library: Library, scale: float) -> Callable[..., Any]:
    """A million normal numbers, and a little more or less."""
    random = library.core.random

    def normals(words: Any) -> Any:
        return random.normal(random.wrap_key_data(words), (NORMALS,)) * (1 + scale)

    return normals
