"""Programs with loops: times of tracing and of runs, and memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import jax
import numpy as np

import tracefx as fx
from benchmarks.compiled import Case, compiled_by, memory
from benchmarks.harness import Subject
from benchmarks.libraries import JAX, OURS, Library
from benchmarks.report import aligned_table

GROUP = "loops"
Function: TypeAlias = Callable[..., Any]
BODY: Final = 300  # equations of a body that is traced
LSTM_SIZES: Final = ((256, 1, 32), (256, 8, 128), (512, 32, 64), (1024, 1, 64), (1024, 32, 128))
"""The numbers of steps, of examples and of units."""


def f32(*shape: int, scale: float = 1.0) -> Any:
    return (np.random.default_rng(sum(shape)).normal(size=shape) * scale).astype(np.float32)


# ------------------------------------------------------------------ the programs


def lstm(library: Library) -> Function:
    """Returns the mean square of the states of an LSTM."""
    numpy = library.numpy

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + numpy.exp(-x))

    def loss(params: tuple[Any, Any, Any], xs: Any) -> Any:
        input_weights, state_weights, bias = params
        width = state_weights.shape[0]

        def step(carry: tuple[Any, Any], x: Any) -> tuple[tuple[Any, Any], Any]:
            state, cell = carry
            gates = x @ input_weights + state @ state_weights + bias
            input_gate, forget_gate, output_gate, new = [gates[:, k * width : (k + 1) * width] for k in range(4)]
            cell = sigmoid(forget_gate) * cell + sigmoid(input_gate) * numpy.tanh(new)
            state = sigmoid(output_gate) * numpy.tanh(cell)
            return (state, cell), state

        zeros = numpy.zeros((xs.shape[1], width), numpy.float32)
        _, states = library.core.lax.scan(step, (zeros, zeros), xs)
        return numpy.mean(states * states)

    return loss


def lstm_arguments(steps: int, examples: int, width: int) -> tuple[Any, ...]:
    params = f32(width, 4 * width, scale=0.1), f32(width, 4 * width, scale=0.1), f32(4 * width, scale=0.1)
    return params, f32(steps, examples, width)


def times_vector(library: Library) -> Function:
    """Returns the product of a vector and the Hessian of the loss of the LSTM, forward over reverse."""

    def product(params: Any, xs: Any) -> Any:
        gradient = library.core.grad(lambda p: lstm(library)(p, xs))
        return library.core.jvp(gradient, (params,), (params,))[1]

    return product


def kalman(library: Library) -> Function:
    """Returns the log-likelihood, up to a constant, of a series under a linear model with two states."""
    numpy = library.numpy

    def likelihood(noise: Any, series: Any) -> Any:
        transition = numpy.array([[1.0, 0.1], [-0.1, 0.99]], dtype=numpy.float32)
        observation = numpy.array([1.0, 0.0], dtype=numpy.float32)

        def step(carry: tuple[Any, Any], y: Any) -> tuple[tuple[Any, Any], Any]:
            mean, covariance = carry
            mean, covariance = transition @ mean, transition @ covariance @ transition.T + noise[0] * numpy.eye(2)
            error = y - observation @ mean
            variance = observation @ covariance @ observation + noise[1]
            gain = covariance @ observation / variance
            covariance = covariance - numpy.outer(gain, observation @ covariance)
            return (mean + gain * error, covariance), -0.5 * (error * error / variance + numpy.log(variance))

        start = numpy.zeros(2, numpy.float32), numpy.eye(2, dtype=numpy.float32)
        return numpy.sum(library.core.lax.scan(step, start, series)[1])

    return likelihood


def neural_ode(library: Library) -> Function:
    """Returns the flow of a neural vector field, by the classical Runge-Kutta method, summed over squares."""
    numpy = library.numpy

    def end(weights: tuple[Any, Any], points: Any) -> Any:
        def field(x: Any) -> Any:
            return numpy.tanh(x @ weights[0]) @ weights[1]

        def step(_: Any, x: Any) -> Any:
            h = 0.02
            a = field(x)
            b = field(x + h / 2 * a)
            c = field(x + h / 2 * b)
            return x + h / 6 * (a + 2 * b + 2 * c + field(x + h * c))

        return numpy.sum(library.core.lax.fori_loop(0, 100, step, points) ** 2)

    return end


def newton(library: Library) -> Function:
    """Returns the cube root by Newton's method, batched; each element takes its own number of steps."""

    def root(a: Any) -> Any:
        not_converged = lambda x: library.numpy.abs(x * x * x - a) > 1e-4 * a  # noqa: E731
        return library.core.lax.while_loop(not_converged, lambda x: x - (x * x * x - a) / (3 * x * x), a)

    function: Function = library.core.vmap(root)
    return function


def gradient_of(write: Callable[[Library], Function], argnums: int | tuple[int, ...] = 0) -> Callable[[Library], Any]:
    return lambda library: library.core.grad(write(library), argnums)


NOISE: Final = np.array([0.1, 0.5], np.float32)
SERIES: Final = f32(1000)
FIELD: Final = ((f32(8, 64, scale=0.3), f32(64, 8, scale=0.3)), f32(32, 8))
CASES: Final = (
    (Case("LSTM, 1,000 steps", lstm, lstm_arguments(1000, 8, 64)), 1.05),
    (Case("Kalman filter", kalman, (NOISE, SERIES)), 1.05),
    (Case("Kalman filter, gradient", gradient_of(kalman), (NOISE, SERIES)), 1.05),
    (Case("neural ODE", neural_ode, FIELD), 1.05),
    (Case("neural ODE, gradient", gradient_of(neural_ode, (0, 1)), FIELD), 1.05),
    (Case("vmap of Newton's method", newton, (np.linspace(1, 1000, 1000, dtype=np.float32),)), 1.05),
    *[
        (Case(f"LSTM, gradient, {t} x {b} x {w}", gradient_of(lstm), lstm_arguments(t, b, w)), 0.7)
        for t, b, w in LSTM_SIZES
    ],
    (Case("LSTM, Hessian times vector", times_vector, lstm_arguments(512, 8, 64)), 0.7),
)

# ------------------------------------------------------------------ times


def subjects() -> Iterator[Subject]:
    yield tracing()
    wait_for_jax: Callable[[object], object] = jax.block_until_ready
    for case, bound in CASES:
        x: Any = fx.device_put(case.arguments)
        y: Any = jax.device_put(case.arguments)
        ours: Function = functools.partial(fx.jit(case.function_of(OURS)), *x)
        theirs: Function = functools.partial(jax.jit(case.function_of(JAX)), *y)
        yield Subject(
            GROUP,
            case.name,
            functools.partial(_wait, fx.block_until_ready, ours),
            functools.partial(_wait, wait_for_jax, theirs),
            bound,
            blocks=61,
        )


def _wait(wait: Callable[[object], object], run: Function) -> object:
    return wait(run())


def tracing() -> Subject:
    """Returns the tracing of the gradient of a scan, which is a new function at each call."""

    def traced(library: Library) -> Callable[[], object]:
        def run() -> object:
            numpy = library.numpy

            def step(carry: Any, x: Any) -> tuple[Any, Any]:
                for _ in range(BODY // 3):
                    carry = numpy.sin(carry) * x + 0.5
                return carry, carry

            def total(x: Any, xs: Any) -> Any:
                return library.core.lax.scan(step, x, xs)[0]

            return library.core.make_jaxpr(library.core.grad(total))(np.float32(1), np.ones(10, np.float32))

        return run

    return Subject(
        GROUP, f"make_jaxpr of the gradient of a scan, {BODY} equations", traced(OURS), traced(JAX), 0.35, 41
    )


# ------------------------------------------------------------------ memory


def chain(**options: Any) -> Function:
    """Returns the gradient of a scan of 2,000 steps that reads only the weight."""

    def total(weight: Any) -> Any:
        step = lambda h, _: (fx.numpy.tanh(h @ weight), None)  # noqa: E731
        return fx.lax.scan(step, fx.numpy.ones((64, 64)), None, length=2000, **options)[0].sum()

    return fx.grad(total)


def bounded(**options: Any) -> Function:
    def total(weight: Any) -> Any:
        def step(carry: tuple[Any, Any]) -> tuple[Any, Any]:
            i, h = carry
            return i + 1, fx.numpy.tanh(h @ weight)

        start = 0, fx.numpy.ones((64, 64))
        return fx.lax.while_loop(lambda carry: carry[0] < 2000, step, start, **options)[1].sum()

    return fx.grad(total)


def rows() -> Iterator[Sequence[str]]:
    yield "temporary and other memory of the compiled program, bytes", "ours", "JAX"
    for case, _ in CASES:
        ours, theirs = [memory(compiled_by(library, case).memory_analysis()) for library in (OURS, JAX)]
        yield case.name, f"{ours:,}", f"{theirs:,}"
    weight = np.eye(64, dtype=np.float32)
    for name, gradient in (
        ("gradient of a chain of 2,000 steps", chain()),
        ("the same, checkpoint=45", chain(checkpoint=45)),
        ('the same, checkpoint="binomial"', chain(checkpoint="binomial")),
        ("the same, while_loop(max_steps=2000)", bounded(max_steps=2000)),
    ):
        compiled: Any = fx.jit(gradient).lower(weight).compile()
        yield name, f"{memory(compiled.memory_analysis()):,}", ""


def report() -> str:
    return aligned_table(list(rows()))
