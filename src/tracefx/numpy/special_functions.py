"""Less common elementwise functions: angles, `sinc`, `heaviside`, extremes ignoring NaN, `nan_to_num`."""

from __future__ import annotations

import math

from tracefx.core import Array, ArrayLike, Value, dtypes
from tracefx.core.handler import as_array
from tracefx.numpy.complex_parts import imag, real
from tracefx.numpy.kernels import KERNELS
from tracefx.numpy.logic import greater, isnan, isneginf, isposinf, less
from tracefx.numpy.operand_promotion import (
    as_operand,
    convert_dtype,
    convert_operand,
    promote_args_inexact,
    promote_pair,
    to_inexact,
)
from tracefx.numpy.transcendentals import larger_and_difference, rad2deg, wrap_imaginary
from tracefx.numpy.ufunc_methods import binary_ufunc
from tracefx.numpy.ufuncs import broadcast_select, literal_like, where
from tracefx.ops.elementwise import arithmetic, atan2_nextafter, bitwise, comparison, powers, transcendental
from tracefx.ops.elementwise import complex as complex_numbers
from tracefx.ops.elementwise.elementwise import add
from tracefx.transforms.eager_calls import eager_cached


def angle(z: ArrayLike, deg: bool = False) -> Array:
    """Returns the angle of a complex number in the plane; 0 or pi for real numbers.

    Args:
        z: An array or number.
        deg: Whether the result is in degrees; by default it is in radians.

    Returns:
        An array of floats of the shape of `z`.

    >>> angle(1j, deg=True)
    Array(90., dtype=float32, weak_type=True)
    """
    value = as_operand(z, "angle: z")
    dtype = dtypes.real_dtype(value.aval.dtype)
    if not dtypes.is_inexact(dtype):
        dtype = dtypes.default_float()
    x, y = [convert_dtype(part, dtype, value.aval.weak_type) for part in (real(value), imag(value))]
    out = atan2_nextafter.atan2(y, x)
    return rad2deg(out) if deg else out


def isreal(x: ArrayLike) -> Array:
    """Returns where the imaginary part is 0.

    Args:
        x: An array or number.

    Returns:
        An array of bools of the shape of `x`.

    >>> import numpy as np
    >>> isreal(np.array([1, 1j])).tolist()
    [True, False]
    """
    part = imag(as_operand(x, "isreal: x"))
    return comparison.eq(part, literal_like(part, _zero(part)))


def iscomplex(x: ArrayLike) -> Array:
    """Returns where the imaginary part is not 0.

    Args:
        x: An array or number.

    Returns:
        An array of bools of the shape of `x`.

    >>> import numpy as np
    >>> iscomplex(np.array([1, 1j])).tolist()
    [False, True]
    """
    part = imag(as_operand(x, "iscomplex: x"))
    return comparison.ne(part, literal_like(part, _zero(part)))


def _zero(x: Value) -> bool | int | float:
    """Returns the Python zero for the dtype of `x`."""
    dtype = x.aval.dtype
    return False if dtypes.is_bool(dtype) else 0 if dtypes.is_integer(dtype) else 0.0


@eager_cached(numbers=2, kernel=KERNELS["heaviside"])
def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the step function of `x1`: 0 if negative, 1 if positive, `x2` if 0, NaN if NaN.

    Args:
        x1: An array or number; not complex.
        x2: The values where `x1` is 0, broadcast against `x1`.

    Returns:
        An array of floats of the broadcast shape.

    Raises:
        TypeError: If an operand is complex.

    >>> import numpy as np
    >>> heaviside(np.array([-1, 0, 2]), 0.5).tolist()
    [0.0, 0.5, 1.0]
    """
    x, y = promote_args_inexact("heaviside", x1, x2)
    zero = literal_like(x, 0.0)
    at_zero = broadcast_select(comparison.ne(x, x), x, y)
    return broadcast_select(
        comparison.lt(x, zero), zero, broadcast_select(comparison.gt(x, zero), literal_like(x, 1.0), at_zero)
    )


@eager_cached(kernel=KERNELS["sinc"])
def sinc(x: ArrayLike, /) -> Array:
    """Returns `sin(pi x) / (pi x)`, and 1 at 0, where all derivatives are right too.

    Args:
        x: An array or number.

    Returns:
        An array of the shape of `x`, of floats or complex numbers.

    >>> import numpy as np
    >>> sinc(np.array([0, 0.5])).round(4).tolist()
    [1.0, 0.6366000175476074]
    """
    value = to_inexact(x, "sinc: x")
    scaled = arithmetic.mul(value, literal_like(value, math.pi))
    at_zero = comparison.eq(value, literal_like(value, 0.0))
    safe = broadcast_select(at_zero, literal_like(value, 1.0), scaled)
    quotient = arithmetic.div(transcendental.sin(safe), safe)
    # The beginning of the Taylor series, of which only the value and the derivatives at 0 are used. Elsewhere its
    # operand is 0, so that its powers do not overflow: the zero cotangent times infinity would be NaN.
    square = powers.square(broadcast_select(at_zero, scaled, literal_like(value, 0.0)))
    series: Value = literal_like(value, 1 / math.factorial(9))
    for k in (3, 2, 1, 0):
        series = add(arithmetic.mul(series, square), literal_like(value, (-1) ** k / math.factorial(2 * k + 1)))
    return broadcast_select(at_zero, series, quotient)


def float_power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Returns `x ** y`, always as a float or complex number.

    Args:
        x: The base, an array or number.
        y: The exponent, broadcast against `x`.

    Returns:
        The powers, as floats or complex numbers of the broadcast shape.

    >>> float_power(2, -1)
    Array(0.5, dtype=float32, weak_type=True)
    """
    return powers.pow(*promote_args_inexact("float_power", x, y))


@eager_cached(numbers=2)
def fmax(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Returns the elementwise maximum of two arrays, ignoring NaN where the other is a number.

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        The larger elements, in the promoted dtype and the broadcast shape.

    >>> import numpy as np
    >>> fmax(np.array([1, np.nan]), 0.5).tolist()
    [1.0, 0.5]
    """
    x, y = promote_pair("fmax", x1, x2)
    return broadcast_select(bitwise.bitwise_or(greater(x, y), isnan(y)), x, y)


@eager_cached(numbers=2)
def fmin(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Returns the elementwise minimum of two arrays, ignoring NaN where the other is a number.

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        The smaller elements, in the promoted dtype and the broadcast shape.

    >>> import numpy as np
    >>> fmin(np.array([1, np.nan]), 0.5).tolist()
    [0.5, 0.5]
    """
    x, y = promote_pair("fmin", x1, x2)
    return broadcast_select(bitwise.bitwise_or(less(x, y), isnan(y)), x, y)


@binary_ufunc(-math.inf)
@eager_cached(numbers=2, fused="at the first call", kernel=KERNELS["logaddexp2"])
def logaddexp2(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns `log2(2**x1 + 2**x2)` without intermediate overflow.

    The imaginary part of a complex result is in `[-pi / log(2), pi / log(2)]`.

    Args:
        x1: An array or number.
        x2: An array or number, broadcast against `x1`.

    Returns:
        An array of floats or complex numbers of the broadcast shape.

    >>> logaddexp2(3.0, 3.0)
    Array(4., dtype=float32, weak_type=True)
    """
    x, y = promote_args_inexact("logaddexp2", x1, x2)
    larger, difference, same = larger_and_difference(x, y)
    correction = transcendental.log1p(transcendental.exp2(difference))
    out = broadcast_select(same, larger, add(larger, arithmetic.div(correction, literal_like(x, math.log(2)))))
    return wrap_imaginary(out, math.pi / math.log(2))


@eager_cached(fused="at the second call")
def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: ArrayLike = 0.0,
    posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
) -> Array:
    """Replaces NaN and infinities by numbers.

    Args:
        x: The array.
        copy: Accepted for compatibility and ignored: arrays are immutable.
        nan: The replacement of NaN.
        posinf: The replacement of infinity; None means the largest finite number.
        neginf: The replacement of minus infinity; None means the smallest finite number.

    Returns:
        An array of the shape and dtype of `x`.

    >>> import numpy as np
    >>> nan_to_num(np.array([1, np.nan, np.inf]), posinf=9.0).tolist()
    [1.0, 0.0, 9.0]
    """
    del copy  # arrays are immutable
    value = as_operand(x, "nan_to_num: x")
    dtype = value.aval.dtype
    if not dtypes.is_inexact(dtype):
        return as_array(value)
    if dtypes.is_complex(dtype):
        parts = [nan_to_num(part, True, nan, posinf, neginf) for part in (real(value), imag(value))]
        return complex_numbers.complex(*parts)
    info = dtypes.finfo(dtype)
    numbers = [
        convert_operand(number, dtype, what=f"nan_to_num: {what}")
        for number, what in (
            (nan, "nan"),
            (float(info.max) if posinf is None else posinf, "posinf"),
            (float(info.min) if neginf is None else neginf, "neginf"),
        )
    ]
    out: Value = value
    for mask, number in zip((isnan(value), isposinf(value), isneginf(value)), numbers, strict=True):
        out = where(mask, number, out)
    return as_array(out)
