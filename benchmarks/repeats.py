"""Programs of repeated blocks: compile times and run times."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np

from benchmarks import resnet, science, training, transformer
from benchmarks.harness import Run, Subject, returned_value
from benchmarks.libraries import JAX, OURS, Library
from tracefx.transforms.async_compilation import THREAD_NAME

GROUP = "repeats"
COMPILATIONS: Final = 3
RUNS: Final = 31

Make: TypeAlias = Callable[[Library, float], Callable[..., Any]]
"""Makes a function with either library. It is a new program for each number."""
Program: TypeAlias = tuple[str, Make, tuple[Any, ...], float]
"""A name, a function, its arguments, and the target of the ratio of compile times."""


def runge_kutta(library: Library, steps: int = 50) -> Callable[..., Any]:
    """Returns the sum of squares after some steps of the Runge-Kutta method; the slope is a perceptron."""
    numpy = library.numpy

    def loss(weights: Any, x: Any) -> Any:
        def slope(x: Any) -> Any:
            return numpy.tanh(x @ weights[0]) @ weights[1]

        for _ in range(steps):
            k1 = slope(x)
            k2 = slope(x + 0.01 * k1)
            k3 = slope(x + 0.01 * k2)
            x = x + (k1 + 2 * k2 + 2 * k3 + slope(x + 0.02 * k3)) / 300
        return numpy.sum(x**2)

    return loss


def recurrent(library: Library) -> Callable[..., Any]:
    """Returns the loss of a recurrent network without `scan`."""
    numpy = library.numpy

    def loss(weights: Any, xs: Any) -> Any:
        h = numpy.zeros(xs.shape[1:], np.float32)
        for t in range(len(xs)):
            h = numpy.tanh(xs[t] @ weights[0] + h @ weights[1] + weights[2])
        return numpy.mean(h**2)

    return loss


def f32(*shape: int) -> Any:
    return (np.random.default_rng(0).normal(size=shape) * shape[0] ** -0.5).astype(np.float32)


def gradient_of(loss_of: Callable[[Library], Callable[..., Any]]) -> Make:
    """Returns a function that makes the gradient of a loss times a number."""

    def made(library: Library, number: float) -> Callable[..., Any]:
        loss = loss_of(library)
        return library.core.grad(lambda *args: loss(*args) * number)  # type: ignore[no-any-return]  # untyped library

    return made


def programs() -> Iterator[Program]:
    """Returns programs with repeated blocks, and three without."""
    for blocks, width, bound in ((6, 128, 0.5), (12, 32, 0.3), (12, 128, 0.3), (12, 256, 0.3), (24, 32, 0.12)):
        arguments = transformer.parameters(blocks, width), *transformer.text()
        yield f"transformer, {blocks} blocks of width {width}", gradient_of(transformer.loss_of), arguments, bound
    yield "transformer, 12 blocks, dropout, Adam", transformer.adam_step_of, transformer.adam_arguments(12), 0.35
    yield "50 Runge-Kutta steps", gradient_of(runge_kutta), ((f32(8, 64), f32(64, 8)), f32(32, 8)), 0.5
    weights = f32(128, 128), f32(128, 128), np.zeros(128, np.float32)
    yield "recurrent network, 64 steps", gradient_of(recurrent), (weights, f32(64, 8, 128)), 0.7
    yield "MLP step", perceptron_step, training.arguments(), 1.0
    yield "ResNet-18", gradient_of(resnet.loss_of), (resnet.parameters(), *resnet.batch()), 1.0
    yield "Gaussian process", gaussian_process, science.gaussian_process(), 1.0


def perceptron_step(library: Library, number: float) -> Callable[..., Any]:
    return training.step_of(library.numpy, library.core.value_and_grad, number)


def gaussian_process(library: Library, number: float) -> Callable[..., Any]:
    return library.core.grad(science.marginal_likelihood_of(library, number))  # type: ignore[no-any-return]  # untyped library


def options(library: Library) -> dict[str, str]:
    return {"repeats": "share"} if library is OURS else {}


def compiling(library: Library, make: Make, arguments: tuple[Any, ...]) -> Run:
    """Returns a function that compiles a new program at each call and returns the CPU seconds, without tracing."""

    def lowered(number: int) -> Any:
        return library.core.jit(make(library, 1.0 + number), **options(library)).lower(*arguments)

    stages = map(lowered, itertools.count())

    def run() -> float:
        stage = next(stages)
        start = time.process_time()
        stage.compile()
        return time.process_time() - start

    return run


def running(library: Library, make: Make, arguments: tuple[Any, ...]) -> Run:
    function, args = library.core.jit(make(library, 1.0), **options(library)), library.core.device_put(arguments)
    return lambda: library.core.block_until_ready(function(*args))


def first_result(library: Library, arguments: tuple[Any, ...]) -> Run:
    """Returns a function that returns the seconds to the first gradient of a new loss at each call."""
    numbers = itertools.count(1)
    chosen = {"async_compile": True, **options(library)} if library is OURS else {}
    make = gradient_of(transformer.loss_of)

    def run() -> float:
        function = library.core.jit(make(library, float(next(numbers))), **chosen)
        start = time.perf_counter()
        library.core.block_until_ready(function(*arguments))
        seconds = time.perf_counter() - start
        for thread in threading.enumerate():  # the compilation would slow down the next measurement
            if thread.name == THREAD_NAME:
                thread.join()
        return seconds

    return run


def subjects() -> Iterator[Subject]:
    for name, make, arguments, bound in programs():
        ours, jax = [(library, make, arguments) for library in (OURS, JAX)]
        compilations = compiling(*ours), compiling(*jax)
        yield Subject(GROUP, f"{name}: compile, CPU", *compilations, bound, COMPILATIONS, 1, returned_value)
        yield Subject(GROUP, f"{name}: run", running(*ours), running(*jax), 1.0, RUNS)
    arguments = transformer.parameters(12), *transformer.text()
    results = first_result(OURS, arguments), first_result(JAX, arguments)
    yield Subject(GROUP, "transformer, 12 blocks: first result", *results, 0.15, COMPILATIONS, 1, returned_value)
