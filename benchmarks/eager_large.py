"""Eager functions on large arrays, of one million elements by default."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, final

import jax
import numpy as np
from attrs import frozen

import tracefx as fx
from benchmarks.harness import Subject
from benchmarks.libraries import JAX, OURS, Library

GROUP = "eager_large"
BOUND: Final = 1.0
BLOCKS: Final = 51
SIZE: Final = 1_000_000
Run: TypeAlias = Callable[[], object]
WIDTHS: Final = (784, 256, 256, 10)


@final
@frozen(eq=False)
class Large:
    """A library, and large arrays of its type."""

    library: Library
    host: Any  # f32[1000, 1000], a NumPy array
    x: Any  # f32[SIZE]
    y: Any  # f32[SIZE]
    c: Any  # bool[SIZE]
    a: Any  # f32[512, 512]
    b: Any  # f32[512, 512]

    @property
    def np(self) -> Any:
        return self.library.numpy


CALLS: Final[Mapping[str, Callable[[Large], object]]] = {
    "asarray of a NumPy array": lambda m: m.np.asarray(m.host),
    "x + y": lambda m: m.x + m.y,
    "exp(x)": lambda m: m.np.exp(m.x),
    "tanh(x)": lambda m: m.np.tanh(m.x),
    "log1p(abs(x))": lambda m: m.np.log1p(abs(m.x)),
    "expm1(x)": lambda m: m.np.expm1(m.x),
    "sigmoid(x)": lambda m: m.library.nn.sigmoid(m.x),
    "where(c, x, y)": lambda m: m.np.where(m.c, m.x, m.y),
    "where(c, x, 0.0)": lambda m: m.np.where(m.c, m.x, 0.0),
    "clip(x, -1, 1)": lambda m: m.np.clip(m.x, -1, 1),
    "maximum(x, y)": lambda m: m.np.maximum(m.x, m.y),
    "maximum(x, 0)": lambda m: m.np.maximum(m.x, 0),
    "relu(x)": lambda m: m.library.nn.relu(m.x),
    "sum(x)": lambda m: m.np.sum(m.x),
    "var(x)": lambda m: m.np.var(m.x),
    "std(x)": lambda m: m.np.std(m.x),
    "norm(x)": lambda m: m.np.linalg.norm(m.x),
    "isclose(x, y)": lambda m: m.np.isclose(m.x, m.y),
    "allclose(x, x)": lambda m: m.np.allclose(m.x, m.x),
    "nan_to_num(x)": lambda m: m.np.nan_to_num(m.x),
    "sign(x)": lambda m: m.np.sign(m.x),
    "logaddexp(x, y)": lambda m: m.np.logaddexp(m.x, m.y),
    "remainder(x, 0.3)": lambda m: m.np.remainder(m.x, 0.3),
    "a.T @ (a @ b), f32[512,512]": lambda m: m.a.T @ (m.a @ m.b),
}


def large(library: Library) -> Large:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, SIZE)).astype(np.float32)
    matrices = rng.normal(size=(2, 512, 512)).astype(np.float32)
    x, y, a, b = [library.numpy.asarray(host) for host in (first, second, *matrices)]
    return Large(library, np.ones((1000, 1000), np.float32), x, y, x > 0, a, b)


def mlp_gradient(library: Library) -> Callable[[], object]:
    """Returns the gradient of the loss of a perceptron, without `jit`."""
    numpy, rng = library.numpy, np.random.default_rng(0)
    params = [numpy.asarray(rng.normal(0, n**-0.5, (n, m)).astype(np.float32)) for n, m in itertools.pairwise(WIDTHS)]
    images = numpy.asarray(rng.normal(size=(128, WIDTHS[0])).astype(np.float32))
    labels = numpy.asarray(rng.integers(0, WIDTHS[-1], (128, 1)))

    def loss(params: list[Any]) -> Any:
        *hidden, last = params
        out = images
        for weights in hidden:
            out = numpy.tanh(out @ weights)
        return -numpy.mean(numpy.take_along_axis(library.nn.log_softmax(out @ last), labels, 1))

    return functools.partial(library.core.grad(loss), params)


def subjects() -> Iterator[Subject]:
    ours, theirs = large(OURS), large(JAX)
    wait_for_jax: Callable[[object], object] = jax.block_until_ready
    runs: dict[str, tuple[Run, Run]] = {
        name: (functools.partial(call, ours), functools.partial(call, theirs)) for name, call in CALLS.items()
    }
    runs["gradient of an MLP, not jitted"] = mlp_gradient(OURS), mlp_gradient(JAX)
    for name, (our_run, jax_run) in runs.items():
        yield Subject(
            GROUP,
            name,
            functools.partial(_finish, fx.block_until_ready, our_run),
            functools.partial(_finish, wait_for_jax, jax_run),
            BOUND,
            blocks=BLOCKS,
        )


def _finish(wait: Callable[[object], object], run: Run) -> object:
    return wait(run())
