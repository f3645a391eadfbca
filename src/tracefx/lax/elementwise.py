"""Elementwise functions that are composed of primitives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import SupportsIndex

from tracefx.core import Array, ArrayLike, ShapedArray, as_value, dtypes
from tracefx.core.handler import as_array
from tracefx.ops.elementwise.accuracy import Accuracy
from tracefx.ops.elementwise.arithmetic import mul, sub
from tracefx.ops.elementwise.complex import complex, imag, real
from tracefx.ops.elementwise.elementwise import ADD, add, broadcast_operands
from tracefx.ops.elementwise.transcendental import log
from tracefx.ops.shape.shape import stack
from tracefx.ops.static_integers import static_int
from tracefx.ops.structural import broadcast_to, constant_like_aval, convert, convert_value, full_like_aval
from tracefx.transforms.custom_derivatives import custom_jvp
from tracefx.transforms.scans import scan


def log2(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Returns the logarithm to base 2, elementwise: -inf at 0, NaN for negative floats.

    Args:
        x: Array of floats or complex numbers, or a number.
        accuracy: The error bound of the natural logarithm in compiled code: an `AccuracyMode` or a `Tolerance`. None
            means XLA's default.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a float or complex number, or `accuracy` has another type.

    >>> log2(0.5)
    Array(-1., dtype=float32, weak_type=True)
    """
    logarithm = log(x, accuracy=accuracy)
    dtype = logarithm.aval.dtype
    scale = constant_like_aval(ShapedArray((), dtypes.real_dtype(dtype), weak_type=True), 1 / math.log(2))
    if not dtypes.is_complex(dtype):
        return mul(logarithm, scale)
    return complex(mul(real(logarithm), scale), mul(imag(logarithm), scale))  # `inf * 0j` would have NaN


def one_minus_square(x: ArrayLike) -> Array:
    """Returns `1 - x**2`, elementwise, without cancellation near -1 and 1.

    Args:
        x: Array of numbers, or a number.

    Returns:
        An array of the same shape and dtype.

    Raises:
        TypeError: `x` is not a number.

    >>> one_minus_square(0.5)
    Array(0.75, dtype=float32, weak_type=True)
    """
    return _one_minus_square(as_array(as_value(x, "one_minus_square: x")))


@custom_jvp
def _one_minus_square(x: Array) -> Array:
    return mul(add(1, x), sub(1, x))


# The product rule would compute the derivative by a difference, which is 0 for small `x`.
_one_minus_square.defjvps(lambda t, out, x: mul(t, mul(-2, x)))


def polynomial(x: ArrayLike, coeffs: Sequence[ArrayLike], *, unroll: SupportsIndex | None = None) -> Array:
    """Evaluates a polynomial by Horner's rule, elementwise.

    Args:
        x: Array of numbers, or a number.
        coeffs: The coefficients, lowest degree first: numbers, or arrays of the rank of `x`, whose axes of size 1 are
            broadcast. They are converted to the dtype of `x`.
        unroll: The number of terms up to which the recurrence is unrolled; others are evaluated in a loop that takes
            so many steps per iteration. None means 8.

    Returns:
        An array of the dtype of `x` and of the broadcast shape; 0 without coefficients.

    Raises:
        TypeError: `x` or a coefficient is not an array of numbers, or shapes do not broadcast.

    >>> polynomial(3.0, [1.0, 5.0, 2.0])
    Array(34., dtype=float32, weak_type=True)
    """
    point = as_value(x, "polynomial: x")
    dtype = point.aval.dtype
    given = [as_value(c, f"polynomial: coefficient {i}") for i, c in enumerate(coeffs)]
    if not given:
        return full_like_aval(point.aval, 0)
    for i, c in enumerate(given):
        if dtypes.is_complex(c.aval.dtype) and not dtypes.is_complex(dtype):
            raise TypeError(f"polynomial: coefficient {i} is complex, but x is {point.aval}; convert x with astype")
    terms = [convert_value(c, dtype, c.aval.weak_type) for c in given]
    point, *lower, value = broadcast_operands(ADD, point, *terms)
    shape = next((v.aval.shape for v in (point, *lower, value) if v.aval.shape), ())
    steps = 8 if unroll is None else static_int("polynomial", unroll, "unroll")
    if len(terms) <= steps:
        for c in reversed(lower):
            value = add(mul(value, point), c)
        return broadcast_to(value, shape)
    is_weak = all(v.aval.weak_type for v in (point, *lower, value))
    start = convert(broadcast_to(value, shape), dtype, is_weak)
    rows = stack([broadcast_to(c, shape) for c in reversed(lower)])
    return scan(lambda y, c: (add(mul(y, point), c), None), start, rows, unroll=max(steps, 1))[0]
