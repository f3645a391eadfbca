"""Rounding to integers and to decimals."""

from __future__ import annotations

import math
import operator

from tracefx.core import Array, ArrayLike, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.operand_promotion import as_operand, convert_dtype, reject_out, require_real
from tracefx.numpy.ufuncs import broadcast_select, floor_divide, literal_like, remainder
from tracefx.ops.elementwise import arithmetic, bitwise, comparison, elementwise, rounding
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.structural import convert, full_like_aval
from tracefx.transforms.eager_calls import eager_cached


def floor(x: ArrayLike, /) -> Array:
    """Rounds down to integers, keeping the dtype; integers are returned unchanged.

    Args:
        x: An array or number; not complex.

    Returns:
        An array of the shape and dtype of `x`.

    Raises:
        TypeError: If `x` is complex.

    >>> floor(-1.5)
    Array(-2., dtype=float32, weak_type=True)
    """
    value = require_real("floor", as_operand(x, "floor: x"))
    return rounding.floor(value) if dtypes.is_float(value.aval.dtype) else as_array(value)


def ceil(x: ArrayLike, /) -> Array:
    """Rounds up to integers, keeping the dtype; integers are returned unchanged.

    Args:
        x: An array or number; not complex.

    Returns:
        An array of the shape and dtype of `x`.

    Raises:
        TypeError: If `x` is complex.

    >>> ceil(-1.5)
    Array(-1., dtype=float32, weak_type=True)
    """
    value = require_real("ceil", as_operand(x, "ceil: x"))
    return rounding.ceil(value) if dtypes.is_float(value.aval.dtype) else as_array(value)


def trunc(x: ArrayLike) -> Array:
    """Rounds towards zero to integers, keeping the dtype; integers are returned unchanged.

    Args:
        x: An array or number; not complex.

    Returns:
        An array of the shape and dtype of `x`.

    Raises:
        TypeError: If `x` is complex.

    >>> trunc(-1.5)
    Array(-1., dtype=float32, weak_type=True)
    """
    value = require_real("trunc", as_operand(x, "trunc: x"))
    if not dtypes.is_float(value.aval.dtype):
        return as_array(value)
    below = comparison.lt(value, literal_like(value, 0.0))
    return broadcast_select(below, rounding.ceil(value), rounding.floor(value))


def rint(x: ArrayLike, /) -> Array:
    """Rounds to the nearest integer, ties to even; the result is always a float or complex number.

    Args:
        x: An array or number.

    Returns:
        An array of floats or complex numbers of the shape of `x`.

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

    Returns:
        An array of the shape and dtype of `a`.

    Raises:
        TypeError: If `a` has random keys.

    >>> round(2.567, 2)
    Array(2.57, dtype=float32, weak_type=True)
    >>> round(1350, -2)
    Array(1400, dtype=int32, weak_type=True)
    """
    reject_out("round", out)
    value = as_operand(a, "round: a")
    dtype = value.aval.dtype
    decimals = operator.index(decimals)
    if dtypes.is_key(dtype):
        raise TypeError(f"round takes numbers, got {value.aval}")
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
