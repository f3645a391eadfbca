"""Laplacians of functions of 100 inputs: in one forward pass, and as the trace of `jax.hessian`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import tracefx as fx
from benchmarks.harness import Subject
from benchmarks.libraries import JAX, OURS, Library
from tracefx.handlers import laplacian

GROUP = "laplacian"
INPUTS: Final = 100

Function: TypeAlias = Callable[..., Any]


def network(library: Library) -> Function:
    """Returns a perceptron with scalar output and the activation `tanh`."""

    def f(weights: Sequence[Any], x: Any) -> Any:
        for w in weights[:-1]:
            x = library.numpy.tanh(x @ w)
        return (x @ weights[-1])[0]

    return f


def attention(library: Library) -> Function:
    """Returns the logarithm of a wave function of 50 points of a plane, with one layer of attention."""
    numpy = library.numpy

    def f(weights: Sequence[Any], x: Any) -> Any:
        first, query, key, value, last, readout = weights
        h = numpy.tanh(x.reshape(-1, 2) @ first)
        scores = (h @ query) @ (h @ key).T
        e = numpy.exp(scores - scores.max(-1, keepdims=True))
        h = h + numpy.tanh((e / e.sum(-1, keepdims=True)) @ (h @ value))
        h = h + numpy.tanh(h @ last)
        return (h @ readout).sum()

    return f


def weights(*shapes: tuple[int, int]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [(rng.normal(size=s) / s[0] ** 0.5).astype(np.float32) for s in shapes]


def layers(*widths: int) -> list[Any]:
    return weights(*zip((INPUTS, *widths), (*widths, 1), strict=True))


CASES: Final[Sequence[tuple[str, Callable[[Library], Function], list[Any], int | None, float | None]]] = (
    ("a network of 2 layers of 64", network, layers(64, 64), None, 0.5),
    ("the same, 64 points", network, layers(64, 64), 64, 0.5),
    ("a network of 4 layers of 256", network, layers(*[256] * 4), None, None),
    ("the same, 16 points", network, layers(*[256] * 4), 16, None),
    (
        "attention between 50 points of a plane",
        attention,
        weights((2, 32), (32, 16), (32, 16), (32, 32), (32, 32), (32, 1)),
        None,
        0.5,
    ),
)


def subjects() -> Iterator[Subject]:
    for name, write, params, batch, bound in CASES:
        shape = (INPUTS,) if batch is None else (batch, INPUTS)
        host: Any = params, np.random.default_rng(1).normal(size=shape).astype(np.float32)
        ours: Function = laplacian(write(OURS), 1)
        theirs = hessian_trace(write(JAX))
        if batch is not None:
            ours, theirs = fx.vmap(ours, (None, 0)), jax.vmap(theirs, (None, 0))
        yield Subject(
            GROUP,
            f"Laplacian of {name}",
            _called(fx.jit(ours), fx.device_put(host)),
            _called(jax.jit(theirs), jax.device_put(host)),
            bound,
            51,
        )


def hessian_trace(f: Function) -> Function:
    hessian: Function = jax.hessian(f, 1)
    return lambda params, x: jnp.trace(hessian(params, x))


def _called(f: Function, args: Any) -> Callable[[], object]:
    return lambda: f(*args).block_until_ready()
