"""Programs of repeated blocks: the time that compiling them takes, and the time of a run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np

from benchmarks import transformer
from benchmarks.harness import Run, Subject, returned_seconds
from benchmarks.libraries import JAX, OURS, Library

GROUP = "repeats"
COMPILATIONS: Final = 3
RUNS: Final = 31

Program: TypeAlias = tuple[str, Callable[[Library], Callable[..., Any]], tuple[Any, ...], float]
"""A name, a loss, its arguments and the wanted ratio of compile times."""


def runge_kutta(library: Library) -> Callable[..., Any]:
    """50 steps of the Runge-Kutta method with a perceptron as the slope."""
    numpy = library.numpy

    def loss(weights: Any, x: Any) -> Any:
        def slope(x: Any) -> Any:
            return numpy.tanh(x @ weights[0]) @ weights[1]

        for _ in range(50):
            k1 = slope(x)
            k2 = slope(x + 0.01 * k1)
            k3 = slope(x + 0.01 * k2)
            x = x + (k1 + 2 * k2 + 2 * k3 + slope(x + 0.02 * k3)) / 300
        return numpy.sum(x**2)

    return loss


def recurrent(library: Library) -> Callable[..., Any]:
    """A recurrent network whose 64 steps are not a loop of the program."""
    numpy = library.numpy

    def loss(weights: Any, xs: Any) -> Any:
        h = numpy.zeros((8, 128), np.float32)
        for t in range(64):
            h = numpy.tanh(xs[t] @ weights[0] + h @ weights[1] + weights[2])
        return numpy.mean(h**2)

    return loss


def f32(*shape: int) -> Any:
    return (np.random.default_rng(0).normal(size=shape) * shape[0] ** -0.5).astype(np.float32)


def programs() -> Iterator[Program]:
    for blocks, bound in ((6, 0.5), (12, 0.3)):
        arguments = transformer.parameters(blocks), *transformer.text()
        yield f"transformer, {blocks} blocks", transformer.loss_of, arguments, bound
    yield "50 Runge-Kutta steps", runge_kutta, ((f32(8, 64), f32(64, 8)), f32(32, 8)), 0.5
    weights = f32(128, 128), f32(128, 128), np.zeros(128, np.float32)
    yield "recurrent network, 64 steps", recurrent, (weights, f32(64, 8, 128)), 0.7


def options(library: Library) -> dict[str, str]:
    return {"repeats": "share"} if library is OURS else {}


def compiling(library: Library, loss: Callable[..., Any], arguments: tuple[Any, ...]) -> Run:
    """A function that compiles the gradient of a loss, of another one at each call. Tracing is not measured."""

    def lowered(number: int) -> Any:
        gradient = library.core.grad(lambda *args: loss(*args) * (1.0 + number))
        return library.core.jit(gradient, **options(library)).lower(*arguments)

    stages = map(lowered, itertools.count())

    def run() -> float:
        stage = next(stages)
        start = time.process_time()
        stage.compile()
        return time.process_time() - start

    return run


def running(library: Library, loss: Callable[..., Any], arguments: tuple[Any, ...]) -> Run:
    function, args = library.core.jit(library.core.grad(loss), **options(library)), library.core.device_put(arguments)
    return lambda: library.core.block_until_ready(function(*args))


def subjects() -> Iterator[Subject]:
    for name, loss_of, arguments, bound in programs():
        ours, jax = [(library, loss_of(library), arguments) for library in (OURS, JAX)]
        compilations = compiling(*ours), compiling(*jax)
        yield Subject(GROUP, f"{name}: compile, CPU", *compilations, bound, COMPILATIONS, 1, returned_seconds)
        yield Subject(GROUP, f"{name}: run", running(*ours), running(*jax), 1.0, RUNS)
