"""Elementwise arithmetic: sums, products, quotients, powers and extremes.

Every function takes arrays, NumPy arrays and numbers whose shapes broadcast, and returns one array of the promoted
dtype. An argument that is not an array or number raises a TypeError that names it; shapes that do not broadcast raise
a BroadcastError, which is both a TypeError and a ValueError.
"""

from __future__ import annotations

import builtins
import operator
from typing import Final, overload

import numpy as np

from tracefx.core import Array, ArrayLike, ConcreteArray, Literal, ShapedArray, Value, dtypes
from tracefx.core.handler import as_array, bind1, evaluating
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.operand_promotion import (
    as_operand,
    broadcast_operand_shapes,
    convert_dtype,
    promote_args_inexact,
    promote_args_numeric,
    promote_pair,
    require_real,
    rounded_literal,
    to_inexact,
    to_numeric,
)
from tracefx.numpy.ufunc_methods import (
    binary_ufunc,
    max_reduction,
    min_reduction,
    product_accumulation,
    product_reduction,
    sum_accumulation,
    sum_reduction,
    unary_ufunc,
)
from tracefx.ops.elementwise import abs_sign, arithmetic, bitwise, comparison, elementwise, powers, rounding, selection
from tracefx.ops.structural import broadcast_to, full_like_aval
from tracefx.transforms.eager_calls import eager_cached

_BOOL: Final = dtypes.bool_


def literal_like(x: Value, fill: bool | int | float) -> Literal:
    """Returns a scalar literal with the dtype and weak type of `x`."""
    return rounded_literal(fill, ShapedArray((), x.aval.dtype, x.aval.weak_type))


def broadcast_select(condition: Value, x: ArrayLike, y: ArrayLike) -> Array:
    """Returns `x` where the condition holds and `y` elsewhere; scalars are broadcast."""
    x, y = promote_pair("where", x, y)
    shape = x.aval.shape or y.aval.shape or condition.aval.shape
    if not shape:  # no broadcast, so literals stay literals
        return selection.select_n(condition, y, x)
    return selection.select_n(condition, broadcast_to(y, shape), broadcast_to(x, shape))


@overload
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike, /) -> Array: ...
@overload
def where(
    condition: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None
) -> tuple[Array, ...]: ...
def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    /,
    *,
    size: int | None = None,
    fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None,
) -> Array | tuple[Array, ...]:
    """Selects elements of `x` where the condition is true and of `y` elsewhere; with the condition alone, is `nonzero`.

    Args:
        condition: An array of bools; numbers are true where they differ from 0.
        x: The elements where the condition is true. Given together with `y` or not at all.
        y: The elements where it is false.
        size: Without `x` and `y`: the static number of indices to return, which `jit` needs.
        fill_value: Without `x` and `y`: the index that pads the result if fewer elements are nonzero; None means 0.

    Returns:
        An array of the broadcast shape, or, without `x` and `y`, a tuple of index arrays, one per axis.

    Raises:
        TypeError: If only one of `x` and `y` is given.
        ValueError: If `size` or `fill_value` is given together with `x` and `y`.

    >>> where(np.arange(4) > 1, 1.0, 0).tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    if x is None and y is None:
        return as_array(as_operand(condition, "where: condition")).nonzero(size=size, fill_value=fill_value)
    if size is not None or fill_value is not None:
        raise ValueError("where: size and fill_value cannot be combined with x and y; leave out one pair")
    if x is None or y is None:
        raise TypeError(f"where: pass both x and y or neither, got {x!r} and {y!r}")
    if evaluating():
        test, a, b = _where_operands(condition, x, y)
        if (selected := selection.select_eagerly(test, a, b)) is not None:
            return selected
    return _where(condition, x, y)


def _where_operands(condition: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[Value, Value, Value]:
    """Returns the condition as bools, and the cases in their common dtype."""
    test = as_operand(condition, "where: condition")
    if test.aval.dtype != _BOOL:
        test = comparison.ne(test, literal_like(test, python_zero(test)))
    a, b = promote_pair("where", x, y)
    return test, a, b


@eager_cached(numbers=3, fused="at the second call")
def _where(condition: ArrayLike, x: ArrayLike, y: ArrayLike) -> Array:
    """Selects elements of `x` or `y`; shapes broadcast."""
    test, a, b = _where_operands(condition, x, y)
    if test.aval.shape == a.aval.shape == b.aval.shape:
        return selection.select_n(test, b, a)
    shape = broadcast_operand_shapes("where", test.aval.shape, a.aval.shape, b.aval.shape)
    if test.aval.shape:
        test = broadcast_to(test, shape)
    return selection.select_n(test, broadcast_to(b, shape), broadcast_to(a, shape))


# ------------------------------------------------------------------ sums and products


@binary_ufunc(0, sum_reduction, sum_accumulation, "add")
def add(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Adds two arrays: `x1 + x2`. For bools, this is logical or.

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        The sums, in the promoted dtype and the broadcast shape.

    >>> add(np.arange(3), 1)
    Array([1, 2, 3], dtype=int32)
    """
    x, y = promote_pair("add", x1, x2)
    return bitwise.bitwise_or(x, y) if x.aval.dtype.kind == "b" else bind1(elementwise.ADD, x, y)


@binary_ufunc(update="subtract")
def subtract(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Subtracts two arrays: `x1 - x2`.

    Args:
        x1: An array or number; not bools.
        x2: An array or number, broadcast against `x1`.

    Returns:
        The differences, in the promoted dtype and the broadcast shape.

    Raises:
        TypeError: If both operands are bools.

    >>> subtract(np.arange(3), 1)
    Array([-1,  0,  1], dtype=int32)
    """
    return bind1(arithmetic.SUB, *promote_pair("subtract", x1, x2))


@binary_ufunc(1, product_reduction, product_accumulation, "multiply")
def multiply(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Multiplies two arrays: `x1 * x2`. For bools, this is logical and.

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        The products, in the promoted dtype and the broadcast shape.

    >>> multiply(np.arange(3), 2)
    Array([0, 2, 4], dtype=int32)
    """
    x, y = promote_pair("multiply", x1, x2)
    return bitwise.bitwise_and(x, y) if x.aval.dtype.kind == "b" else bind1(arithmetic.MUL, x, y)


@unary_ufunc
def negative(x: ArrayLike, /) -> Array:
    """Returns `-x`.

    Args:
        x: An array or number; not bools.

    Returns:
        An array of the shape and dtype of `x`. Unsigned integers wrap around.

    Raises:
        TypeError: If `x` is bools.

    >>> negative(2.0)
    Array(-2., dtype=float32, weak_type=True)
    """
    return arithmetic.neg(as_operand(x, "negative: x"))


def positive(x: ArrayLike, /) -> Array:
    """Returns `+x`, which is `x`.

    Args:
        x: An array or number.

    Returns:
        An array equal to `x`.

    >>> positive(2)
    Array(2, dtype=int32, weak_type=True)
    """
    return as_array(as_operand(x, "positive: x"))


def absolute(x: ArrayLike, /) -> Array:
    """Returns the absolute value; for complex numbers, a float.

    Args:
        x: An array or number.

    Returns:
        An array of the shape and dtype of `x`, or of floats of the same precision if `x` is complex.

    >>> absolute(-2)
    Array(2, dtype=int32, weak_type=True)
    """
    value = as_operand(x, "absolute: x")
    unchanged = dtypes.kind(value.aval.dtype) in (dtypes.DTypeKind.BOOL, dtypes.DTypeKind.UNSIGNED)
    return as_array(value) if unchanged else abs_sign.abs(value)


def fabs(x: ArrayLike, /) -> Array:
    """Returns the absolute value as a float.

    Args:
        x: An array or number; not complex.

    Returns:
        An array of floats of the shape of `x`.

    Raises:
        TypeError: If `x` is complex.

    >>> fabs(-2)
    Array(2., dtype=float32, weak_type=True)
    """
    return abs_sign.abs(require_real("fabs", to_inexact(x, "fabs: x")))


@eager_cached(fused="at the second call", kernel=KERNELS["sign"])
def sign(x: ArrayLike, /) -> Array:
    """Returns -1, 0 or 1 for negative, zero and positive `x`; for complex `x`, `x / abs(x)`. For -0.0 it returns 0.0.

    Args:
        x: An array or number; not bools.

    Returns:
        An array of the shape and dtype of `x`. NaN stays NaN.

    Raises:
        TypeError: If `x` is bools.

    >>> sign(np.float32([-3, 0, 2])).tolist()
    [-1.0, 0.0, 1.0]
    """
    value = as_operand(x, "sign: x")
    out = abs_sign.sign(value)
    if not dtypes.is_float(value.aval.dtype):
        return out
    return broadcast_select(comparison.eq(value, literal_like(value, 0.0)), literal_like(value, 0.0), out)


def square(x: ArrayLike, /) -> Array:
    """Returns `x * x`.

    Args:
        x: An array or number.

    Returns:
        An array of the shape and dtype of `x`; bools become integers.

    >>> square(3)
    Array(9, dtype=int32, weak_type=True)
    """
    return powers.square(to_numeric(x, "square: x"))


# ------------------------------------------------------------------ quotients


def true_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Divides two arrays: `x1 / x2`. Integers and bools give floats.

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        The quotients, as floats or complex numbers of the broadcast shape. Division by 0 gives infinities or NaN.

    >>> true_divide(1, 2)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return arithmetic.div(*promote_args_inexact("true_divide", x1, x2))


@eager_cached(numbers=2, fused="at the second call", kernel=KERNELS["floor_divide"])
def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the quotient rounded down: `x1 // x2`.

    Infinities follow NumPy and Python: `inf // y` is NaN unless `y` is 0, and a finite number divided by an infinity is
    -1 if the signs differ, otherwise 0.

    Args:
        x1: The dividend, an array or number; not complex.
        x2: The divisor, broadcast against `x1`.

    Returns:
        The rounded quotients, in the promoted dtype and the broadcast shape.

    Raises:
        TypeError: If an operand is complex.

    >>> floor_divide(-7, 2)
    Array(-4, dtype=int32, weak_type=True)
    """
    x, y = _require_real_pair("floor_divide", *promote_args_numeric("floor_divide", x1, x2))
    dtype = x.aval.dtype
    if dtypes.kind(dtype) is dtypes.DTypeKind.UNSIGNED:
        return arithmetic.div(x, y)
    if dtypes.is_integer(dtype):
        quotient = arithmetic.div(x, y)
        opposite = comparison.ne(abs_sign.sign(x), abs_sign.sign(y))
        inexact_ = comparison.ne(arithmetic.rem(x, y), literal_like(x, 0))
        return broadcast_select(
            bitwise.bitwise_and(opposite, inexact_), arithmetic.sub(quotient, literal_like(x, 1)), quotient
        )
    return _float_divmod(x, y)


def _float_divmod(x: Value, y: Value) -> Array:
    """Computes `x // y` by dividing `x - x % y`, so that rounding cannot push the quotient past an integer."""
    remainder_ = arithmetic.rem(x, y)
    by_zero = comparison.eq(y, literal_like(y, 0.0))
    quotient = arithmetic.div(broadcast_select(by_zero, x, arithmetic.sub(x, remainder_)), y)
    has_remainder = comparison.ne(remainder_, literal_like(x, 0.0))
    opposite = comparison.ne(abs_sign.sign(y), abs_sign.sign(remainder_))
    lowered = arithmetic.sub(quotient, literal_like(x, 1.0))
    quotient = rounding.round(broadcast_select(bitwise.bitwise_and(has_remainder, opposite), lowered, quotient))
    # A zero gets the sign of the unrounded quotient.
    exact = selection.stop_gradient(arithmetic.div(x, y))
    zero = arithmetic.mul(literal_like(x, 0.0), exact)
    return broadcast_select(comparison.eq(quotient, literal_like(x, 0.0)), zero, quotient)


@eager_cached(numbers=2, fused="at the second call", kernel=KERNELS["remainder"])
def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the remainder of the division, with the sign of `x2`: `x1 % x2`.

    Args:
        x1: The dividend, an array or number; not complex.
        x2: The divisor, broadcast against `x1`.

    Returns:
        The remainders, in the promoted dtype and the broadcast shape.

    Raises:
        TypeError: If an operand is complex.

    >>> remainder(-7, 2)
    Array(1, dtype=int32, weak_type=True)
    """
    x, y = _require_real_pair("remainder", *promote_args_numeric("remainder", x1, x2))
    y = _replace_integer_zeros(y)
    remainder_ = arithmetic.rem(x, y)
    zero = literal_like(remainder_, python_zero(remainder_))
    divisor_negative, nonzero = comparison.lt(y, zero), comparison.ne(remainder_, zero)
    wrong_sign = bitwise.bitwise_and(comparison.ne(comparison.lt(remainder_, zero), divisor_negative), nonzero)
    out = broadcast_select(wrong_sign, elementwise.add(remainder_, y), remainder_)
    if not dtypes.is_float(remainder_.aval.dtype):
        return out
    # A zero gets the sign of the divisor and the derivatives of the remainder.
    zero_with_derivative = arithmetic.sub(selection.stop_gradient(remainder_), remainder_)
    return broadcast_select(
        nonzero,
        out,
        arithmetic.sub(broadcast_select(divisor_negative, literal_like(remainder_, -0.0), zero), zero_with_derivative),
    )


def fmod(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the remainder of the division rounded towards zero, with the sign of `x1`.

    Args:
        x1: The dividend, an array or number; not complex.
        x2: The divisor, broadcast against `x1`.

    Returns:
        The remainders, in the promoted dtype and the broadcast shape.

    Raises:
        TypeError: If an operand is complex.

    >>> fmod(-7, 2)
    Array(-1, dtype=int32, weak_type=True)
    """
    x, y = _require_real_pair("fmod", *promote_args_numeric("fmod", x1, x2))
    return arithmetic.rem(x, _replace_integer_zeros(y))


@eager_cached(numbers=2, fused="at the second call", kernel=KERNELS["divmod"])
def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Array, Array]:
    """Returns the pair `(x1 // x2, x1 % x2)`.

    Args:
        x1: The dividend, an array or number; not complex.
        x2: The divisor, broadcast against `x1`.

    Returns:
        The quotients rounded down and the remainders, as `floor_divide` and `remainder` return them.

    Raises:
        TypeError: If an operand is complex.

    >>> [int(part) for part in divmod(7, 2)]
    [3, 1]
    """
    return floor_divide(x1, x2), remainder(x1, x2)


def reciprocal(x: ArrayLike, /) -> Array:
    """Returns `1 / x` as a float or complex number.

    Args:
        x: An array or number.

    Returns:
        An array of floats or complex numbers of the shape of `x`.

    >>> reciprocal(4)
    Array(0.25, dtype=float32, weak_type=True)
    """
    return powers.integer_pow(to_inexact(x, "reciprocal: x"), -1)


def python_zero(x: Value) -> int | float:
    """Returns the Python zero, 0 or 0.0, for the dtype of `x`."""
    return 0 if dtypes.is_integer(x.aval.dtype) else 0.0


def _replace_integer_zeros(y: Value) -> Value:
    """Replaces zeros of an integer divisor by 1, so that the remainder is 0 there."""
    if not dtypes.is_integer(y.aval.dtype):
        return y
    return broadcast_select(comparison.eq(y, literal_like(y, 0)), literal_like(y, 1), y)


def _require_real_pair(name: str, x: Value, y: Value) -> tuple[Value, Value]:
    return require_real(name, x), require_real(name, y)


# ------------------------------------------------------------------ powers


def power(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Raises `x1` to the power `x2`: `x1 ** x2`. A concrete integer exponent becomes multiplications.

    Args:
        x1: The base, an array or number.
        x2: The exponent, broadcast against `x1`.

    Returns:
        The powers, in the promoted dtype and the broadcast shape; bools become integers.

    Raises:
        TypeError: If the base is integers, and the exponent is a concrete negative integer.

    >>> power(np.arange(4), 2)
    Array([0, 1, 4, 9], dtype=int32)
    """
    if type(x2) is float or (type(x2) is ConcreteArray and x2.aval.shape):  # what follows takes longer
        return _power(x1, x2)
    exponent = _static_exponent(x2)
    return _power(x1, x2) if exponent is None else _integer_power(x1, exponent)


pow = power


@eager_cached
def _integer_power(x: ArrayLike, exponent: int) -> Array:
    """Raises an array to a concrete integer power by multiplications."""
    base = to_numeric(x, "power: x1")
    if exponent < 0 and dtypes.is_integer(base.aval.dtype):
        raise TypeError(
            f"power: an integer base needs a nonnegative exponent, got {base.aval} to the power {exponent}; "
            "convert the base to a float first"
        )
    return powers.integer_pow(base, exponent)


@eager_cached(numbers=2)
def _power(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Raises an array to a power that is not a concrete integer."""
    x, y = promote_args_numeric("power", x1, x2)
    base, exponent_ = as_operand(x1, "power: x1"), as_operand(x2, "power: x2")
    if dtypes.is_integer(x.aval.dtype):
        if x.aval.weak_type and _BOOL in (base.aval.dtype, exponent_.aval.dtype):  # bools become integers first
            x, y = convert_dtype(x, x.aval.dtype), convert_dtype(y, y.aval.dtype)
        return _power_by_squaring(x, y)
    if dtypes.is_inexact(base.aval.dtype) and dtypes.is_integer(exponent_.aval.dtype):
        # Integer exponents have no tangents, so the derivative with respect to the base is right at 0 too.
        shape = x.aval.shape or y.aval.shape
        x, y = [v if not v.aval.shape else broadcast_to(v, shape) for v in (base, exponent_)]
    return powers.pow(x, y)


def _static_exponent(x: ArrayLike) -> int | None:
    """Returns the exponent as an int if it is a concrete integer scalar."""
    if type(x) is int or isinstance(x, bool | np.integer):
        return operator.index(x)
    if type(x) is ConcreteArray and not x.aval.shape and dtypes.is_integer(x.aval.dtype):
        return operator.index(x)
    return None


def _power_by_squaring(x: Value, y: Value) -> Array:
    """Computes an integer power by repeated squaring, one bit of the exponent at a time; 0 for negative powers of 0."""
    one, zero = literal_like(x, 1), literal_like(x, 0)
    bits = dtypes.itemsize_bits(y.aval.dtype)
    undefined = bitwise.bitwise_and(comparison.eq(x, zero), comparison.ne(y, zero))
    shape = x.aval.shape or y.aval.shape
    result: Array = broadcast_select(
        undefined, full_like_aval(ShapedArray(shape, x.aval.dtype, x.aval.weak_type), 0), literal_like(x, 1)
    )
    for bit in range(builtins.min(bits, 6)):
        odd = comparison.ne(bitwise.bitwise_and(y, one), zero)
        result = broadcast_select(odd, arithmetic.mul(result, x), result)
        if bit < 5:
            x, y = arithmetic.mul(x, x), bitwise.shift_right_logical(y, one)
    return result


# ------------------------------------------------------------------ extremes


@binary_ufunc(None, max_reduction, update="max")
@eager_cached(numbers=2)
def maximum(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the elementwise maximum of two arrays; NaN where either is NaN.

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        The larger elements, in the promoted dtype and the broadcast shape.

    >>> maximum(np.arange(3), 1)
    Array([1, 1, 2], dtype=int32)
    """
    return arithmetic.max(*promote_pair("maximum", x1, x2))


@binary_ufunc(None, min_reduction, update="min")
@eager_cached(numbers=2)
def minimum(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the elementwise minimum of two arrays; NaN where either is NaN.

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        The smaller elements, in the promoted dtype and the broadcast shape.

    >>> minimum(np.arange(3), 1)
    Array([0, 1, 1], dtype=int32)
    """
    return arithmetic.min(*promote_pair("minimum", x1, x2))


@eager_cached(numbers=3, fused="at the second call")
def clip(arr: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """Limits the elements of `arr` to the interval from `min` to `max`.

    Args:
        arr: The array.
        min: The lower bound, broadcast against `arr`; None means no bound.
        max: The upper bound; None means no bound. It wins where it is below `min`.

    Returns:
        An array of the promoted dtype and the broadcast shape.

    Raises:
        ValueError: If an argument is complex.

    >>> clip(np.arange(5), 1, 3)
    Array([1, 1, 2, 3, 3], dtype=int32)
    """
    out = as_array(as_operand(arr, "clip: arr"))
    for bound, what in ((min, "min"), (max, "max")):
        if bound is not None and dtypes.is_complex(as_operand(bound, f"clip: {what}").aval.dtype):
            raise ValueError(f"clip: {what} is complex, and complex numbers are not ordered; clip real parts")
    if dtypes.is_complex(out.aval.dtype):
        raise ValueError(f"clip: arr is {out.aval}, and complex numbers are not ordered; clip its real part or abs")
    if min is not None:
        out = maximum(min, out)
    if max is not None:
        out = minimum(max, out)
    return out


abs = absolute
divide = true_divide
mod = remainder
