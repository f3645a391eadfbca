"""Derivatives of high order: `jet` and nested `jvp`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import jax
import numpy as np

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks.harness import Run, Subject
from benchmarks.libraries import JAX, OURS, Library
from benchmarks.report import aligned_table, quantity
from tracefx.handlers import jet

GROUP = "jet"
ORDER: Final = 5
SIZE: Final = 4096
HIGHEST_NESTED: Final = 7  # whose first call takes ten seconds

Function: TypeAlias = Callable[[Any], Any]


def flow(library: Library) -> Function:
    """Returns the flow of an autonomous differential equation: ten steps of the Runge-Kutta method."""

    def slope(y: Any) -> Any:
        return y * (1 - y * y)

    def step(y: Any, _: Any) -> tuple[Any, None]:
        k1 = slope(y)
        k2 = slope(y + 0.05 * k1)
        k3 = slope(y + 0.05 * k2)
        k4 = slope(y + 0.1 * k3)
        return y + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return lambda x: library.core.lax.scan(step, x, None, length=10)[0]


def iterated(library: Library) -> Function:
    """Returns the sixteenth iterate of a function."""
    numpy = library.numpy

    def step(x: Any, _: Any) -> tuple[Any, None]:
        return numpy.sin(x * numpy.exp(-x)), None

    return lambda x: library.core.lax.scan(step, x, None, length=16)[0]


def composed(library: Library) -> Function:
    """Returns a formula of products, quotients and compositions."""
    numpy = library.numpy

    def f(x: Any) -> Any:
        inner = numpy.log(1 + numpy.exp(numpy.sin(x) * numpy.cos(x * x)))
        return inner * numpy.tanh(x / (1 + x * x)) / numpy.sqrt(2 + numpy.cos(3 * x))

    return f


def network(library: Library) -> Function:
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(512, 512)).astype(np.float32) * np.float32(0.06) for _ in range(4)]

    def f(x: Any) -> Any:
        for w in weights:
            x = library.numpy.tanh(x @ w)
        return x

    return f


def by_jet(f: Function, order: int) -> Function:
    """Returns the derivative of the given order."""
    return lambda x: jet(f, (x,), ([fnp.ones_like(x), *[None] * (order - 1)],))[1][-1]


def by_nesting(f: Function, order: int) -> Function:
    for _ in range(order):
        f = _derivative(f)
    return f


def _derivative(f: Function) -> Function:
    return lambda x: jax.jvp(f, (x,), (jax.numpy.ones_like(x),))[1]


CASES: Final[Mapping[str, tuple[Callable[[Library], Function], float | None]]] = MappingProxyType(
    {
        "steps of the Runge-Kutta method": (flow, 0.2),
        "a map applied in a scan": (iterated, None),
        "a formula": (composed, None),
        "a network of 4 layers": (network, None),
    }
)


def subjects() -> Iterator[Subject]:
    numbers = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)
    for name, (case, bound) in CASES.items():
        host = numbers.reshape(-1, 512) if case is network else numbers
        ours, theirs = fx.jit(by_jet(case(OURS), ORDER)), jax.jit(by_nesting(case(JAX), ORDER))
        x, y = fnp.asarray(host), jax.numpy.asarray(host)
        yield Subject(GROUP, f"derivative {ORDER} of {name}", _called(ours, x), _called(theirs, y), bound, 51)
    yield Subject(
        GROUP,
        "the same of a formula, traced and compiled",
        lambda: fx.jit(by_jet(composed(OURS), ORDER)).lower(numbers).compile(),
        lambda: jax.jit(by_nesting(composed(JAX), ORDER)).lower(numbers).compile(),
        0.5,
        5,
        1,
    )


def _called(f: Any, x: Any) -> Run:
    return lambda: f(x).block_until_ready()


# ------------------------------------------------------------------ growth


def rows() -> Iterator[Sequence[str]]:
    yield "order", "lines of the program, jet", "nested", "traced and compiled, jet", "nested", "a call, jet", "nested"
    host = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)
    for order in (1, 2, 3, 4, 5, 6, 7, 8, 10):
        ours = _measured(fx.jit(by_jet(composed(OURS), order)), fnp.asarray(host))
        nested = order <= HIGHEST_NESTED
        theirs = _measured(jax.jit(by_nesting(composed(JAX), order)), jax.numpy.asarray(host)) if nested else ("",) * 3
        yield str(order), *[cell for pair in zip(ours, theirs, strict=True) for cell in pair]


def _measured(f: Any, x: Any) -> tuple[str, str, str]:
    start = time.perf_counter()
    lowered = f.lower(x)
    lowered.compile()
    first = time.perf_counter() - start
    f(x).block_until_ready()
    times = []
    for _ in range(21):
        start = time.perf_counter()
        f(x).block_until_ready()
        times.append(time.perf_counter() - start)
    return f"{lowered.as_text().count(chr(10)):,}", quantity(first), quantity(sorted(times)[len(times) // 2])


def report() -> str:
    return aligned_table(list(rows()))
