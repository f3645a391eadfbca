"""Tracing: shapes and dtypes are known, values are not; static arguments and concretization errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tracefx.errors import (
    ConcretizationError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)
from tracefx.extend import Array, Eval, check_jaxpr, current

# ruff: noqa: T201


def line(function: Callable[..., Any], offset: int) -> str:
    """Returns the source location of a line of a function, `offset` lines below the first, as messages print it."""
    return f"{__file__}:{function.__code__.co_firstlineno + offset} ({function.__code__.co_qualname})"


# ------------------------------------------------------------------ tracers and side effects


def test_print_shows_tracers_and_runs_once(capsys: pytest.CaptureFixture[str]) -> None:
    @fx.jit
    def f(x: Any, y: Any) -> Any:
        print("Running f():")
        print(f"  x = {x}")
        print(f"  y = {y}")
        result = fnp.dot(x + 1, y + 1)
        print(f"  result = {result}")
        return result

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3, 4)), rng.standard_normal(4)
    first = f(x, y)
    assert capsys.readouterr().out.splitlines() == [
        "Running f():",
        "  x = StageTracer(f32[3,4])",
        "  y = StageTracer(f32[4])",
        "  result = StageTracer(f32[3])",
    ]
    assert first.dtype == np.dtype(np.float32)
    assert_near(first, np.dot(x + 1, y + 1))

    x2, y2 = rng.standard_normal((3, 4)), rng.standard_normal(4)
    second = f(x2, y2)
    assert capsys.readouterr().out == "", "the compiled program ran, not the function"
    assert_near(second, np.dot(x2 + 1, y2 + 1))

    f(x2[:2], y2)
    assert capsys.readouterr().out.startswith("Running f():\n  x = StageTracer(f32[2,4])\n")


def test_traced_operations() -> None:
    x, y = np.zeros((3, 4), np.float32), np.zeros(4, np.float32)
    closed = fx.make_jaxpr(lambda x, y: fnp.dot(x + 1, y + 1))(x, y)
    check_jaxpr(closed)
    assert closed.text(style="jax") == str(jax.make_jaxpr(lambda x, y: jnp.dot(x + 1, y + 1))(x, y))


# ------------------------------------------------------------------ control flow cannot depend on tracers


def negated(x: Any, neg: Any) -> Any:
    return -x if neg else x


def test_traced_flag_in_python_control_flow_is_an_error() -> None:
    with pytest.raises(TracerBoolConversionError, match="the argument `neg` of negated") as failed:
        fx.jit(negated)(1, True)
    message = str(failed.value)
    assert "`bool()`" in message
    assert "bool[]" in message
    assert "static_argnums" in message, "the message says what to do"
    assert isinstance(failed.value, TypeError)
    assert isinstance(current(), Eval)


@pytest.mark.parametrize("keyword", [False, True])
def test_static_flag_in_python_control_flow(keyword: bool) -> None:
    traces: list[bool] = []

    @partial(fx.jit, static_argnums=(1,))
    def f(x: Any, neg: bool) -> Any:
        traces.append(neg)
        return -x if neg else x

    def call(neg: bool) -> Any:
        return f(1, neg=neg) if keyword else f(1, neg)

    out = call(True)
    assert out == -1
    assert out.dtype == np.dtype(np.int32)
    assert out.weak_type
    assert traces == [True]
    assert call(False) == 1
    assert traces == [True, False], "traced anew for another value"
    assert call(True) == -1
    assert call(False) == 1
    assert traces == [True, False], "and not again for a known one"


def test_static_argnames() -> None:
    f = fx.jit(negated, static_argnames="neg")
    assert (f(1, True), f(1, neg=False)) == (-1, 1)


def test_static_arguments_must_be_hashable() -> None:
    with pytest.raises(ValueError, match="must be hashable"):
        fx.jit(negated, static_argnums=1)(1, [True])


# ------------------------------------------------------------------ static and traced operations


def reshaped(x: Array) -> Array:
    return x.reshape(fnp.array(x.shape).prod())  # type: ignore[arg-type]  # the error is the point


def reshaped_by_tuple(x: Array) -> Array:
    size = fnp.array(x.shape).prod()
    return x.reshape((size,))  # type: ignore[arg-type]  # the error is the point


@pytest.mark.parametrize(("function", "offset"), [(reshaped, 1), (reshaped_by_tuple, 1)])
def test_traced_shape_is_an_error(function: Callable[[Array], Array], offset: int) -> None:
    with pytest.raises(TypeError) as failed:
        fx.jit(function)(fnp.ones((2, 3)))
    message = str(failed.value)
    assert message.startswith("reshape: shape must consist of concrete integers, got (StageTracer(i32[]),), but")
    assert f"the result of reduce_prod at {line(function, offset)} is traced" in message
    assert "numpy" in message, "the message says what to do"


def test_shapes_are_static_and_values_are_traced(capsys: pytest.CaptureFixture[str]) -> None:
    @fx.jit
    def f(x: Array) -> None:
        print(f"x = {x}")
        print(f"x.shape = {x.shape}")
        print(f"product = {fnp.array(x.shape).prod()}")

    f(fnp.ones((2, 3)))
    assert capsys.readouterr().out.splitlines() == [
        "x = StageTracer(f32[2,3])",
        "x.shape = (2, 3)",
        "product = StageTracer(i32[])",
    ]


@pytest.mark.parametrize(
    "function", [lambda x: x.reshape((np.prod(x.shape),)), lambda x: x.reshape(np.prod(x.shape)), lambda x: x.ravel()]
)
def test_shape_computed_with_numpy(function: Callable[[Array], Array]) -> None:
    np.testing.assert_array_equal(fx.jit(function)(fnp.ones((2, 3))), np.ones(6, np.float32))


def test_arrays_are_concrete_outside_transformations() -> None:
    assert reshaped(fnp.ones((2, 3))).shape == (6,)


# ------------------------------------------------------------------ kinds of tracers


def divide(x: Any, y: Any) -> Any:
    return x / y if y >= 1.0 else 0.0


def test_grad_tracers_have_concrete_values() -> None:
    for argnums in (0, 1):
        for y in (2.0, 0.5):
            assert float(fx.grad(divide, argnums)(3.0, y)) == float(jax.grad(divide, argnums)(3.0, y))
    assert fx.grad(divide)(3.0, 2.0) == 0.5
    assert fx.jvp(divide, (3.0, 2.0), (1.0, 1.0)) == (1.5, -0.25)
    assert fx.grad(lambda x: x * int(x) + x.astype(float) * bool(x))(3.0) == 4.0
    with pytest.raises(ConcretizationError, match="it would have no derivative"):
        fx.grad(lambda x: x * float(x))(3.0)


def test_jit_tracers_have_no_concrete_values() -> None:
    with pytest.raises(TracerBoolConversionError, match=r"`bool\(\)`.* needs a concrete value") as failed:
        fx.jit(divide)(3.0, 2.0)
    assert f"the result of ge at {line(divide, 1)} is traced" in str(failed.value)
    assert "It depends on the argument `y` of divide. Instead of `if`" in str(failed.value)


def test_static_arguments_are_concrete() -> None:
    f = fx.jit(divide, static_argnums=1)
    assert f(3.0, 2.0) == 1.5
    assert f(3.0, 0.5) == 0.0
    assert fx.grad(f)(3.0, 2.0) == 0.5


@pytest.mark.parametrize(
    "transformed",
    [
        lambda: fx.jit(fx.grad(divide))(3.0, 2.0),
        lambda: fx.grad(fx.jit(divide))(3.0, 2.0),
        lambda: fx.jit(lambda x, y: fx.jvp(divide, (x, y), (x, y)))(3.0, 2.0),
        lambda: fx.vmap(divide)(np.ones(3), np.ones(3)),
        lambda: fx.grad(lambda x, y: fx.vmap(divide)(x, y).sum())(np.ones(3), np.ones(3)),
        lambda: fx.make_jaxpr(divide)(3.0, 2.0),
        lambda: fx.eval_shape(divide, 3.0, 2.0),
    ],
)
def test_tracers_over_abstract_tracers_are_abstract(transformed: Callable[[], object]) -> None:
    with pytest.raises(TracerBoolConversionError):
        transformed()
    assert isinstance(current(), Eval)


@pytest.mark.parametrize(
    ("convert", "error", "target"),
    [
        (
            lambda y: bool(y >= 1),
            TracerBoolConversionError,
            "`bool()`, which `if`, `while`, `and`, `or` and `not` call,",
        ),
        (bool, TracerBoolConversionError, "`bool()`"),
        (int, TracerIntegerConversionError, "`int()`"),
        (float, ConcretizationError, "`float()`"),
        (complex, ConcretizationError, "`complex()`"),
        (range, TracerIntegerConversionError, "a Python integer"),
        (lambda y: [10, 20][y], TracerIntegerConversionError, "a Python integer"),
        (np.sin, TracerArrayConversionError, "a NumPy array"),
        (np.asarray, TracerArrayConversionError, "a NumPy array"),
        (lambda y: y.item(), ConcretizationError, "`item()`"),
        (lambda y: y.tolist(), ConcretizationError, "`tolist()`"),
    ],
)
def test_conversions_of_abstract_tracers_are_errors(
    convert: Callable[[Any], object], error: type[Exception], target: str
) -> None:
    def converted(y: Any) -> Any:
        convert(y)
        return y

    with pytest.raises(error, match=f"^{re.escape(target)}(, .*)? needs a concrete value, but the "):
        fx.jit(converted)(1)
    assert converted(fnp.asarray(1)) == 1, "numbers convert"
