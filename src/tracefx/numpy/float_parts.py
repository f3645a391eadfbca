"""Parts of floats: mantissa and exponent, fractional and integral parts, signs, spacing, neighbours."""

from __future__ import annotations

import numpy as np

from tracefx.core import Array, ArrayLike, ShapedArray, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.operand_promotion import (
    as_operand,
    convert_dtype,
    convert_operand,
    promote_args_inexact,
    reject_out,
    to_inexact,
)
from tracefx.numpy.rounding import trunc
from tracefx.numpy.shapes import broadcast_arrays
from tracefx.numpy.ufuncs import broadcast_select, clip, literal_like, python_zero
from tracefx.ops import structural
from tracefx.ops.elementwise import abs_sign, arithmetic, atan2_nextafter, bitwise, comparison
from tracefx.ops.elementwise.bit_representation import bitcast_convert_type
from tracefx.ops.elementwise.elementwise import add
from tracefx.ops.elementwise.selection import stop_gradient
from tracefx.ops.structural import full_like_aval
from tracefx.transforms.eager_calls import eager_cached


@eager_cached(kernel=KERNELS["modf"])
def modf(x: ArrayLike, /, out: None = None) -> tuple[Array, Array]:
    """Returns the fractional and integral parts of `x`, both with its sign; an infinite number has the fraction 0.

    Args:
        x: An array or number; not complex.
        out: Not supported; must be None.

    Returns:
        The fractional and the integral parts, floats of the shape of `x`.

    Raises:
        TypeError: If `x` is complex.

    >>> modf(-1.5)
    (Array(-0.5, dtype=float32, weak_type=True), Array(-1., dtype=float32, weak_type=True))
    """
    reject_out("modf", out)
    value = to_inexact(x, "modf: x")
    whole = trunc(value)
    infinite = comparison.eq(abs_sign.abs(value), literal_like(value, np.inf))
    fraction = broadcast_select(infinite, literal_like(value, 0.0), arithmetic.sub(value, whole))
    return copysign(fraction, value), whole


@eager_cached(kernel=KERNELS["frexp"])
def frexp(x: ArrayLike, /) -> tuple[Array, Array]:
    """Decomposes `x` into a mantissa of magnitude in [0.5, 1) and an exponent: `x = mantissa * 2**exponent`.

    0, infinities and NaN are their own mantissa, with exponent 0.

    Args:
        x: An array or number; not complex.

    Returns:
        The mantissas, floats, and the exponents, `i32`, both of the shape of `x`.

    Raises:
        TypeError: If `x` is complex.

    >>> mantissa, exponent = frexp(6.0)
    >>> float(mantissa), int(exponent)
    (0.75, 3)
    """
    value = to_inexact(x, "frexp: x")
    if dtypes.is_complex(value.aval.dtype):
        raise TypeError(f"frexp is not defined for complex numbers, got {value.aval}")
    exponent = as_array(convert_dtype(_exponent(value), dtypes.int32))
    return _scale_by_power(value, arithmetic.neg(exponent)), exponent


@eager_cached(numbers=2, kernel=KERNELS["ldexp"])
def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns `x1 * 2**x2` exactly, also where `2**x2` alone is out of range.

    Args:
        x1: An array or number; not complex.
        x2: The exponents, integers broadcast against `x1`.

    Returns:
        An array of floats of the broadcast shape.

    Raises:
        ValueError: If `x1` is complex or `x2` is not of integers.

    >>> ldexp(0.75, 3)
    Array(6., dtype=float32, weak_type=True)
    """
    operands = as_operand(x1, "ldexp: x1"), as_operand(x2, "ldexp: x2")
    if dtypes.is_complex(operands[0].aval.dtype) or dtypes.is_inexact(operands[1].aval.dtype):
        raise ValueError(
            f"ldexp takes a real number and an integer exponent, got {operands[0].aval} and {operands[1].aval}"
        )
    value, power = to_inexact(x1, "ldexp: x1"), convert_dtype(operands[1], dtypes.int32)
    # Through the mantissa: XLA would multiply constant powers with each other first.
    mantissa, exponent = frexp(value)
    total = exponent + clip(power, -(1 << 14), 1 << 14)
    mantissa, total = broadcast_arrays(mantissa, total)
    large = comparison.gt(total, literal_like(total, 0))
    twice = arithmetic.mul(mantissa, literal_like(mantissa, 2.0))
    return _scale_by_power(
        broadcast_select(large, twice, mantissa),
        broadcast_select(large, arithmetic.sub(total, literal_like(total, 1)), total),
    )


def spacing(x: ArrayLike, /) -> Array:
    """Returns the distance from `x` to the next float away from 0 (in float16: the next larger), with the sign of `x`.

    Args:
        x: An array or number; not complex.

    Returns:
        An array of floats of the shape of `x`.

    Raises:
        ValueError: If `x` is complex.

    >>> spacing(1.0) == 2.0**-23
    Array(True, dtype=bool)
    """
    value = to_inexact(x, "spacing: x")
    dtype = value.aval.dtype
    if dtypes.is_complex(dtype):
        raise ValueError(f"spacing is not defined for complex numbers, got {value.aval}")
    infinity = literal_like(value, np.inf)
    if dtype == dtypes.float16:
        return arithmetic.sub(
            atan2_nextafter.nextafter(value, structural.broadcast_to(infinity, value.aval.shape)), value
        )
    outward = copysign(infinity, value)
    distance = arithmetic.sub(atan2_nextafter.nextafter(value, outward), value)
    least = copysign(literal_like(value, float(dtypes.finfo(dtype).smallest_subnormal)), value)
    return broadcast_select(comparison.eq(distance, literal_like(value, 0.0)), least, distance)


def _exponent(x: Value) -> Array:
    """Returns the exponent for `frexp`, as an integer as wide as `x`, from the bits, since logarithms are not exact."""
    dtype = x.aval.dtype
    info, bits = dtypes.finfo(dtype), dtypes.itemsize_bits(dtype)
    plain = stop_gradient(x)
    tiny = comparison.lt(abs_sign.abs(plain), literal_like(x, float(info.smallest_normal)))
    scaled = arithmetic.mul(plain, literal_like(x, 2.0**info.nmant))
    words = bitcast_convert_type(broadcast_select(tiny, scaled, plain), f"int{bits}")
    mask = literal_like(words, (1 << info.nexp) - 1)
    field = bitwise.bitwise_and(bitwise.shift_right_logical(words, literal_like(words, info.nmant)), mask)
    exponent = add(field, literal_like(words, info.minexp))
    exponent = broadcast_select(tiny, arithmetic.sub(exponent, literal_like(words, info.nmant)), exponent)
    zero_exponent = broadcast_select(
        comparison.eq(field, mask), comparison.eq(field, mask), comparison.eq(plain, literal_like(x, 0.0))
    )
    return broadcast_select(zero_exponent, literal_like(words, 0), exponent)


def _scale_by_power(x: Value, power: Array) -> Array:
    """Returns `x * 2**power` in two steps whose powers are normal numbers, built from their bits."""
    dtype = x.aval.dtype
    info, word = dtypes.finfo(dtype), dtypes.as_dtype(f"int{dtypes.itemsize_bits(dtype)}")
    bias = 1 - info.minexp
    out, remaining = x, power
    for _ in range(2):
        step = clip(remaining, info.minexp, bias)
        exponents = convert_dtype(add(step, literal_like(step, bias)), word)
        factor = bitcast_convert_type(bitwise.shift_left(exponents, convert_operand(info.nmant, word)), dtype)
        out = arithmetic.mul(out, convert_dtype(factor, dtype, x.aval.weak_type))
        remaining = arithmetic.sub(remaining, step)
    return as_array(out)


def signbit(x: ArrayLike, /) -> Array:
    """Returns whether `x` has its sign bit set, as -0.0 has and a NaN may have.

    Args:
        x: An array or number; not complex.

    Returns:
        An array of bools of the shape of `x`.

    Raises:
        ValueError: If `x` is complex.

    >>> signbit(-0.0)
    Array(True, dtype=bool)
    """
    value = as_operand(x, "signbit: x")
    dtype = value.aval.dtype
    if dtypes.is_complex(dtype) or dtypes.is_key(dtype):
        raise ValueError(
            f"signbit takes real numbers, got {value.aval}; take the real or imaginary part of complex ones"
        )
    if dtypes.is_float(dtype):
        value = bitcast_convert_type(value, f"int{dtypes.itemsize_bits(dtype)}")
    elif not dtypes.is_signed(dtype):
        return full_like_aval(ShapedArray(value.aval.shape, dtypes.bool_), False)
    return comparison.lt(value, literal_like(value, python_zero(value)))


@eager_cached(numbers=2, kernel=KERNELS["copysign"])
def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the magnitude of `x1` with the sign of `x2`, as a float.

    Args:
        x1: The magnitudes, an array or number; not complex.
        x2: The signs, broadcast against `x1`.

    Returns:
        An array of floats of the broadcast shape.

    Raises:
        TypeError: If an operand is complex.

    >>> copysign(3.0, -0.0)
    Array(-3., dtype=float32, weak_type=True)
    """
    x, y = promote_args_inexact("copysign", x1, x2)
    if dtypes.is_complex(x.aval.dtype):
        raise TypeError(f"copysign is not defined for complex numbers, got {x.aval}")
    magnitude = abs_sign.abs(x)
    return broadcast_select(signbit(y), arithmetic.neg(magnitude), magnitude)


def nextafter(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the next float after `x1` in the direction of `x2`.

    Args:
        x1: An array or number; not complex.
        x2: The direction, broadcast against `x1`.

    Returns:
        An array of floats of the broadcast shape.

    Raises:
        TypeError: If an operand is complex.

    >>> nextafter(1.0, 2.0) > 1.0
    Array(True, dtype=bool)
    """
    return atan2_nextafter.nextafter(*promote_args_inexact("nextafter", x1, x2))
