"""Compiled programs of many kinds: run times and compile times."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

import jax
import numpy as np

import tracefx as fx
from benchmarks.compiled import Case, f32, summed_sines
from benchmarks.harness import Subject
from benchmarks.libraries import JAX, OURS, Library

GROUP = "compiled_speed"
BLOCKS: Final = 51
COMPILATIONS: Final = 7
DRAWS: Final = 1_000_000
STEPS: Final = 50


def positive_definite(*shape: int) -> Any:
    x = f32(*shape)
    return x @ np.swapaxes(x, -1, -2) + shape[-1] * np.eye(shape[-1], dtype=np.float32)


def convolutional(activation: str) -> Callable[[Library], Any]:
    """Returns a function that makes the gradient of a network with two convolutions."""

    def function_of(library: Library) -> Any:
        act = getattr(library.nn, activation)

        def convolve(x: Any, kernel: Any) -> Any:
            layout = ("NHWC", "HWIO", "NHWC")
            return act(library.core.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout))

        return library.core.grad(lambda one, two, x: library.numpy.mean(convolve(convolve(x, one), two)), (0, 1))

    return function_of


def perceptron_hessian(library: Library) -> Any:
    tanh, total = library.numpy.tanh, library.numpy.sum
    return library.core.hessian(
        lambda p, x: total(tanh(tanh(x @ p[:400].reshape(20, 20)) @ p[400:].reshape(20, 20)) ** 2)
    )


def eigh_sum(library: Library) -> Any:
    def function(x: Any) -> Any:
        values, vectors = library.numpy.linalg.eigh(x)
        return library.numpy.sum(values) + library.numpy.sum(vectors**3)

    return library.core.grad(function)


def runge_kutta(library: Library) -> Any:
    """Returns the gradient of 50 steps of the Runge-Kutta method; the step closes over a matrix."""
    matrix = f32(16, 16) / 10

    def step(y: Any) -> Any:
        slope: Callable[[Any], Any] = lambda y: library.numpy.tanh(matrix @ y)  # noqa: E731
        k1 = slope(y)
        k2 = slope(y + 0.05 * k1)
        k3 = slope(y + 0.05 * k2)
        return y + (k1 + 2 * k2 + 2 * k3 + slope(y + 0.1 * k3)) / 60

    return library.core.grad(lambda y: library.numpy.sum(functools.reduce(lambda y, _: step(y), range(STEPS), y)))


def drawing(name: str, **options: Any) -> Callable[[Library], Any]:
    return lambda m: lambda x: getattr(m.core.random, name)(m.core.random.key(0), x, **options)


def integers(library: Library) -> Any:
    return lambda high: library.core.random.randint(library.core.random.key(0), (DRAWS,), 0, high)


def halved(library: Library) -> Any:
    return lambda x: library.core.image.resize(x, (128, 128, 3), "linear")


CASES: Final = (
    Case("solve, 64 of f32[32,32]", lambda m: m.numpy.linalg.solve, (positive_definite(64, 32, 32), f32(64, 32, 4))),
    Case("inv, 64 of f32[16,16]", lambda m: m.numpy.linalg.inv, (positive_definite(64, 16, 16),)),
    Case("det, 64 of f32[16,16]", lambda m: m.numpy.linalg.det, (positive_definite(64, 16, 16),)),
    Case("CNN with relu, gradient", convolutional("relu"), (f32(3, 3, 3, 16), f32(3, 3, 16, 16), f32(8, 28, 28, 3))),
    Case("CNN with relu6, gradient", convolutional("relu6"), (f32(3, 3, 3, 16), f32(3, 3, 16, 16), f32(8, 28, 28, 3))),
    Case("dot_product_attention", lambda m: m.nn.dot_product_attention, (f32(2, 128, 4, 32),) * 3),
    Case(
        "dot_product_attention, gradient",
        summed_sines(lambda m: m.nn.dot_product_attention, (0, 1, 2)),
        (f32(2, 128, 4, 32),) * 3,
    ),
    Case("categorical, f32[1000,1000]", drawing("categorical"), (f32(1000, 1000),)),
    Case("bernoulli, one million", drawing("bernoulli", shape=(DRAWS,)), (np.float32(0.3),)),
    Case("randint, one million", integers, (np.int32(10),)),
    Case(
        "image.resize, 256 to 128",
        lambda m: lambda x: m.core.image.resize(x, (128, 128, 3), "linear"),
        (f32(256, 256, 3),),
    ),
    Case("Hessian of an MLP, 20x20", perceptron_hessian, (f32(800) / 5, f32(8, 20))),
    Case("eigh, f32[32,32], gradient", eigh_sum, (positive_definite(32, 32),)),
    Case("50 Runge-Kutta steps, gradient", runge_kutta, (f32(16),)),
)


def samples(library: Library, number: float) -> Callable[[Any], Any]:
    """Returns a function with two kinds of draws; it is a new program for each number."""
    random = library.core.random
    return lambda x: (
        random.bernoulli(random.key(0), x * number, (1000,)),
        random.randint(random.key(1), (1000,), 0, 10),
    )


def gamma_samples(library: Library, number: float) -> Callable[[Any], Any]:
    """Returns a function with draws that need loops; it is a new program for each number."""
    random = library.core.random
    return lambda x: (
        random.beta(random.key(0), x, x + number),
        random.dirichlet(random.key(1), library.numpy.ones(3) * x),
    )


def subjects() -> Iterator[Subject]:
    wait_for_jax: Callable[[object], object] = jax.block_until_ready
    for case in CASES:
        x: Any = fx.device_put(case.arguments)
        y: Any = jax.device_put(case.arguments)
        yield Subject(
            GROUP,
            case.name,
            functools.partial(_wait, fx.block_until_ready, functools.partial(fx.jit(case.function_of(OURS)), *x)),
            functools.partial(_wait, wait_for_jax, functools.partial(jax.jit(case.function_of(JAX)), *y)),
            1.05,
            blocks=BLOCKS,
        )
    numbers = (1 + n / 1000 for n in itertools.count(1))
    for name, function_of in (("bernoulli and randint", samples), ("beta and dirichlet", gamma_samples)):
        yield Subject(
            GROUP,
            f"{name}, compilation",
            lambda f=function_of: _compile(OURS, f(OURS, next(numbers))),  # type: ignore[misc]  # bound in the loop
            lambda f=function_of: _compile(JAX, f(JAX, next(numbers))),  # type: ignore[misc]  # as above
            1.0,
            blocks=COMPILATIONS,
            calls=1,
        )


def _compile(library: Library, function: Callable[[Any], Any]) -> object:
    return library.core.jit(function).lower(np.float32(0.5)).compile()


def _wait(wait: Callable[[object], object], run: Callable[[], object]) -> object:
    return wait(run())
