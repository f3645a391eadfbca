"""A training step of a perceptron with three layers: its first call and later calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks.harness import Subject

GROUP = "training"
SIZES: Final = (64, 128, 128, 10)
BATCH: Final = 128


def parameters() -> list[tuple[Any, Any]]:
    random = np.random.default_rng(0)
    return [
        (random.normal(0, n**-0.5, (n, m)).astype(np.float32), np.zeros(m, np.float32))
        for n, m in itertools.pairwise(SIZES)
    ]


def batch() -> tuple[Any, Any]:
    """Returns images and their one-hot labels."""
    random = np.random.default_rng(1)
    return (
        random.normal(size=(BATCH, SIZES[0])).astype(np.float32),
        np.eye(SIZES[-1], dtype=np.float32)[random.integers(0, SIZES[-1], BATCH)],
    )


def arguments() -> tuple[Any, ...]:
    """Returns the arguments of a step."""
    return (parameters(), *batch())


def step_of(numpy: Any, value_and_grad: Any, rate: float) -> Callable[..., Any]:
    """Returns a step of gradient descent for either library."""

    def loss(params: Sequence[tuple[Any, Any]], images: Any, labels: Any) -> Any:
        *hidden, (weights, biases) = params
        for w, b in hidden:
            images = numpy.maximum(images @ w + b, 0)
        scores = images @ weights + biases
        scores = scores - numpy.max(scores, axis=-1, keepdims=True)
        log_probabilities = scores - numpy.log(numpy.sum(numpy.exp(scores), axis=-1, keepdims=True))
        return -numpy.mean(numpy.sum(labels * log_probabilities, axis=-1))

    def step(params: Sequence[tuple[Any, Any]], images: Any, labels: Any) -> Any:
        value, gradient = value_and_grad(loss)(params, images, labels)
        updated = [(w - rate * dw, b - rate * db) for (w, b), (dw, db) in zip(params, gradient, strict=True)]
        return updated, value

    return step


def subjects() -> Iterator[Subject]:
    host = arguments()
    x: Any = fx.device_put(host)
    y: Any = jax.device_put(host)
    wait_for_jax: Callable[[object], object] = jax.block_until_ready
    # Each repetition has a new rate, because executables are cached by the content of the program.
    rates = (0.1 / n for n in itertools.count(1))

    def our_first() -> object:
        return fx.block_until_ready(fx.jit(step_of(fnp, fx.value_and_grad, next(rates)))(*x))

    def jax_first() -> object:
        return wait_for_jax(jax.jit(step_of(jnp, jax.value_and_grad, next(rates)))(*y))

    yield Subject(GROUP, "first call of an MLP step", our_first, jax_first, 1.0, blocks=9, calls=1)

    ours, theirs = fx.jit(step_of(fnp, fx.value_and_grad, 0.1)), jax.jit(step_of(jnp, jax.value_and_grad, 0.1))
    yield Subject(
        GROUP,
        "that step, compiled",
        lambda: fx.block_until_ready(ours(*x)),
        lambda: wait_for_jax(theirs(*y)),
        1.05,
    )
