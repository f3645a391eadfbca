"""Exponentials, logarithms, roots, trigonometric and hyperbolic functions, element by element.

Integers and bools are converted to the default float. An argument that is not an array or number raises a TypeError
that names it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tracefx.core import Array, ArrayLike, ShapedArray, Value, dtypes
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.operand_promotion import (
    convert_dtype,
    dtype_and_weak_type,
    promote_args_inexact,
    rounded_literal,
    to_inexact,
)
from tracefx.numpy.ufunc_methods import binary_ufunc
from tracefx.numpy.ufuncs import broadcast_select, literal_like
from tracefx.ops.elementwise import (
    abs_sign,
    arithmetic,
    atan2_nextafter,
    bitwise,
    comparison,
    elementwise,
    hyperbolic,
    inverse_trigonometric,
    powers,
    rounding,
    transcendental,
)
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.transforms.eager_calls import eager_cached


def exp(x: ArrayLike, /) -> Array:
    """Returns the exponential, `e ** x`.

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> exp(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return transcendental.exp(to_inexact(x, "exp: x"))


def exp2(x: ArrayLike, /) -> Array:
    """Returns `2 ** x`.

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> exp2(3.0)
    Array(8., dtype=float32, weak_type=True)
    """
    return transcendental.exp2(to_inexact(x, "exp2: x"))


def expm1(x: ArrayLike, /) -> Array:
    """Returns `exp(x) - 1`, accurate near 0 too.

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> expm1(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return transcendental.expm1(to_inexact(x, "expm1: x"))


def log(x: ArrayLike, /) -> Array:
    """Returns the natural logarithm.

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`: -inf at 0, NaN for negative floats. Complex logarithms have imaginary parts in
        [-pi, pi].

    >>> log(1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return transcendental.log(to_inexact(x, "log: x"))


def log1p(x: ArrayLike, /) -> Array:
    """Returns `log(1 + x)`, accurate near 0 too.

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`: -inf at -1, NaN for floats below.

    >>> log1p(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return transcendental.log1p(to_inexact(x, "log1p: x"))


def sqrt(x: ArrayLike, /) -> Array:
    """Returns the square root; NaN for negative floats, the root with a nonnegative real part for complex numbers.

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> sqrt(9)
    Array(3., dtype=float32, weak_type=True)
    """
    return transcendental.sqrt(to_inexact(x, "sqrt: x"))


def cbrt(x: ArrayLike, /) -> Array:
    """Returns the cube root.

    Args:
        x: An array or number; not complex.

    Returns:
        An array of floats of the shape of `x`, with the signs of `x`.

    Raises:
        TypeError: If `x` is complex.

    >>> cbrt(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return transcendental.cbrt(to_inexact(x, "cbrt: x"))


def sin(x: ArrayLike, /) -> Array:
    """Returns the sine of `x` in radians.

    Args:
        x: An array or number: angles in radians.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> sin(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return transcendental.sin(to_inexact(x, "sin: x"))


def cos(x: ArrayLike, /) -> Array:
    """Returns the cosine of `x` in radians.

    Args:
        x: An array or number: angles in radians.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> cos(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return transcendental.cos(to_inexact(x, "cos: x"))


def tan(x: ArrayLike, /) -> Array:
    """Returns the tangent of `x` in radians.

    Args:
        x: An array or number: angles in radians.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> tan(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return transcendental.tan(to_inexact(x, "tan: x"))


def arcsin(x: ArrayLike, /) -> Array:
    """Returns the inverse sine, an angle in [-pi/2, pi/2].

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`: angles in radians, NaN for floats outside [-1, 1].

    >>> arcsin(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return inverse_trigonometric.asin(to_inexact(x, "arcsin: x"))


def arccos(x: ArrayLike, /) -> Array:
    """Returns the inverse cosine, an angle in [0, pi].

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`: angles in radians, NaN for floats outside [-1, 1].

    >>> arccos(1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return inverse_trigonometric.acos(to_inexact(x, "arccos: x"))


def arctan(x: ArrayLike, /) -> Array:
    """Returns the inverse tangent, an angle in [-pi/2, pi/2].

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`: angles in radians.

    >>> arctan(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return inverse_trigonometric.atan(to_inexact(x, "arctan: x"))


def sinh(x: ArrayLike, /) -> Array:
    """Returns the hyperbolic sine.

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> sinh(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return hyperbolic.sinh(to_inexact(x, "sinh: x"))


def cosh(x: ArrayLike, /) -> Array:
    """Returns the hyperbolic cosine.

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> cosh(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return hyperbolic.cosh(to_inexact(x, "cosh: x"))


def tanh(x: ArrayLike, /) -> Array:
    """Returns the hyperbolic tangent.

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> tanh(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return hyperbolic.tanh(to_inexact(x, "tanh: x"))


def arcsinh(x: ArrayLike, /) -> Array:
    """Returns the inverse hyperbolic sine.

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> arcsinh(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return hyperbolic.asinh(to_inexact(x, "arcsinh: x"))


def arccosh(x: ArrayLike, /) -> Array:
    """Returns the inverse hyperbolic cosine; NaN below 1.

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> arccosh(1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return hyperbolic.acosh(to_inexact(x, "arccosh: x"))


def arctanh(x: ArrayLike, /) -> Array:
    """Returns the inverse hyperbolic tangent; NaN outside [-1, 1].

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> arctanh(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return hyperbolic.atanh(to_inexact(x, "arctanh: x"))


@eager_cached(numbers=2)
def arctan2(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the angle in [-pi, pi] of the point `(x2, x1)`: the inverse tangent of `x1 / x2` in the right quadrant.

    Args:
        x1: The second coordinates (y).
        x2: The first coordinates (x), broadcast against `x1`.

    Returns:
        The angles in radians, an array of the broadcast shape.

    >>> arctan2(0.0, 1.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return atan2_nextafter.atan2(*promote_args_inexact("arctan2", x1, x2))


def log2(x: ArrayLike, /) -> Array:
    """Returns the logarithm to base 2.

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`: -inf at 0, NaN for negative floats.

    >>> log2(1.0)
    Array(0., dtype=float32)
    """
    value = to_inexact(x, "log2: x")
    two = rounded_literal(2.0, ShapedArray((), dtypes.real_dtype(value.aval.dtype)))
    return _scale_complex_parts(arithmetic.div, transcendental.log(value), transcendental.log(two))


def log10(x: ArrayLike, /) -> Array:
    """Returns the logarithm to base 10.

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`: -inf at 0, NaN for negative floats.

    >>> log10(1.0)
    Array(0., dtype=float32)
    """
    value = to_inexact(x, "log10: x")
    scale = rounded_literal(1 / math.log(10), ShapedArray((), dtypes.real_dtype(value.aval.dtype)))
    return _scale_complex_parts(arithmetic.mul, transcendental.log(value), scale)


def _scale_complex_parts(scaled: Callable[[Value, Value], Array], x: Array, by: Value) -> Array:
    """Scales complex numbers part by part: a complex product would turn an infinite part into NaN."""
    if not dtypes.is_complex(x.aval.dtype):
        return scaled(x, by)
    return complex_numbers.complex(scaled(complex_numbers.real(x), by), scaled(complex_numbers.imag(x), by))


def deg2rad(x: ArrayLike, /) -> Array:
    """Converts degrees to radians.

    Args:
        x: An array or number: angles in degrees.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> deg2rad(0)
    Array(0., dtype=float32, weak_type=True)
    """
    value = to_inexact(x, "deg2rad: x")
    return arithmetic.mul(value, literal_like(value, math.pi / 180))


def rad2deg(x: ArrayLike, /) -> Array:
    """Converts radians to degrees.

    Args:
        x: An array or number: angles in radians.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> rad2deg(0)
    Array(0., dtype=float32, weak_type=True)
    """
    value = to_inexact(x, "rad2deg: x")
    return arithmetic.mul(value, literal_like(value, 180 / math.pi))


def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns `sqrt(x1**2 + x2**2)` without intermediate overflow.

    The result is infinite where either operand is.

    Args:
        x1: An array or number; not complex.
        x2: An array or number, broadcast against `x1`.

    Returns:
        An array of floats of the broadcast shape.

    Raises:
        TypeError: If an operand is complex.

    >>> hypot(3, 4)
    Array(5., dtype=float32, weak_type=True)
    """
    weak = [dtype_and_weak_type(a, f"hypot: {name}")[1] for name, a in (("x1", x1), ("x2", x2))]
    operands = promote_args_inexact("hypot", x1, x2)
    if dtypes.is_complex(operands[0].aval.dtype):
        raise TypeError(f"hypot is not defined for complex numbers, got {operands[0].aval} and {operands[1].aval}")
    x, y = [abs_sign.abs(convert_dtype(v, v.aval.dtype, all(weak))) for v in operands]
    inf = literal_like(x, math.inf)
    infinite = bitwise.bitwise_or(comparison.eq(x, inf), comparison.eq(y, inf))
    larger, smaller = arithmetic.max(x, y), arithmetic.min(x, y)
    zero = comparison.eq(larger, literal_like(x, 0.0))
    ratio = arithmetic.div(smaller, broadcast_select(zero, literal_like(x, 1.0), larger))
    length = arithmetic.mul(larger, transcendental.sqrt(elementwise.add(literal_like(x, 1.0), powers.square(ratio))))
    return broadcast_select(infinite, inf, broadcast_select(zero, larger, length))


@binary_ufunc(-math.inf)
@eager_cached(numbers=2, fused="at the first call", kernel=KERNELS["logaddexp"])
def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns `log(exp(x1) + exp(x2))` without intermediate overflow; imaginary parts of complex results in [-pi, pi].

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        An array of floats or complex numbers of the broadcast shape.

    >>> logaddexp(-math.inf, 0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    x, y = promote_args_inexact("logaddexp", x1, x2)
    larger, difference, same = larger_and_difference(x, y)
    correction = transcendental.log1p(transcendental.exp(difference))
    return wrap_imaginary(broadcast_select(same, larger, elementwise.add(larger, correction)), math.pi)


def larger_and_difference(x: Value, y: Value) -> tuple[Array, Array, Array]:
    """Returns the larger of two numbers, the difference of the smaller to it, and where both are the same infinity."""
    # Selects instead of `max` and `abs`, which halve tangents at ties: the halves add up for first derivatives, not
    # for second ones.
    one, other = [complex_numbers.real(v) if dtypes.is_complex(v.aval.dtype) else v for v in (x, y)]
    above = comparison.gt(one, other)
    larger, smaller = broadcast_select(above, x, y), broadcast_select(above, y, x)
    # The difference of equal infinities is taken to be 0.
    same = bitwise.bitwise_and(comparison.eq(x, y), comparison.eq(abs_sign.abs(one), literal_like(one, math.inf)))
    return larger, broadcast_select(same, literal_like(x, 0.0), arithmetic.sub(smaller, larger)), same


def wrap_imaginary(x: Array, half: float) -> Array:
    """Moves the imaginary part of a complex `x` to [-half, half] by multiples of `2 * half`."""
    if not dtypes.is_complex(x.dtype):
        return x
    real, imag = complex_numbers.real(x), complex_numbers.imag(x)
    turns = rounding.round(arithmetic.div(imag, literal_like(imag, 2 * half)), rounding.RoundingMethod.TO_NEAREST_EVEN)
    inside = comparison.le(abs_sign.abs(imag), literal_like(imag, half))
    moved = arithmetic.sub(imag, arithmetic.mul(turns, literal_like(imag, 2 * half)))
    return complex_numbers.complex(real, broadcast_select(inside, imag, moved))


radians = deg2rad
degrees = rad2deg
asin = arcsin
acos = arccos
atan = arctan
atan2 = arctan2
asinh = arcsinh
acosh = arccosh
atanh = arctanh
