"""Programs of many kinds: time of tracing, of the first call, and of a run."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final, final

import jax
from attrs import frozen

import tracefx as fx
from benchmarks import gpt, resnet, science
from benchmarks.harness import Subject
from benchmarks.libraries import JAX, OURS, Library

GROUP = "breadth"


@final
@frozen
class Program:
    """A program for either library, and its arguments.

    The program depends on a small number, so that a new number makes a program that no cache contains.
    """

    name: str
    function_of: Callable[[Library, float], Callable[..., Any]]
    arguments: Callable[[], tuple[Any, ...]]
    number: float = 1e-5


def gradient_of(loss_of: Callable[[Library, float], Callable[..., Any]]) -> Callable[[Library, float], Any]:
    """Returns a function that makes the function of the value and the gradient of a loss."""
    return lambda library, number: library.core.value_and_grad(loss_of(library, number))


PROGRAMS: Final = (
    Program(
        "ResNet-18, loss and gradient", gradient_of(resnet.loss_of), lambda: (resnet.parameters(), *resnet.batch())
    ),
    Program("GPT of 6 blocks, loss and gradient", gradient_of(gpt.loss_of), lambda: (gpt.parameters(), *gpt.text())),
    Program(
        "Gaussian process, likelihood and gradient",
        gradient_of(science.marginal_likelihood_of),
        science.gaussian_process,
    ),
    Program("FFT convolution", science.convolution_of, science.signals),
    Program("N-body in 2 dimensions, gradient", gradient_of(science.n_body_of), science.bodies),
    Program("one million normals", science.normals_of, science.seeds),
)


def subjects() -> Iterator[Subject]:
    for program in PROGRAMS:
        yield from of(program)


def of(program: Program) -> Iterator[Subject]:
    host = program.arguments()
    x: Any = fx.device_put(host)
    y: Any = jax.device_put(host)
    numbers = (program.number * (1 + n / 1000) for n in itertools.count(1))

    def first(library: Library, wait: Callable[[object], object], arguments: tuple[Any, ...]) -> Callable[[], object]:
        return lambda: wait(library.core.jit(program.function_of(library, next(numbers)))(*arguments))

    def traced(library: Library) -> Callable[[], object]:
        """Returns a function that traces the program under `jit`."""
        return lambda: library.core.jit(program.function_of(library, program.number)).trace(*host)

    def run(library: Library, wait: Callable[[object], object], arguments: tuple[Any, ...]) -> Callable[[], object]:
        function = functools.partial(library.core.jit(program.function_of(library, program.number)), *arguments)
        return lambda: wait(function())

    wait_for_jax: Callable[[object], object] = jax.block_until_ready
    yield Subject(GROUP, f"{program.name}, traced", traced(OURS), traced(JAX), 0.35, blocks=15)
    yield Subject(
        GROUP,
        f"{program.name}, first call",
        first(OURS, fx.block_until_ready, x),
        first(JAX, wait_for_jax, y),
        1.0,
        blocks=5,
        calls=1,
    )
    yield Subject(
        GROUP,
        f"{program.name}, compiled",
        run(OURS, fx.block_until_ready, x),
        run(JAX, wait_for_jax, y),
        1.05,
        blocks=31,
    )
