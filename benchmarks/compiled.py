"""Compiled programs of both libraries: run time, number of kernels, operations, memory."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np
from attrs import astuple, frozen

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks import training, transformer
from benchmarks.harness import Subject
from benchmarks.libraries import JAX, OURS, Library
from benchmarks.report import aligned_table

GROUP = "compiled"
LARGE: Final = 100_000_000  # bytes
Function: TypeAlias = Callable[..., Any]
FREE: Final = frozenset({"parameter", "constant", "bitcast", "tuple", "get-tuple-element"})
"""Instructions that do nothing when the program runs."""


@final
@frozen
class Case:
    """A program for either library, and its arguments."""

    name: str
    function_of: Callable[[Library], Function]
    arguments: tuple[Any, ...]


@final
@frozen
class Counts:
    """XLA's analysis of a compiled program. A kernel is a fusion, or an operation outside of fusions."""

    kernels: int
    flops: int
    transcendentals: int
    bytes_accessed: int
    memory: int
    """Bytes of its arguments, results and temporaries together."""


def compiled_by(library: Library, case: Case) -> Any:
    """Compiles a program with one of the libraries."""
    return library.core.jit(case.function_of(library)).lower(*case.arguments).compile()


def counts(compiled: Any) -> Counts:
    costs = compiled.cost_analysis()
    flops, transcendentals, traffic = [int(costs.get(n, 0)) for n in ("flops", "transcendentals", "bytes accessed")]
    return Counts(kernels(compiled.as_text()), flops, transcendentals, traffic, memory(compiled.memory_analysis()))


def kernels(text: str) -> int:
    """Counts the kernels of an optimized program, in its entry computation and in the bodies of loops."""
    fused = set(re.findall(r"(?:calls|to_apply)=%?([\w.-]+)", text))
    count = 0
    inside = ""
    for line in text.splitlines():
        if opened := re.match(r"(?:ENTRY )?%?([\w.-]+) \(.*\{$", line):
            inside = opened[1]
        elif (instruction := re.match(r"\s+(?:ROOT )?%?\S+ = .*? ([a-z][\w-]*)\(", line)) and inside not in fused:
            count += instruction[1] not in FREE
    return count


def memory(analysis: Any) -> int:
    """Returns the bytes of arguments, results and temporaries in the memory analysis of either library."""
    if hasattr(analysis, "temp_bytes"):
        return int(analysis.argument_bytes + analysis.output_bytes + analysis.temp_bytes)
    return int(analysis.argument_size_in_bytes + analysis.output_size_in_bytes + analysis.temp_size_in_bytes)


# ------------------------------------------------------------------ the programs


def f32(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def below(count: int, *shape: int) -> Any:
    return np.random.default_rng(count).integers(0, count, shape).astype(np.int32)


def summed_sines(write: Callable[[Library], Function], argnums: int | tuple[int, ...] = 0) -> Callable[[Library], Any]:
    """Returns a function that makes the gradient of the sum of sines of the results of a function of arrays."""

    def function_of(library: Library) -> Any:
        function, numpy = write(library), library.numpy
        return library.core.grad(lambda *args: numpy.sum(numpy.sin(function(*args))), argnums)

    return function_of


def normalized(library: Library) -> Function:
    numpy = library.numpy

    def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
        centered = x - numpy.mean(x, axis=-1, keepdims=True)
        return centered / numpy.sqrt(numpy.var(x, axis=-1, keepdims=True) + 1e-5) * scale + shift

    return layer_norm


def cross_entropy(library: Library) -> Function:
    numpy, nn = library.numpy, library.nn

    def loss(scores: Any, labels: Any) -> Any:
        chosen = numpy.take_along_axis(nn.log_softmax(scores), labels[:, None], axis=1)
        return -numpy.mean(chosen)

    return loss


def attention(library: Library) -> Function:
    numpy, nn = library.numpy, library.nn

    def attended(q: Any, k: Any, v: Any) -> Any:
        shares = nn.softmax(numpy.einsum("bqhd,bkhd->bhqk", q, k) / 4.0)
        return numpy.einsum("bhqk,bkhd->bqhd", shares, v)

    return attended


def dense_loss(library: Library) -> Function:
    numpy = library.numpy

    def loss(weights: Any, shift: Any, x: Any, y: Any) -> Any:
        return numpy.sum((numpy.tanh(x @ weights + shift) - y) ** 2)

    return loss


def divergence(library: Library) -> Function:
    nn = library.nn
    return lambda p, q: library.numpy.sum(nn.softmax(p) * (nn.log_softmax(p) - nn.log_softmax(q)))


def gated(library: Library) -> Function:
    return lambda x, gate, weights: library.nn.silu(x @ gate) * (x @ weights)


def convolution(library: Library) -> Function:
    """Makes a grouped convolution of images with stride 2; the features are the last axis."""
    layout = ("NHWC", "HWIO", "NHWC")
    return lambda x, kernel: library.core.lax.conv_general_dilated(
        x, kernel, (2, 1), "SAME", dimension_numbers=layout, feature_group_count=2
    )


def adam(library: Library) -> Function:
    numpy = library.numpy

    def step(x: Any, slope: Any, mean: Any, square: Any, count: Any) -> Any:
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope * slope
        size = numpy.sqrt(square / (1 - 0.999**count)) + 1e-8
        return x - 0.001 * mean / (1 - 0.9**count) / size, mean, square

    return step


def rosenbrock(library: Library) -> Function:
    return lambda x: library.numpy.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


TABLE: Final = f32(64, 100)
EVERYDAY: Final = (
    Case("MLP step", lambda m: training.step_of(m.numpy, m.core.value_and_grad, 0.1), training.arguments()),
    Case("softmax", lambda m: m.nn.softmax, (TABLE,)),
    Case("softmax, gradient", summed_sines(lambda m: m.nn.softmax), (TABLE,)),
    Case("log_softmax, gradient", summed_sines(lambda m: m.nn.log_softmax), (TABLE,)),
    Case("logsumexp", lambda m: lambda x: m.nn.logsumexp(x, axis=-1), (TABLE,)),
    Case("logsumexp, gradient", summed_sines(lambda m: lambda x: m.nn.logsumexp(x, axis=-1)), (TABLE,)),
    Case("cross entropy, gradient", lambda m: m.core.grad(cross_entropy(m)), (TABLE, below(100, 64))),
    Case("cross entropy and gradient", lambda m: m.core.value_and_grad(cross_entropy(m)), (TABLE, below(100, 64))),
    Case("layer norm", normalized, (TABLE, f32(100), f32(100))),
    Case("layer norm, gradient", summed_sines(normalized, (0, 1, 2)), (TABLE, f32(100), f32(100))),
    Case(
        "attention, gradient",
        summed_sines(attention, (0, 1, 2)),
        (f32(2, 16, 4, 8), f32(2, 16, 4, 8), f32(2, 16, 4, 8)),
    ),
    Case("gelu, gradient", summed_sines(lambda m: m.nn.gelu), (TABLE,)),
    Case("silu, gradient", summed_sines(lambda m: m.nn.silu), (TABLE,)),
    Case("rows", lambda m: lambda x, i: x[i], (TABLE, below(64, 20))),
    Case("rows, gradient", summed_sines(lambda m: lambda x, i: x[i]), (TABLE, below(64, 20))),
    Case("elements, gradient", summed_sines(lambda m: lambda x, i, j: x[i, j]), (TABLE, below(64, 30), below(100, 30))),
    Case("slice, gradient", summed_sines(lambda m: lambda x: x[1:, ::2]), (TABLE,)),
    Case(
        "update of rows", lambda m: lambda x, i, y: m.numpy.asarray(x).at[i].add(y), (TABLE, below(64, 5), f32(5, 100))
    ),
    Case("cumsum", lambda m: lambda x: m.numpy.cumsum(x, axis=1), (TABLE,)),
    Case("cumsum, gradient", summed_sines(lambda m: lambda x: m.numpy.cumsum(x, axis=1)), (TABLE,)),
    Case("cumprod, gradient", summed_sines(lambda m: lambda x: m.numpy.cumprod(x, axis=1)), (TABLE,)),
    Case("prod, gradient", summed_sines(lambda m: lambda x: m.numpy.prod(x, axis=1)), (TABLE,)),
    Case("var", lambda m: lambda x: m.numpy.var(x, axis=1), (TABLE,)),
    Case("var, gradient", summed_sines(lambda m: lambda x: m.numpy.var(x, axis=1)), (TABLE,)),
    Case("std, gradient", summed_sines(lambda m: lambda x: m.numpy.std(x, axis=1)), (TABLE,)),
    Case("max, gradient", summed_sines(lambda m: lambda x: m.numpy.max(x, axis=1)), (TABLE,)),
    Case("maximum, gradient", summed_sines(lambda m: m.numpy.maximum, (0, 1)), (TABLE, TABLE[::-1])),
    Case(
        "where, gradient",
        summed_sines(lambda m: lambda x, y: m.numpy.where(x > 0, x * y, x), (0, 1)),
        (TABLE, TABLE[::-1]),
    ),
    Case("quotient, gradient", summed_sines(lambda m: lambda x, y: x / y, (0, 1)), (TABLE, 2 + f32(100) ** 2)),
    Case(
        "diagonal, gradient",
        summed_sines(lambda m: lambda x: x * x + m.numpy.exp(m.numpy.diagonal(x))),
        (f32(100, 100),),
    ),
    Case("powers, gradient", summed_sines(lambda m: lambda x: x**3 + m.numpy.sqrt(x * x + 1)), (TABLE,)),
    Case("matrix product, gradient", summed_sines(lambda m: m.numpy.matmul, (0, 1)), (f32(4, 16, 20), f32(20, 8))),
    Case(
        "einsum, gradient",
        summed_sines(lambda m: lambda x, y: m.numpy.einsum("bij,bjk->bki", x, y), (0, 1)),
        (f32(4, 16, 32), f32(4, 32, 24)),
    ),
    Case(
        "einsum of three, gradient",
        summed_sines(lambda m: lambda *xs: m.numpy.einsum("ij,jk,kl->il", *xs), (0, 1, 2)),
        (f32(16, 32), f32(32, 24), f32(24, 8)),
    ),
    Case("convolution, gradient", summed_sines(convolution, (0, 1)), (f32(2, 16, 16, 8), f32(3, 3, 4, 16))),
    Case(
        "convolutions by example, gradient",
        lambda m: m.core.vmap(summed_sines(convolution, (0, 1))(m), (0, None)),
        (f32(4, 1, 16, 16, 8), f32(3, 3, 4, 16)),
    ),
    Case(
        "concatenate, gradient",
        summed_sines(lambda m: lambda x, y: m.numpy.concatenate([x, y], 1), (0, 1)),
        (TABLE, f32(64, 50)),
    ),
    Case("hessian", lambda m: m.core.hessian(rosenbrock(m)), (f32(20),)),
    Case("jacfwd", lambda m: m.core.jacfwd(lambda w, x: m.numpy.tanh(x @ w)), (f32(16, 8), f32(16))),
    Case("jacrev", lambda m: m.core.jacrev(lambda w, x: m.numpy.tanh(x @ w)), (f32(16, 8), f32(16))),
    Case(
        "gradients by example",
        lambda m: m.core.vmap(m.core.grad(dense_loss(m), (0, 1)), (None, None, 0, 0)),
        (f32(16, 8), f32(8), f32(64, 16), f32(64, 8)),
    ),
    Case("standardized", lambda m: lambda x: (x - m.numpy.mean(x)) / m.numpy.std(x), (TABLE,)),
    Case("divergence, gradient", lambda m: m.core.grad(divergence(m), (0, 1)), (f32(64, 10), f32(64, 10)[::-1])),
    Case("gated layer, gradient", summed_sines(gated, (0, 1, 2)), (f32(64, 16), f32(16, 32), f32(16, 32))),
    Case("Adam", adam, (TABLE, TABLE[::-1], TABLE, TABLE**2, np.float32(3))),
    Case("linspace", lambda m: lambda x: m.numpy.linspace(0, x, 50), (np.float32(3),)),
)


def models(blocks: int) -> tuple[Case, Case]:
    """Returns the forward pass of a transformer and the gradient of its loss."""
    params, (tokens, targets) = transformer.parameters(blocks), transformer.text()
    return (
        Case(f"{blocks}-block transformer", transformer.forward_of, (params, tokens)),
        Case(
            f"{blocks}-block transformer, gradient",
            lambda m: m.core.grad(transformer.loss_of(m)),
            (params, tokens, targets),
        ),
    )


# ------------------------------------------------------------------ run times


def subjects() -> Iterator[Subject]:
    wait_for_jax: Callable[[object], object] = jax.block_until_ready
    for case in models(transformer.BLOCKS):
        x: Any = fx.device_put(case.arguments)
        y: Any = jax.device_put(case.arguments)
        ours: Function = functools.partial(fx.jit(case.function_of(OURS)), *x)
        theirs: Function = functools.partial(jax.jit(case.function_of(JAX)), *y)
        yield Subject(
            GROUP,
            f"{case.name}, compiled",
            functools.partial(_wait, fx.block_until_ready, ours),
            functools.partial(_wait, wait_for_jax, theirs),
            1.05,
            blocks=61,
        )
    yield large_array()


def _wait(wait: Callable[[object], object], run: Function) -> object:
    return wait(run())


def large_array() -> Subject:
    """Returns a program that reads a small part of an argument of 100 MB. A copy would take most of its time."""
    host = np.ones(LARGE // 4, np.float32)

    def beginning(x: Any) -> Any:
        return x[:8] + 1

    ours: Function = functools.partial(fx.jit(beginning), fnp.asarray(host))
    theirs: Function = functools.partial(jax.jit(beginning), jnp.asarray(host))
    return Subject(GROUP, "step on an array of 100 MB", ours, theirs, 1.2)


# ------------------------------------------------------------------ the table


def rows(cases: Iterable[Case]) -> Iterator[tuple[str, ...]]:
    """Returns a header, and for each program the figures of `Counts` of both libraries."""
    yield "ours / JAX", "kernels", "flops", "transcendentals", "bytes accessed", "memory, bytes"
    for case in cases:
        ours, theirs = [astuple(counts(compiled_by(library, case))) for library in (OURS, JAX)]
        yield case.name, *[f"{a:,} / {b:,}" for a, b in zip(ours, theirs, strict=True)]


def report() -> str:
    return aligned_table(list(rows([*models(transformer.BLOCKS), *EVERYDAY])))
