"""Elementwise truth values: comparisons, logical and bitwise operators, classification of numbers."""

from __future__ import annotations

import math

from tracefx.core import Array, ArrayLike, ShapedArray, Value, dtypes
from tracefx.core.handler import bind1
from tracefx.numpy.operand_promotion import (
    as_operand,
    broadcast_operand_shapes,
    promote_args_numeric,
    promote_pair,
    reject_out,
)
from tracefx.numpy.ufunc_methods import binary_ufunc
from tracefx.numpy.ufuncs import broadcast_select, literal_like, python_zero
from tracefx.ops.elementwise import abs_sign, bitwise, comparison
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.structural import broadcast_to, full_like_aval

# ------------------------------------------------------------------ comparisons


def equal(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns `x1 == x2` element by element.

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        An array of bools of the broadcast shape.

    >>> equal(1, 1.0)
    Array(True, dtype=bool)
    """
    return bind1(comparison.EQ, *promote_pair("equal", x1, x2))


def not_equal(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns `x1 != x2` element by element.

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        An array of bools of the broadcast shape.

    >>> not_equal(1, 1.0)
    Array(False, dtype=bool)
    """
    return bind1(comparison.NE, *promote_pair("not_equal", x1, x2))


def less(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns `x1 < x2` element by element; complex numbers compare lexicographically, real parts first.

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        An array of bools of the broadcast shape.

    >>> less(1, 2.0)
    Array(True, dtype=bool)
    """
    return _compare_lexicographically(comparison.LT, *promote_pair("less", x1, x2))


def less_equal(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns `x1 <= x2` element by element; complex numbers compare lexicographically, real parts first.

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        An array of bools of the broadcast shape.

    >>> less_equal(1, 2.0)
    Array(True, dtype=bool)
    """
    return _compare_lexicographically(comparison.LE, *promote_pair("less_equal", x1, x2))


def greater(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns `x1 > x2` element by element; complex numbers compare lexicographically, real parts first.

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        An array of bools of the broadcast shape.

    >>> greater(1, 2.0)
    Array(False, dtype=bool)
    """
    return _compare_lexicographically(comparison.GT, *promote_pair("greater", x1, x2))


def greater_equal(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns `x1 >= x2` element by element; complex numbers compare lexicographically, real parts first.

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        An array of bools of the broadcast shape.

    >>> greater_equal(1, 2.0)
    Array(False, dtype=bool)
    """
    return _compare_lexicographically(comparison.GE, *promote_pair("greater_equal", x1, x2))


def _compare_lexicographically(order: comparison.Comparison, x: Value, y: Value) -> Array:
    """Compares two values; complex numbers by their real parts, then by their imaginary parts."""
    if x.aval.dtype.kind != "c":
        return bind1(order, x, y)
    a, b = complex_numbers.real(x), complex_numbers.real(y)
    in_parts = bind1(order, complex_numbers.imag(x), complex_numbers.imag(y))
    return broadcast_select(bind1(comparison.EQ, a, b), in_parts, bind1(order, a, b))


# ------------------------------------------------------------------ logic


def convert_to_bool(x: ArrayLike, what: str) -> Value:
    """Returns `x` as bools: True where it differs from 0."""
    value = as_operand(x, what)
    if dtypes.is_key(value.aval.dtype):
        raise TypeError(f"{what} must be an array of numbers, got {value.aval}: keys are neither true nor false")
    return value if value.aval.dtype == dtypes.bool_ else comparison.ne(value, literal_like(value, python_zero(value)))


def _bool_operands(name: str, x1: ArrayLike, x2: ArrayLike) -> list[Value]:
    values = [convert_to_bool(x1, f"{name}: x1"), convert_to_bool(x2, f"{name}: x2")]
    shape = broadcast_operand_shapes(name, *[v.aval.shape for v in values])
    return [broadcast_to(v, shape) if v.aval.shape else v for v in values]


@binary_ufunc(True)
def logical_and(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns whether both `x1` and `x2` are true (differ from 0).

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        An array of bools of the broadcast shape.

    >>> logical_and(1, 2.0)
    Array(True, dtype=bool)
    """
    return bitwise.bitwise_and(*_bool_operands("logical_and", x1, x2))


@binary_ufunc(False)
def logical_or(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns whether `x1` or `x2` is true (differs from 0).

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        An array of bools of the broadcast shape.

    >>> logical_or(1, 2.0)
    Array(True, dtype=bool)
    """
    return bitwise.bitwise_or(*_bool_operands("logical_or", x1, x2))


@binary_ufunc(False)
def logical_xor(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns whether exactly one of `x1` and `x2` is true (differs from 0).

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        An array of bools of the broadcast shape.

    >>> logical_xor(1, 2.0)
    Array(False, dtype=bool)
    """
    return bitwise.bitwise_xor(*_bool_operands("logical_xor", x1, x2))


def logical_not(x: ArrayLike, /) -> Array:
    """Returns whether `x` is false: 0 or False.

    Args:
        x: An array or number.

    Returns:
        An array of bools of the shape of `x`.

    >>> logical_not(2.0)
    Array(False, dtype=bool)
    """
    return bitwise.bitwise_not(convert_to_bool(x, "logical_not: x"))


# ------------------------------------------------------------------ bits


@binary_ufunc(-1)
def bitwise_and(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the bitwise and, `x1 & x2`, of integers or bools.

    Args:
        x1: An array or number, of integers or bools.
        x2: An array or number, broadcast against `x1`.

    Returns:
        An array of the promoted dtype and the broadcast shape.

    Raises:
        TypeError: If an operand is of another dtype.

    >>> bitwise_and(6, 5)
    Array(4, dtype=int32, weak_type=True)
    """
    return bitwise.bitwise_and(*promote_pair("bitwise_and", x1, x2))


@binary_ufunc(0)
def bitwise_or(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the bitwise or, `x1 | x2`, of integers or bools.

    Args:
        x1: An array or number, of integers or bools.
        x2: An array or number, broadcast against `x1`.

    Returns:
        An array of the promoted dtype and the broadcast shape.

    Raises:
        TypeError: If an operand is of another dtype.

    >>> bitwise_or(6, 5)
    Array(7, dtype=int32, weak_type=True)
    """
    return bitwise.bitwise_or(*promote_pair("bitwise_or", x1, x2))


@binary_ufunc(0)
def bitwise_xor(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the bitwise exclusive or, `x1 ^ x2`, of integers or bools.

    Args:
        x1: An array or number, of integers or bools.
        x2: An array or number, broadcast against `x1`.

    Returns:
        An array of the promoted dtype and the broadcast shape.

    Raises:
        TypeError: If an operand is of another dtype.

    >>> bitwise_xor(6, 5)
    Array(3, dtype=int32, weak_type=True)
    """
    return bitwise.bitwise_xor(*promote_pair("bitwise_xor", x1, x2))


def invert(x: ArrayLike, /) -> Array:
    """Returns the bitwise complement, `~x`, of integers or bools.

    Args:
        x: An array or number, of integers or bools.

    Returns:
        An array of the shape and dtype of `x`.

    Raises:
        TypeError: If `x` is of another dtype.

    >>> invert(5)
    Array(-6, dtype=int32, weak_type=True)
    """
    return bitwise.bitwise_not(as_operand(x, "invert: x"))


def left_shift(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Shifts the bits of integers left: `x1 << x2`, 0 where all bits are shifted out.

    Args:
        x1: An array or number, of integers.
        x2: How many bits to shift by, broadcast against `x1`.

    Returns:
        An array of the promoted dtype and the broadcast shape.

    Raises:
        TypeError: If an operand is not of integers.

    >>> left_shift(1, 3)
    Array(8, dtype=int32, weak_type=True)
    """
    return bitwise.shift_left(*promote_args_numeric("left_shift", x1, x2))


def right_shift(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Shifts the bits of integers right: `x1 >> x2`. Signed integers keep their sign.

    Args:
        x1: An array or number, of integers.
        x2: How many bits to shift by, broadcast against `x1`.

    Returns:
        An array of the promoted dtype and the broadcast shape.

    Raises:
        TypeError: If an operand is not of integers.

    >>> right_shift(-8, 1)
    Array(-4, dtype=int32, weak_type=True)
    """
    x, y = promote_args_numeric("right_shift", x1, x2)
    if dtypes.kind(x.aval.dtype) is dtypes.DTypeKind.UNSIGNED:
        return bitwise.shift_right_logical(x, y)
    return bitwise.shift_right_arithmetic(x, y)


# ------------------------------------------------------------------ classification of numbers


def isnan(x: ArrayLike, /) -> Array:
    """Returns whether `x` is NaN; for complex numbers, whether either part is.

    Args:
        x: An array or number.

    Returns:
        An array of bools of the shape of `x`.

    >>> isnan(math.nan)
    Array(True, dtype=bool)
    """
    value = as_operand(x, "isnan: x")
    return comparison.ne(value, value)


def isinf(x: ArrayLike, /) -> Array:
    """Returns whether `x` is infinite; for complex numbers, whether either part is.

    Args:
        x: An array or number.

    Returns:
        An array of bools of the shape of `x`.

    >>> isinf(-math.inf)
    Array(True, dtype=bool)
    """
    value = as_operand(x, "isinf: x")
    if dtypes.is_complex(value.aval.dtype):
        return bitwise.bitwise_or(isinf(complex_numbers.real(value)), isinf(complex_numbers.imag(value)))
    if not dtypes.is_float(value.aval.dtype):
        return _full_bool(value, False)
    return comparison.eq(abs_sign.abs(value), literal_like(value, math.inf))


def isposinf(x: ArrayLike, /, out: None = None) -> Array:
    """Returns whether `x` is positive infinity.

    Args:
        x: An array or number; not complex.
        out: Not supported; must be None.

    Returns:
        An array of bools of the shape of `x`.

    Raises:
        TypeError: If `x` is complex.

    >>> isposinf(math.inf)
    Array(True, dtype=bool)
    """
    return _is_infinity(math.inf, "isposinf", x, out)


def isneginf(x: ArrayLike, /, out: None = None) -> Array:
    """Returns whether `x` is negative infinity.

    Args:
        x: An array or number; not complex.
        out: Not supported; must be None.

    Returns:
        An array of bools of the shape of `x`.

    Raises:
        TypeError: If `x` is complex.

    >>> isneginf(math.inf)
    Array(False, dtype=bool)
    """
    return _is_infinity(-math.inf, "isneginf", x, out)


def isfinite(x: ArrayLike, /) -> Array:
    """Returns whether `x` is neither infinite nor NaN; for complex numbers, whether both parts are finite.

    Args:
        x: An array or number.

    Returns:
        An array of bools of the shape of `x`.

    >>> isfinite(1.0)
    Array(True, dtype=bool)
    """
    value = as_operand(x, "isfinite: x")
    if dtypes.is_complex(value.aval.dtype):
        return bitwise.bitwise_and(isfinite(complex_numbers.real(value)), isfinite(complex_numbers.imag(value)))
    return complex_numbers.is_finite(value) if dtypes.is_float(value.aval.dtype) else _full_bool(value, True)


def _full_bool(x: Value, fill: bool) -> Array:
    return full_like_aval(ShapedArray(x.aval.shape, dtypes.bool_), fill)


def _is_infinity(infinity: float, name: str, x: ArrayLike, out: None) -> Array:
    reject_out(name, out)
    value = as_operand(x, f"{name}: x")
    if dtypes.is_complex(value.aval.dtype):
        raise TypeError(f"{name} is not defined for complex numbers, got {value.aval}")
    return (
        comparison.eq(value, literal_like(value, infinity))
        if dtypes.is_float(value.aval.dtype)
        else _full_bool(value, False)
    )


bitwise_not = invert
bitwise_invert = invert
bitwise_left_shift = left_shift
bitwise_right_shift = right_shift
