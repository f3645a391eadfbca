"""`odeint` beside JAX's: values, gradients, pytrees, dtypes, limits and errors."""

# mypy: untyped-calls-exclude="jax"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from jax.experimental.ode import odeint as jax_odeint

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx.scipy.integrate import odeint
from tracefx.testing.tolerances import Ulps

ours: Any = odeint  # `Any`, since tests also call it with wrong types
LIBRARIES: Final = ((fx, fnp, ours), (jax, jnp, jax_odeint))
TIMES: Final = np.linspace(0.0, 1.0, 5).astype(np.float32)
SOLVED: Final = Ulps(5e9, 10_000, 32, least=1.0, relative_to_max=True)
"""Solutions whose steps differ agree within the errors of the steps: about 1e-3 in 32 bits, 1e-6 in 64 bits."""


def pendulum(np_: Any) -> Callable[..., Any]:
    def derivative(y: Any, t: Any, friction: Any, gravity: Any) -> Any:
        return np_.stack([y[1], -friction * y[1] - gravity * np_.sin(y[0]) + np_.sin(3.0 * t)])

    return derivative


def beside_jax(case: Callable[[Any, Any, Any], Any]) -> None:
    got, expected = [case(*library) for library in LIBRARIES]
    structures = fx.tree.structure(got), fx.tree.structure(fx.tree.map(np.asarray, expected))
    assert structures[0] == structures[1]
    for a, b in zip(fx.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert_near(a, b, SOLVED)


START: Final = np.array([2.0, 0.0], np.float32)


@pytest.mark.parametrize("jitted", [False, True])
def test_values_and_gradients_agree_with_jax(jitted: bool) -> None:
    def case(lib: Any, np_: Any, solve: Any) -> Any:
        def loss(y0: Any, t: Any, friction: Any, gravity: Any) -> Any:
            ys = solve(pendulum(np_), y0, t, friction, gravity, rtol=1e-6, atol=1e-6)
            return np_.sum(np_.sin(ys)), ys

        f = lib.value_and_grad(loss, (0, 1, 2, 3), has_aux=True)
        return (lib.jit(f) if jitted else f)(START, TIMES, 0.25, 9.8)

    beside_jax(case)


def test_solution_agrees_with_scipy() -> None:
    f = pendulum(np)
    with fx.enable_x64(True):
        got = odeint(pendulum(fnp), START.astype(float), TIMES.astype(float), 0.1, 2.0)
        assert got.dtype == np.float64
    expected = scipy.integrate.odeint(f, START.astype(float), TIMES.astype(float), (0.1, 2.0), rtol=1e-10, atol=1e-10)
    assert_near(got, expected, SOLVED)


def test_pytrees_and_closures() -> None:
    def case(lib: Any, np_: Any, solve: Any) -> Any:
        def loss(y0: Any, params: Any, outer: Any) -> Any:
            def derivative(y: Any, t: Any, p: Any) -> Any:
                return {"x": (y["v"], p["w"] @ y["x"][1]), "v": -outer * y["x"][0]}

            ys = solve(derivative, y0, TIMES, params, rtol=1e-6, atol=1e-6)
            return np_.sum(ys["x"][0]) + np_.sum(ys["x"][1] ** 2)

        y0 = {"x": (np.float32(1.0), np.ones(2, np.float32)), "v": np.float32(0.5)}
        params = {"w": np.array([[0.1, 0.2], [-0.3, 0.1]], np.float32)}
        return lib.grad(loss, (0, 1, 2))(y0, params, 2.0)

    beside_jax(case)


def test_complex_values() -> None:
    def case(lib: Any, np_: Any, solve: Any) -> Any:
        def loss(rate: Any, start: Any) -> Any:
            ys = solve(lambda y, t, r: 1j * r * y, start + 0j, TIMES, rate, rtol=1e-6, atol=1e-6)
            return np_.sum(np_.real(ys) * TIMES)

        return lib.value_and_grad(loss, (0, 1))(2.0, 1.5)

    beside_jax(case)


def test_batches_are_those_of_single_calls() -> None:
    def f(y0: Any, friction: Any) -> Any:
        return ours(pendulum(fnp), y0, TIMES, friction, 9.8, rtol=1e-6, atol=1e-6)

    starts, frictions = np.array([[2.0, 0.0], [0.1, 1.0]], np.float32), np.array([0.1, 2.0], np.float32)
    batched = fx.vmap(f)(starts, frictions)
    gradients = fx.vmap(fx.grad(lambda y, a: fnp.sum(f(y, a)), (0, 1)))(starts, frictions)
    for i in range(2):
        assert_near(batched[i], f(starts[i], frictions[i]), SOLVED)
        single = fx.grad(lambda y, a: fnp.sum(f(y, a)), (0, 1))(starts[i], frictions[i])
        assert_near(gradients[0][i], single[0], SOLVED)
        assert_near(gradients[1][i], single[1], SOLVED)


def test_second_derivative() -> None:
    """The solution at time 1 is `y0 * exp(rate)`, whose second derivative is the same."""

    def last(rate: Any) -> Any:
        return ours(lambda y, t, r: r * y, 2.0, TIMES, rate, rtol=1e-6, atol=1e-6)[-1]

    assert_near(fx.grad(fx.grad(last))(0.5), 2 * np.exp(0.5), SOLVED)


def test_integer_arguments_have_no_gradient() -> None:
    def f(y0: Any, rates: Any, index: Any) -> Any:
        return ours(lambda y, t, r, i: -r[i] * y, y0, TIMES, rates, index, rtol=1e-6, atol=1e-6)[-1]

    slope = fx.jit(fx.grad(f, 1))(1.0, np.array([1.0, 2.0], np.float32), 1)
    assert_near(slope, [0.0, -np.exp(-2.0)], SOLVED)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_result_has_the_dtype_of_the_initial_value(dtype: str) -> None:
    error = 0.01 if fnp.dtype(dtype).itemsize == 2 else 0.001
    solution = odeint(lambda y, t: -y, fnp.ones(3, dtype), TIMES, rtol=error, atol=error)
    assert (solution.dtype, solution.shape) == (fnp.dtype(dtype), (5, 3))
    assert_near(solution[-1], fnp.full(3, np.exp(-1.0), dtype), SOLVED)


def test_times_and_edge_cases() -> None:
    one = ours(lambda y, t: -y, np.array([1.0, 2.0], np.float32), [3.0])
    np.testing.assert_array_equal(one, [[1.0, 2.0]])
    repeated = ours(lambda y, t: -y, 1.0, [0.0, 0.0, 1.0, 1.0])
    assert_near(repeated, np.exp([0.0, 0.0, -1.0, -1.0]), SOLVED)
    constant = ours(lambda y, t: fnp.zeros_like(y), np.ones(2, np.float32), TIMES)
    np.testing.assert_array_equal(constant, np.ones((5, 2)))
    assert ours(lambda y, t: y, np.ones((2, 0), np.float32), TIMES).shape == (5, 2, 0)


# ------------------------------------------------------------------ limits


def test_steps_beyond_the_limit_are_nan() -> None:
    """JAX returns an extrapolation of the last step."""
    rapid = lambda y, t: -50.0 * (y - fnp.cos(t))  # noqa: E731
    few = ours(rapid, 1.0, [0.0, 1e-4, 10.0], mxstep=3)
    assert np.isfinite(few[:2]).all()
    assert np.isnan(few[2])
    assert np.isfinite(ours(rapid, 1.0, [0.0, 1e-4, 10.0], mxstep=100_000)).all()


def test_diverging_solution_is_nan() -> None:
    """`y = 1 / (1 - t)` has a pole at 1, which no step passes."""
    solution = ours(lambda y, t: y * y, 1.0, [0.0, 0.5, 2.0], rtol=1e-4, atol=1e-4, mxstep=10_000)
    assert_near(solution[:2], [1.0, 2.0], SOLVED)
    assert np.isnan(solution[2])


def test_largest_step_size() -> None:
    """With a pulse that a long step would miss."""

    def pulse(y: Any, t: Any) -> Any:
        return fnp.where((t > 5.0) & (t < 5.2), 1.0, 0.0)

    missed, found = [ours(pulse, 0.0, [0.0, 10.0], hmax=h, rtol=1e-3, atol=1e-3)[-1] for h in (np.inf, 0.05)]
    assert float(missed) == 0.0
    assert 0.19 < float(found) < 0.21


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda f: f(3, 1.0, TIMES), TypeError, "odeint takes a function"),
        (lambda f: f(lambda y, t: y, 1.0, np.arange(3)), TypeError, r"t must be an array of floats, got i32\[3\]"),
        (lambda f: f(lambda y, t, a: y, 1.0, TIMES, "a"), TypeError, "leaves of args must be arrays, got 'a'"),
        (lambda f: f(lambda y, t: y, 1.0, TIMES[None]), ValueError, r"one axis with at least one time, got f32\[1,5\]"),
        (lambda f: f(lambda y, t: y, 1.0, TIMES[:0]), ValueError, r"at least one time, got f32\[0\]"),
        (lambda f: f(lambda y, t: y, 1, TIMES), TypeError, r"y0 must have floats or complex numbers, got i32"),
        (lambda f: f(lambda y, t: (y, y), 1.0, TIMES), TypeError, r"must return values like y0, f32\[\].*, got \("),
        (lambda f: f(lambda y, t: y[:1], np.ones(2), TIMES), TypeError, r"like y0, f32\[2\], got f32\[1\]"),
    ],
)
def test_errors_name_the_argument(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(ours)
