"""Every elementwise primitive, tested by the properties of `tests.ops.harness`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
import pytest

import tracefx as fx
from tests.comparison import JAX_TOLERANCE, JAX_TRANSFORM_TOLERANCE, assert_agree, assert_calls_agree, assert_near
from tracefx.core import DType, NDArray, dtypes

BROADCAST_SHAPES: Final[tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]] = (
    ((3, 4), (3, 1)),
    ((1, 4), (3, 4)),
    ((3, 1), (1, 4)),
    ((3, 0), (3, 1)),
    ((1,), (0,)),
    ((2, 1, 2), (1, 3, 1)),
)
BINARY: Final = {
    "floats": (
        *("add", "sub", "mul", "div", "rem", "max", "min", "pow", "atan2", "nextafter", "complex"),
        *("eq", "ne", "lt", "le", "gt", "ge"),
    ),
    "integers": (
        *("bitwise_and", "bitwise_or", "bitwise_xor", "mulhi"),
        *("shift_left", "shift_right_logical", "shift_right_arithmetic"),
    ),
}


@pytest.mark.parametrize(("lhs_shape", "rhs_shape"), BROADCAST_SHAPES)
def test_axes_of_size_1_broadcast(lhs_shape: tuple[int, ...], rhs_shape: tuple[int, ...]) -> None:
    calls: list[tuple[str, NDArray, NDArray]] = []
    for kind, names in BINARY.items():
        dtype = np.dtype(np.float32 if kind == "floats" else np.int32)
        x = (np.arange(np.prod(lhs_shape)).reshape(lhs_shape) + 1).astype(dtype)
        y = (np.arange(np.prod(rhs_shape)).reshape(rhs_shape) + 2).astype(dtype)
        calls += [(name, x, y) for name in names]
    assert_calls_agree(
        lambda name, x, y: getattr(fx.lax, name)(x, y),
        lambda name, x, y: getattr(jax.lax, name)(x, y),
        calls,
        JAX_TRANSFORM_TOLERANCE,
    )


def test_axes_of_size_1_broadcast_in_special_functions() -> None:
    x, y = np.full((3, 1), 1.5, np.float32), np.linspace(1.2, 2, 4, dtype=np.float32).reshape(1, 4)
    first = np.full((3, 1), 2.0, np.float32)
    names = ("igamma", "igammac", "zeta", "polygamma")
    assert_agree(lambda fx, fnp: [getattr(fx.lax, name)(first, y) for name in names], JAX_TOLERANCE)
    assert_agree(lambda fx, fnp: fx.lax.betainc(x, y, x * 0.2), JAX_TOLERANCE)


def test_axes_of_size_1_broadcast_under_transformations() -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(3, dtype=np.float32).reshape(3, 1) + 1
    assert_agree(lambda fx, fnp: fx.jit(fx.lax.mul)(x, y))
    assert_agree(lambda fx, fnp: fx.grad(lambda x, y: fx.lax.mul(x, y).sum(), (0, 1))(x, y))
    assert_agree(lambda fx, fnp: fx.jit(fx.grad(lambda x, y: fx.lax.atan2(x, y).sum(), (0, 1)))(x, y))
    assert_agree(lambda fx, fnp: fx.jvp(fx.lax.div, (x, y), (x, y)))
    assert_agree(lambda fx, fnp: fx.vmap(fx.lax.sub, (0, None))(np.stack([x, 2 * x]), y))
    assert_agree(lambda fx, fnp: fx.vmap(fx.lax.sub, (None, 2), 1)(x, np.stack([y, 2 * y], 2)))
    program = fx.make_jaxpr(fx.lax.add)(x, y)
    assert [e.prim.name for e in program.eqns] == ["broadcast_in_dim", "add"]


def test_operands_that_do_not_broadcast_raise() -> None:
    wide = np.ones((3, 4), np.float32)
    for shape, words in (((2, 1), r"axis 0 differ"), ((4,), "same number of axes"), ((1, 1, 4), "number of axes")):
        with pytest.raises(TypeError, match=words):
            fx.lax.add(wide, np.ones(shape, np.float32))
        with pytest.raises(TypeError):
            jax.lax.add(wide, np.ones(shape, np.float32))


@pytest.mark.parametrize("dtype", [dtypes.float8_e4m3fnuz, dtypes.float8_e5m2fnuz], ids=dtypes.name)
def test_negative_numbers_are_rounded_in_dtypes_without_negative_zero(dtype: DType) -> None:
    x, y = np.array([-3, 3, -1.5, -0.0, -0.25, 1], np.float32).astype(dtype), np.array(2).astype(dtype)
    assert_agree(lambda fx, fnp: (fx.lax.round(x), fnp.floor_divide(x, y)), None)


LARGE: Final = np.linspace(-0.9, 3, 70_000, dtype=np.float32)


@pytest.mark.parametrize("name", ["exp", "exp2", "expm1", "log1p", "logistic", "sinh", "cosh", "tanh", "asinh"])
def test_large_arrays_are_compiled_from_the_first_call_on(name: str) -> None:
    function: Callable[[Any], Any] = getattr(fx.lax, name)
    x = fx.numpy.asarray(LARGE)
    first, second, compiled = function(x), function(x), fx.jit(function)(x)
    np.testing.assert_array_equal(np.asarray(first), np.asarray(second))
    np.testing.assert_array_equal(np.asarray(first), np.asarray(compiled))
    assert_near(first[:100], function(x[:100]))


def test_large_complex_and_half_precision_arrays_take_the_kernel() -> None:
    for dtype in (np.complex64, np.float16):
        x = LARGE.astype(dtype)
        out = fx.lax.exp(fx.numpy.asarray(x))
        assert out.dtype == dtype
        np.testing.assert_array_equal(np.asarray(out)[:100], np.asarray(fx.lax.exp(fx.numpy.asarray(x[:100]))))


def test_square_of_complex_numbers() -> None:
    """Squares of the parts overflow where their difference does not."""
    parts = [0.0, -0.0, 1.0, -3.0, 1e-30, 8e37, 3e38, -3e38, np.inf, -np.inf, np.nan]
    z = np.array([complex(a, b) for a in parts for b in parts], np.complex64)
    assert_agree(lambda F, N: [F.lax.square(z), F.jit(F.lax.square)(z)], JAX_TOLERANCE)
    assert fx.numpy.square(3e38 + 3e38j).real == 0.0
