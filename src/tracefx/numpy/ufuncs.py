"""Elementwise arithmetic: sums, products, quotients, powers, extremes, rounding, parts of complex numbers.

Every function takes arrays, NumPy arrays and numbers whose shapes broadcast, and returns one array of the promoted
dtype. An argument that is not an array or number raises a TypeError that names it; shapes that do not broadcast raise
a BroadcastError, which is both a TypeError and a ValueError.
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import Final, overload

import numpy as np

from tracefx.core import dtypes
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import as_array, bind1, evaluating
from tracefx.core.literal import Literal
from tracefx.core.values import ConcreteArray, Value
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.operand_promotion import (
    as_operand,
    broadcast_operand_shapes,
    convert_dtype,
    promote_args_inexact,
    promote_args_numeric,
    promote_pair,
    reject_out,
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
from tracefx.ops.elementwise import (
    abs_sign,
    arithmetic,
    bitwise,
    comparison,
    elementwise,
    powers,
    rounding,
    selection,
)
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.structural import broadcast_to, convert, full_like_aval
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

    >>> where(np.arange(4) > 1, 1.0, 0).tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    if x is None and y is None:
        return as_array(as_operand(condition, "where: condition")).nonzero(size=size, fill_value=fill_value)
    if size is not None or fill_value is not None:
        raise ValueError("where: size and fill_value cannot be combined with x and y; leave out one pair")
    if x is None or y is None:
        raise TypeError(f"where: pass both x and y or neither, got {x!r} and {y!r}")
    test = as_operand(condition, "where: condition")
    if test.aval.dtype != _BOOL:
        test = comparison.ne(test, literal_like(test, python_zero(test)))
    a, b = promote_pair("where", x, y)
    if evaluating() and (selected := selection.select_eagerly(test, a, b)) is not None:
        return selected
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

    >>> add(np.arange(3), 1)
    Array([1, 2, 3], dtype=int32)
    """
    x, y = promote_pair("add", x1, x2)
    return bitwise.bitwise_or(x, y) if x.aval.dtype.kind == "b" else bind1(elementwise.ADD, x, y)


@binary_ufunc(update="subtract")
def subtract(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Subtracts two arrays: `x1 - x2`. Raises TypeError for bools.

    >>> subtract(np.arange(3), 1)
    Array([-1,  0,  1], dtype=int32)
    """
    return bind1(arithmetic.SUB, *promote_pair("subtract", x1, x2))


@binary_ufunc(1, product_reduction, product_accumulation, "multiply")
def multiply(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Multiplies two arrays: `x1 * x2`. For bools, this is logical and.

    >>> multiply(np.arange(3), 2)
    Array([0, 2, 4], dtype=int32)
    """
    x, y = promote_pair("multiply", x1, x2)
    return bitwise.bitwise_and(x, y) if x.aval.dtype.kind == "b" else bind1(arithmetic.MUL, x, y)


@unary_ufunc
def negative(x: ArrayLike, /) -> Array:
    """Returns `-x`. Raises TypeError for bools.

    >>> negative(2.0)
    Array(-2., dtype=float32, weak_type=True)
    """
    return arithmetic.neg(as_operand(x, "negative: x"))


def positive(x: ArrayLike, /) -> Array:
    """Returns `+x`, which is `x`.

    >>> positive(2)
    Array(2, dtype=int32, weak_type=True)
    """
    return as_array(as_operand(x, "positive: x"))


def absolute(x: ArrayLike, /) -> Array:
    """Returns the absolute value; for complex numbers, a float.

    >>> absolute(-2)
    Array(2, dtype=int32, weak_type=True)
    """
    value = as_operand(x, "absolute: x")
    return as_array(value) if value.aval.dtype.kind in "bu" else abs_sign.abs(value)


def fabs(x: ArrayLike, /) -> Array:
    """Returns the absolute value as a float. Raises TypeError for complex numbers.

    >>> fabs(-2)
    Array(2., dtype=float32, weak_type=True)
    """
    return abs_sign.abs(_require_real("fabs", to_inexact(x, "fabs: x")))


@eager_cached(kernel=KERNELS["sign"])
def sign(x: ArrayLike, /) -> Array:
    """Returns -1, 0 or 1 for negative, zero and positive `x`; for complex `x`, `x / abs(x)`. For -0.0 it returns 0.0.

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

    >>> square(3)
    Array(9, dtype=int32, weak_type=True)
    """
    return powers.square(to_numeric(x, "square: x"))


# ------------------------------------------------------------------ quotients


def true_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Divides two arrays: `x1 / x2`. Integers and bools give floats.

    >>> true_divide(1, 2)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return arithmetic.div(*promote_args_inexact("true_divide", x1, x2))


@eager_cached(numbers=2, kernel=KERNELS["floor_divide"])
def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the quotient rounded down: `x1 // x2`. Raises TypeError for complex numbers.

    Infinities follow NumPy and Python: `inf // y` is NaN unless `y` is 0, and a finite number divided by an infinity is
    -1 if the signs differ, otherwise 0.

    >>> floor_divide(-7, 2)
    Array(-4, dtype=int32, weak_type=True)
    """
    x, y = _require_real_pair("floor_divide", *promote_args_numeric("floor_divide", x1, x2))
    dtype = x.aval.dtype
    if dtype.kind == "u":
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


@eager_cached(numbers=2, kernel=KERNELS["remainder"])
def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the remainder of the division, with the sign of `x2`: `x1 % x2`. Raises TypeError for complex numbers.

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

    >>> fmod(-7, 2)
    Array(-1, dtype=int32, weak_type=True)
    """
    x, y = _require_real_pair("fmod", *promote_args_numeric("fmod", x1, x2))
    return arithmetic.rem(x, _replace_integer_zeros(y))


@eager_cached(numbers=2, kernel=KERNELS["divmod"])
def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Array, Array]:
    """Returns the pair `(x1 // x2, x1 % x2)`.

    >>> [int(part) for part in divmod(7, 2)]
    [3, 1]
    """
    return floor_divide(x1, x2), remainder(x1, x2)


def reciprocal(x: ArrayLike, /) -> Array:
    """Returns `1 / x` as a float or complex number.

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
    return _require_real(name, x), _require_real(name, y)


def _require_real(name: str, x: Value) -> Value:
    if dtypes.is_complex(x.aval.dtype):
        raise TypeError(f"{name} is not defined for complex numbers, got {x.aval}; use their real part or abs")
    return x


# ------------------------------------------------------------------ powers


def power(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Raises `x1` to the power `x2`: `x1 ** x2`. A concrete integer exponent becomes multiplications.

    Raises TypeError for an integer base with an exponent that is concrete and negative.

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

    >>> maximum(np.arange(3), 1)
    Array([1, 1, 2], dtype=int32)
    """
    return arithmetic.max(*promote_pair("maximum", x1, x2))


@binary_ufunc(None, min_reduction, update="min")
@eager_cached(numbers=2)
def minimum(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the elementwise minimum of two arrays; NaN where either is NaN.

    >>> minimum(np.arange(3), 1)
    Array([0, 1, 1], dtype=int32)
    """
    return arithmetic.min(*promote_pair("minimum", x1, x2))


@eager_cached(numbers=3)
def clip(arr: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
    """Limits the elements of `arr` to the interval from `min` to `max`.

    Args:
        arr: The array.
        min: The lower bound, broadcast against `arr`; None means no bound.
        max: The upper bound; None means no bound. It wins where it is below `min`.

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


# ------------------------------------------------------------------ rounding


def floor(x: ArrayLike, /) -> Array:
    """Rounds down to integers, keeping the dtype; integers are returned unchanged.

    >>> floor(-1.5)
    Array(-2., dtype=float32, weak_type=True)
    """
    value = _require_real("floor", as_operand(x, "floor: x"))
    return rounding.floor(value) if dtypes.is_float(value.aval.dtype) else as_array(value)


def ceil(x: ArrayLike, /) -> Array:
    """Rounds up to integers, keeping the dtype; integers are returned unchanged.

    >>> ceil(-1.5)
    Array(-1., dtype=float32, weak_type=True)
    """
    value = _require_real("ceil", as_operand(x, "ceil: x"))
    return rounding.ceil(value) if dtypes.is_float(value.aval.dtype) else as_array(value)


def trunc(x: ArrayLike) -> Array:
    """Rounds towards zero to integers, keeping the dtype; integers are returned unchanged.

    >>> trunc(-1.5)
    Array(-1., dtype=float32, weak_type=True)
    """
    value = _require_real("trunc", as_operand(x, "trunc: x"))
    if not dtypes.is_float(value.aval.dtype):
        return as_array(value)
    below = comparison.lt(value, literal_like(value, 0.0))
    return broadcast_select(below, rounding.ceil(value), rounding.floor(value))


def rint(x: ArrayLike, /) -> Array:
    """Rounds to the nearest integer, ties to even; the result is always a float or complex number.

    >>> rint(2.5)
    Array(2., dtype=float32, weak_type=True)
    """
    value = as_operand(x, "rint: x")
    return round(value) if dtypes.is_inexact(value.aval.dtype) else convert(value, dtypes.default_float())


@eager_cached
def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """Rounds `a` to a number of decimals, ties to even.

    Args:
        a: The array.
        decimals: How many decimals to keep. Negative numbers round to tens, hundreds and so on; an integer that is
            rounded beyond its dtype's range wraps around.
        out: Not supported; must be None.

    >>> round(2.567, 2)
    Array(2.57, dtype=float32, weak_type=True)
    >>> round(np.array([1250, 1350, -49]), -2).tolist()
    [1200, 1400, 0]
    """
    reject_out("round", out)
    value = as_operand(a, "round: a")
    dtype = value.aval.dtype
    decimals = operator.index(decimals)
    if not dtypes.is_inexact(dtype):
        return _round_integers(value, 10**-decimals) if decimals < 0 else as_array(value)
    if dtypes.is_complex(dtype):
        parts = [
            _round_decimals(complex_numbers.real(value), decimals),
            _round_decimals(complex_numbers.imag(value), decimals),
        ]
        return complex_numbers.complex(*parts)
    return _round_decimals(value, decimals)


around = round


def _round_decimals(x: Value, decimals: int) -> Array:
    if decimals == 0:
        return rounding.round(x, rounding.RoundingMethod.TO_NEAREST_EVEN)
    dtype, weak = x.aval.dtype, x.aval.weak_type
    if decimals > math.log10(float(dtypes.finfo(dtype).max)):
        return as_array(x)  # more decimals than any number of the dtype has
    if dtype == dtypes.float16:  # products would overflow
        x = convert_dtype(x, dtypes.float32)
    factor = literal_like(x, 10.0**decimals)
    scaled = rounding.round(arithmetic.mul(x, factor), rounding.RoundingMethod.TO_NEAREST_EVEN)
    return as_array(convert_dtype(arithmetic.div(scaled, factor), dtype, weak))


def _round_integers(x: Value, unit: int) -> Array:
    """Rounds integers to the nearest multiple of `unit`, ties to the even multiple."""
    if dtypes.is_bool(x.aval.dtype):
        return full_like_aval(x.aval, False)
    info = dtypes.iinfo(x.aval.dtype)
    low, high = int(info.min), int(info.max)
    if unit > high:  # the dtype does not hold the unit, but may hold more than half of it
        wrapped = [(n - low) % (high - low + 1) + low for n in (unit, -unit)]
        out = full_like_aval(x.aval, 0)
        if unit // 2 < high:
            out = broadcast_select(comparison.gt(x, literal_like(x, unit // 2)), literal_like(x, wrapped[0]), out)
        if unit // 2 < -low:
            out = broadcast_select(comparison.lt(x, literal_like(x, -(unit // 2))), literal_like(x, wrapped[1]), out)
        return out
    step, zero = literal_like(x, unit), literal_like(x, 0)
    remainder_ = remainder(x, step)  # in [0, unit)
    below = arithmetic.sub(x, remainder_)
    distance_up = arithmetic.sub(step, remainder_)
    odd = comparison.ne(remainder(floor_divide(x, step), literal_like(x, 2)), zero)
    up = bitwise.bitwise_or(
        comparison.gt(remainder_, distance_up), bitwise.bitwise_and(comparison.eq(remainder_, distance_up), odd)
    )
    return broadcast_select(up, elementwise.add(below, step), below)


# ------------------------------------------------------------------ complex numbers


def conjugate(x: ArrayLike, /) -> Array:
    """Returns the complex conjugate; real numbers are returned unchanged.

    >>> conjugate(1 + 2j).item()
    (1-2j)
    """
    value = as_operand(x, "conjugate: x")
    return complex_numbers.conj(value) if dtypes.is_complex(value.aval.dtype) else as_array(value)


conj = conjugate


def real(val: ArrayLike, /) -> Array:
    """Returns the real part; real numbers are returned unchanged.

    >>> real(1 + 2j).item()
    1.0
    """
    value = as_operand(val, "real: val")
    return complex_numbers.real(value) if dtypes.is_complex(value.aval.dtype) else as_array(value)


def imag(val: ArrayLike, /) -> Array:
    """Returns the imaginary part, 0 for real numbers.

    >>> imag(1 + 2j).item()
    2.0
    """
    value = as_operand(val, "imag: val")
    return complex_numbers.imag(value) if dtypes.is_complex(value.aval.dtype) else full_like_aval(value.aval, False)


abs = absolute
divide = true_divide
mod = remainder
