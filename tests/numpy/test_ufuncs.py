"""Elementwise functions against `jax.numpy`: all dtypes, pairs of dtypes, Python and NumPy scalars
as either operand.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import (
    JAX_TRANSFORM_TOLERANCE,
    assert_calls_agree,
    assert_near,
    assert_programs_agree,
    assert_same,
)
from tests.numpy.agreement import DTYPES, both, check, f32, numbers
from tracefx.core import Array
from tracefx.testing.tolerances import ELEMENTARY

UNARY: Final = (
    *("negative", "positive", "absolute", "fabs", "sign", "square", "reciprocal", "floor", "ceil", "trunc", "rint"),
    *("round", "conjugate", "real", "imag", "exp", "exp2", "expm1", "log", "log1p", "sqrt", "cbrt", "sin", "cos"),
    *("tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "log2", "log10"),
    *("deg2rad", "rad2deg", "logical_not", "invert", "isnan", "isinf", "isposinf", "isneginf", "isfinite"),
)
BINARY: Final = (
    *("add", "subtract", "multiply", "true_divide", "floor_divide", "remainder", "fmod", "power"),
    *("maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"),
    *("left_shift", "right_shift", "hypot", "logaddexp", "arctan2"),
)
# Dtype pairs whose values are compared as well, each of which takes a compilation in JAX.
VALUES: Final = (
    *(("bool", "bool"), ("int8", "int8"), ("uint8", "int32"), ("int32", "bool"), ("uint32", "uint32")),
    *(("bfloat16", "bfloat16"), ("float16", "int8"), ("float32", "float32"), ("float64", "int64")),
    ("complex64", "complex64"),
)


def deviates(name: str, *dtypes: str) -> bool:
    """Returns whether tracefx differs from JAX for these dtypes on purpose."""
    if name == "fmod":  # for bools, JAX returns the dividend if the divisor is False, but 0 for other integers
        return set(dtypes) == {"bool"}
    if name == "logaddexp":  # not supported for complex numbers
        return "complex64" in dtypes
    return name == "power" and "complex64" in dtypes  # zero to a complex power: see test_powers_of_complex_numbers


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions(name: str) -> None:
    f, g = getattr(fnp, name), getattr(jnp, name)
    for pairs, types_only in ((itertools.product(DTYPES, DTYPES), True), (VALUES, False)):
        kept = [(one, other) for one, other in pairs if not deviates(name, one, other)]
        calls = [(numbers(one, (9,), 1), numbers(other, (9,), 2)) for one, other in kept]
        assert_calls_agree(f, g, calls, types_only=types_only, error_classes=name != "hypot")


@pytest.mark.parametrize("name", BINARY)
def test_python_scalar_as_either_operand(name: str) -> None:
    f, g = getattr(fnp, name), getattr(jnp, name)
    # JAX's `hypot` and powers of bools lose the weak type of their operands.
    weak = name not in ("hypot", "power")
    calls: list[tuple[Any, Any]] = []
    for scalar in (True, 2, 1.5, 1j, np.float64(2.5)):
        kind = "bool" if scalar is True else "complex64" if isinstance(scalar, complex) else "number"
        arrays = [numbers(d, (4,), 3) for d in ("bool", "uint8", "bfloat16") if not deviates(name, d, kind)]
        calls += [pair for x in arrays for pair in ((x, scalar), (scalar, x))]
        calls += [] if deviates(name, kind, kind) else [(scalar, 2)]
    assert_calls_agree(f, g, calls, weak=weak, error_classes=name != "hypot")


def test_incompatible_shapes_raise() -> None:
    for kind in (TypeError, ValueError):
        with pytest.raises(kind, match=r"add: shapes \(3,\), \(4,\) do not broadcast together"):
            fnp.add(fnp.ones(3), fnp.ones(4))


# ------------------------------------------------------------------ operators


def test_comparisons_of_other_values_with_arrays() -> None:
    comparisons = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
    others = (2, 1.5, np.float32(0.5), np.array([1.0, 2.0, 3.0]), np.arange(1, 4))
    assert_programs_agree([lambda _, x, f=f, y=y: f(y, x) for f in comparisons for y in others], f32([1, 2, -3]))


def test_operators_return_not_implemented_for_unknown_operands() -> None:
    x = fnp.ones(2)
    with pytest.raises(TypeError):
        operator.add(x, [1, 2])
    assert operator.eq(x, "a") is False
    assert operator.ne(x, None) is True


# ------------------------------------------------------------------ weak types, rounding, errors, derivatives


def test_weak_type_propagation() -> None:
    weak = fnp.asarray(2.0)
    assert weak.weak_type
    assert (weak * 2).weak_type
    assert (weak * fnp.ones(2, "bfloat16")).dtype == fnp.bfloat16
    assert not (weak * fnp.ones(2)).weak_type
    assert (fnp.arange(3) * 2.0).weak_type


def test_out_of_range_python_integers() -> None:
    assert_programs_agree([lambda np: np.array([1], dtype="int8") + 1000], compiled=False)
    assert (fnp.ones(1, "uint32") + 0xFFFF_FFF0).tolist() == [0xFFFF_FFF1]
    with pytest.raises(OverflowError):
        fnp.ones(1, "int32") + 2**40


def test_x64_sets_the_implicit_dtype() -> None:
    host = np.arange(3.0)
    assert (fnp.ones(3) * host).dtype == fnp.float32
    with fx.enable_x64():
        assert (fnp.ones(3) * host).dtype == fnp.float64
        assert fnp.sin(1).dtype == fnp.float64


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32"]
)
def test_round_to_negative_decimals(dtype: str) -> None:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        x, y = both(np.array([0.0, 5, 15, 25, -5, -14.9, 449, 450.5, 60000, np.inf, np.nan]).astype(kind))
        for decimals in (-1, -2, 1, 3, 5, 40):
            check(fnp.round(x, decimals), jnp.round(y, decimals))
        return
    info = np.iinfo(kind)
    values = [0, 5, 15, 25, 49, 50, 51, info.max, info.max - 5, info.min, info.min + 5, info.max // 2, info.max // 3]
    values += [-5, -15, -25, -50] if info.min else []
    x = fnp.array(np.array(values, kind), kind)
    for decimals in range(-1, -22, -1):
        unit = 10**-decimals
        expected = []
        for v in values:
            down, rest = divmod(v, unit)
            n = (down + (2 * rest > unit or (2 * rest == unit and down % 2 == 1))) * unit
            expected.append((n - int(info.min)) % (int(info.max) - int(info.min) + 1) + int(info.min))
        assert fnp.round(x, decimals).tolist() == expected
    assert fx.jit(lambda x: fnp.round(x, -1))(x).tolist() == fnp.round(x, -1).tolist()


@pytest.mark.parametrize(
    "bad", [[1, 2], (1.0,), "a", None, {}, object(), np.array(["a"])], ids=lambda x: type(x).__name__
)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_non_array_arguments_raise(name: str, bad: Any) -> None:
    f: Callable[..., Array] = getattr(fnp, name)
    if name in UNARY:
        with pytest.raises(TypeError, match=f"{name}|dtype"):
            f(bad)
    else:
        with pytest.raises(TypeError, match=f"{name}: x1|dtype"):
            f(bad, 1)
        with pytest.raises(TypeError, match=f"{name}: x2|dtype"):
            f(fnp.ones(2), bad)


def test_first_and_second_derivatives_of_logaddexp() -> None:
    """Ties and infinities are included."""
    for x, y in ((0.0, 0.0), (3.0, 3.0), (1.0, 2.0), (200.0, -200.0), (np.inf, 0.0), (-np.inf, 0.0)):
        first: Any = fx.grad(fnp.logaddexp, argnums=(0, 1))(x, y)
        second: Any = fx.grad(fx.grad(fnp.logaddexp))(x, y)
        weight = 1 / (1 + np.exp(y - x)) if abs(x) < np.inf else float(x > 0)
        expected = np.asarray([weight, 1 - weight, weight * (1 - weight)])
        assert_near(fnp.stack([*first, second]), expected, ELEMENTARY)


def test_reduceat_with_empty_indices() -> None:
    for none in (np.array([], int), fnp.array([], int)):
        for axis, shape in ((0, (0, 4)), (1, (2, 0))):
            got = fnp.add.reduceat(np.ones((2, 4)), none, axis=axis)
            assert (got.shape, got.dtype.name) == (shape, "float32")
            assert got.shape == jnp.add.reduceat(jnp.ones((2, 4)), np.asarray(none), axis=axis).shape


def test_logaddexp_of_complex_numbers() -> None:
    x = np.array([1 + 2j, -3.5 + 1j, 0, 800 + 1j, -800 + 1j, 3 - 3j, 0.5 + 9j], np.complex64)
    y = np.array([2 - 1j, 1j, 0, 800 + 2j, -800 + 2j, -3j, 1.0], np.complex64)
    for name in ("logaddexp", "logaddexp2"):
        f, g = getattr(fnp, name), getattr(jnp, name)
        assert_same(f(fnp.array(x), fnp.array(y)), g(x, y), JAX_TRANSFORM_TOLERANCE)
        assert_same(fx.jit(f)(fnp.array(x), fnp.array(y)), g(x, y), JAX_TRANSFORM_TOLERANCE)
        assert_same(f(fnp.array(x), 2.0), g(x, 2.0), JAX_TRANSFORM_TOLERANCE)
        assert_same(
            fx.jvp(f, (x[:3], y[:3]), (y[:3], x[:3])),
            jax.jvp(g, (x[:3], y[:3]), (y[:3], x[:3])),
            JAX_TRANSFORM_TOLERANCE,
        )
    got = np.asarray(fnp.logaddexp(fnp.array([complex("inf"), complex("-inf")]), fnp.array([1 + 0j, complex("-inf")])))
    np.testing.assert_array_equal(got.real, [np.inf, -np.inf])  # NaN in JAX
